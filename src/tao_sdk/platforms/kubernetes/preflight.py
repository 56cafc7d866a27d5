"""Checks before a launch: may we, is there a namespace, are there GPUs, are the claims there?

Each answers with findings that a person can act on; none of them changes anything.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from tao_sdk.platforms.kubernetes import capacity, naming
from tao_sdk.platforms.kubernetes.client import ApiError, KubernetesClient
from tao_sdk.platforms.kubernetes.cluster import Cluster

# Verb, API group, resource, subresource, and what for.
_NEEDED = (
    ("create", "batch", "jobs", "", "submit jobs"),
    ("list", "batch", "jobs", "", "watch jobs"),
    ("watch", "batch", "jobs", "", "be told of changes"),
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
    """One thing that was checked."""

    what: str
    ok: bool
    detail: str = ""


def permissions(api: KubernetesClient, namespace: str) -> list[Finding]:
    """May this user do in that namespace what the SDK needs to do?"""
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
    """Is there such a namespace?"""
    what = f"namespace {name}"
    try:
        api.get(f"/api/v1/namespaces/{name}")
    except ApiError as error:
        if error.forbidden:
            return Finding(what, ok=True, detail="you may not look whether it is there")
        if not error.missing:
            raise
        return Finding(what, ok=False, detail=f"create it: kubectl create namespace {name}")
    return Finding(what, ok=True)


def gpus(api: KubernetesClient) -> Finding:
    """Is the GPU Operator, or a device plugin, there?"""
    nodes = Cluster(api).nodes()
    if nodes is None:
        return Finding(naming.GPU, ok=True, detail="you may not list nodes, so it is not known")
    total = capacity.total_gpus(nodes)
    if not total:
        return Finding(naming.GPU, ok=False, detail=capacity.NO_OPERATOR)
    return Finding(naming.GPU, ok=True, detail=f"{total} allocatable")


def claims(api: KubernetesClient, where: str, names: Iterable[str]) -> list[Finding]:
    """Are these PersistentVolumeClaims in that namespace, and bound?"""
    found = []
    for name in names:
        what = f"claim {name} in {where}"
        try:
            claim = api.get(naming.core_path(where, "persistentvolumeclaims", name))
        except ApiError as error:
            if error.forbidden:
                found.append(Finding(what, ok=False, detail="you may not look whether it is there"))
                continue
            if not error.missing:
                raise
            found.append(Finding(what, ok=False, detail="it is not there; create it first"))
            continue
        phase = (claim.get("status") or {}).get("phase", "")
        found.append(Finding(what, ok=phase != "Lost", detail=phase))
    return found
