"""Checks before a launch: permissions, namespace, claims. They change nothing."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from tao_sdk.platforms.kubernetes import naming
from tao_sdk.platforms.kubernetes.client import ApiError, KubernetesClient

# Verb, API group, resource, subresource, purpose.
_NEEDED = (
    ("create", "batch", "jobs", "", "submit jobs"),
    ("list", "batch", "jobs", "", "watch jobs"),
    ("watch", "batch", "jobs", "", "notice changes"),
    ("patch", "batch", "jobs", "", "start a job once its Secret is there"),
    ("delete", "batch", "jobs", "", "cancel jobs"),
    ("list", "", "pods", "", "say why a job waits"),
    ("get", "", "pods", "log", "read logs"),
    ("create", "", "secrets", "", "pass environment and credentials"),
    ("get", "", "secrets", "", "keep secrets out of explanations"),
    ("create", "", "configmaps", "", "pass long commands"),
    ("create", "", "services", "", "run on several nodes"),
    ("list", "", "events", "", "explain pods that are refused"),
)


class Finding(NamedTuple):
    """The result of one check."""

    what: str
    ok: bool
    detail: str = ""


def permissions(api: KubernetesClient, namespace: str) -> list[Finding]:
    """Whether this user has the permissions that the SDK needs in a namespace."""
    found = []
    for verb, group, resource, subresource, purpose in _NEEDED:
        review = api.review(
            verb, resource, group=group, namespace=namespace, subresource=subresource
        )
        what = f"{verb} {resource}{'/' if subresource else ''}{subresource} in {namespace}"
        detail = "" if review.allowed else f"needed to {purpose}; {review.reason}".rstrip("; ")
        found.append(Finding(what, review.allowed, detail))
    return found


def namespace(api: KubernetesClient, name: str) -> Finding:
    """Whether a namespace exists."""
    what = f"namespace {name}"
    try:
        api.get(f"/api/v1/namespaces/{name}")
    except ApiError as error:
        if error.forbidden:
            return Finding(what, ok=True, detail="you may not check whether it exists")
        if not error.missing:
            raise
        return Finding(what, ok=False, detail=f"create it: kubectl create namespace {name}")
    return Finding(what, ok=True)


def claims(api: KubernetesClient, where: str, names: Iterable[str]) -> list[Finding]:
    """Whether these PersistentVolumeClaims exist, and have not lost their volumes."""
    found = []
    for name in names:
        what = f"claim {name} in {where}"
        try:
            claim = api.get(naming.core_path(where, "persistentvolumeclaims", name))
        except ApiError as error:
            if error.forbidden:
                found.append(Finding(what, ok=False, detail="you may not check whether it exists"))
                continue
            if not error.missing:
                raise
            found.append(Finding(what, ok=False, detail="it does not exist; create it first"))
            continue
        phase = (claim.get("status") or {}).get("phase", "")
        found.append(Finding(what, ok=phase != "Lost", detail=phase))
    return found
