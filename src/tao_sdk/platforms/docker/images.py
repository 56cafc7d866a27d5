"""Images: when to pull, with which credentials, and the progress of a pull."""

from __future__ import annotations

import contextlib
import json
import re
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import docker
import requests
from docker import auth
from docker.utils import parse_repository_tag

from tao_sdk import settings
from tao_sdk.errors import CredentialError, SubmissionRejectedError, ValidationError
from tao_sdk.platforms.docker.client import DaemonError, DockerClient
from tao_sdk.platforms.docker.options import PULL_POLICIES

_NGC = "nvcr.io"
_DOCKER_HUB = "docker.io"
# One pull can use up a connection or a disk.
_PULLS_AT_ONCE = 4
_DENIED = re.compile(
    r"\b(unauthorized|forbidden|denied|no basic auth|HTTP 40[13])\b", re.IGNORECASE
)


@dataclass(frozen=True)
class PullProgress:
    """The progress of a pull."""

    image: str
    done_bytes: int
    total_bytes: int
    layers_done: int
    layers: int

    def __str__(self) -> str:
        share = f"{100 * self.done_bytes // self.total_bytes}%" if self.total_bytes else "…"
        return f"pulling {self.image}: {share}, {self.layers_done} of {self.layers} layers"


Listener = Callable[[PullProgress], None]


def registry_of(image: str) -> str:
    """The registry that an image reference names, as Docker reads it."""
    first, slash, _ = image.partition("/")
    is_host = slash and ("." in first or ":" in first or first == "localhost")
    return first if is_host else _DOCKER_HUB


def split_tag(image: str) -> tuple[str, str]:
    """Repository and tag (or digest), as the pull call wants them."""
    repository, tag = parse_repository_tag(image)
    return repository, tag or "latest"


def pull_policy(option: str | None) -> str:
    """The policy of a job: its keyword, else DOCKER_PULL_POLICY."""
    policy = (option or settings.get("DOCKER_PULL_POLICY")).lower()
    if policy not in PULL_POLICIES:
        raise ValidationError(
            f"DOCKER_PULL_POLICY={policy!r} is not one of {', '.join(PULL_POLICIES)}"
        )
    return policy


Wanted = tuple[str, str]
"""An image, and when to pull it."""


def provide(
    transport: DockerClient, wanted: Iterable[Wanted], listener: Listener
) -> dict[Wanted, SubmissionRejectedError]:
    """Pull these images to the daemon's host where needed; which are refused, and why.

    Several images are pulled at the same time. The listener is called by one thread at a time.
    """
    each = list(dict.fromkeys(wanted))
    reporting, given_up = threading.Lock(), threading.Event()

    def report(progress: PullProgress) -> None:
        with reporting:
            if given_up.is_set():
                raise _GivenUpError
            listener(progress)

    def refusal_of(one: Wanted) -> SubmissionRejectedError | None:
        try:
            ensure(transport, *one, report)
        except SubmissionRejectedError as error:
            return type(error)(str(error))  # without its traceback, which refers to the caller
        return None

    if len(each) == 1:
        outcomes = [refusal_of(each[0])]
    else:
        with ThreadPoolExecutor(_PULLS_AT_ONCE, thread_name_prefix="tao-pull") as pool:
            try:
                outcomes = list(pool.map(refusal_of, each))
            except BaseException:
                given_up.set()  # the others end with their next report
                raise
    return {one: error for one, error in zip(each, outcomes, strict=True) if error is not None}


def ensure(transport: DockerClient, image: str, policy: str, listener: Listener) -> None:
    """Pull the image if needed, or raise `SubmissionRejectedError` with the reason."""
    if policy != "always" and is_present(transport, image):
        return
    if policy == "never":
        raise SubmissionRejectedError(
            f"image {image} is not on the Docker host, and the pull policy is 'never': pull it "
            "there, or use pull_policy='missing'"
        )
    _pull(transport, image, listener)


def credentials(registry: str) -> dict[str, str] | None:
    """The account for a pull: NGC_KEY at nvcr.io, elsewhere what `docker login` stored."""
    if registry == _NGC and settings.lookup("NGC_KEY"):
        return {
            "username": settings.get("DOCKER_USERNAME"),
            "password": settings.get("NGC_KEY"),
            "serveraddress": _NGC,
        }
    stored = registry_credentials("" if registry == _DOCKER_HUB else registry)
    if not stored:
        return None
    # A credential helper writes `Username` where a file has `username`.
    found = {name.lower(): str(value) for name, value in stored.items() if value}
    return {"serveraddress": registry, **found}


def registry_credentials(registry: str) -> dict[str, Any] | None:
    """What `docker login` on this machine has stored for a registry, read anew each time."""
    path = settings.expanded(settings.get("DOCKER_CONFIG")) / "config.json"
    try:
        stored = auth.load_config(config_path=str(path))
        found: dict[str, Any] | None = auth.resolve_authconfig(stored, registry)
    except docker.errors.DockerException as error:
        raise CredentialError(
            f"what `docker login` stored cannot be read ({path}): {error}"
        ) from error
    return found


def read_progress(image: str, report: Iterable[dict[str, Any]]) -> Iterator[PullProgress]:
    """Read the daemon's report on a pull; raises `DaemonError` if it ends in an error."""
    layers: dict[str, tuple[int, int, bool]] = {}
    for entry in report:
        if "error" in entry:
            raise DaemonError(500, str(entry["error"]), "POST /images/create")
        layer, status = entry.get("id", ""), entry.get("status", "")
        detail = entry.get("progressDetail") or {}
        if not layer or not _is_layer(status):
            continue
        done, total, complete = layers.get(layer, (0, 0, False))
        if status == "Downloading":
            done, total = int(detail.get("current", done)), int(detail.get("total", total))
        elif status in ("Download complete", "Pull complete", "Already exists"):
            done, complete = total, True
        layers[layer] = (done, total, complete)
        counted = layers.values()
        yield PullProgress(
            image,
            sum(one[0] for one in counted),
            sum(one[1] for one in counted),
            sum(one[2] for one in counted),
            len(layers),
        )


def _is_layer(status: str) -> bool:
    return status.split(" ")[0] in ("Pulling", "Downloading", "Download", "Pull", "Already") and (
        not status.startswith("Pulling from")
    )


def is_present(transport: DockerClient, image: str) -> bool:
    """Whether the daemon's host has this image."""
    try:
        transport.api.inspect_image(image)  # type: ignore[no-untyped-call]  # not in its stubs
    except DaemonError as error:
        if error.missing:
            return False
        raise SubmissionRejectedError(f"image {image} cannot be looked for: {error}") from error
    return True


def _pull(transport: DockerClient, image: str, listener: Listener) -> None:
    registry = registry_of(image)
    repository, tag = split_tag(image)
    try:
        account = credentials(registry)
    except CredentialError as error:
        raise RegistryRefusalError(f"image {image} cannot be pulled: {error}") from error
    try:
        # Closed whatever the listener does, which tells the daemon to stop.
        with contextlib.closing(transport.api.open_pull(repository, tag, account)) as answer:
            for progress in read_progress(image, _reports(transport, answer)):
                listener(progress)
    except DaemonError as error:
        raise _refusal(image, registry, bool(account), str(error)) from error


def _reports(transport: DockerClient, answer: requests.Response) -> Iterator[dict[str, Any]]:
    lines = answer.iter_lines()
    while True:
        with transport.reaching():
            line = next(lines, None)
            if line is None:
                return
            try:
                entry = json.loads(line) if line else {}
            except ValueError as error:
                raise ConnectionError("the report on a pull broke off") from error
        yield entry


def _refusal(image: str, registry: str, with_account: bool, reason: str) -> SubmissionRejectedError:
    denied = _DENIED.search(reason.replace(image, ""))
    if denied and registry == _NGC:
        hint = (
            "the registry refuses NGC_KEY: is it valid, and may its organisation use this image?"
            if with_account
            else "set NGC_KEY (https://org.ngc.nvidia.com/setup/api-keys)"
        )
        return RegistryRefusalError(f"image {image} cannot be pulled: {reason}; {hint}")
    if denied:
        hint = "its credentials are refused" if with_account else f"log in: docker login {registry}"
        return RegistryRefusalError(f"image {image} cannot be pulled: {reason}; {hint}")
    return SubmissionRejectedError(f"image {image} cannot be pulled: {reason}")


class RegistryRefusalError(SubmissionRejectedError, CredentialError):
    """The registry refuses the pull for want of a credential."""


class _GivenUpError(Exception):
    """Another pull was interrupted, or failed in a way that ends them all."""
