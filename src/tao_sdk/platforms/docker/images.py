"""Images: when to pull, with whose credentials, and how far it is."""

from __future__ import annotations

import contextlib
import json
import re
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import requests

from tao_sdk import settings
from tao_sdk.errors import CredentialError, SubmissionRejectedError, ValidationError
from tao_sdk.platforms.docker.client import DaemonError, DockerClient, registry_credentials
from tao_sdk.platforms.docker.options import PULL_POLICIES

_NGC = "nvcr.io"
_DOCKER_HUB = "docker.io"
# Each of them takes all of a connection, or of a disk, that it can get.
_PULLS_AT_ONCE = 4
_DENIED = re.compile(
    r"\b(unauthorized|forbidden|denied|no basic auth|HTTP 40[13])\b", re.IGNORECASE
)


@dataclass(frozen=True)
class PullProgress:
    """How far a pull is."""

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
    if "@" in image:
        repository, _, digest = image.partition("@")
        return repository, digest
    repository, colon, tag = image.rpartition(":")
    if colon and "/" not in tag:
        return repository, tag
    return image, "latest"


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
    """Have these images on the daemon's host; those that cannot be had, and why.

    Different ones are pulled side by side; the listener hears of one at a time.
    """
    each = list(dict.fromkeys(wanted))
    hearing, given_up = threading.Lock(), threading.Event()

    def listen(progress: PullProgress) -> None:
        with hearing:
            if given_up.is_set():
                raise _GivenUpError
            listener(progress)

    def have(one: Wanted) -> SubmissionRejectedError | None:
        try:
            ensure(transport, *one, listen)
        except SubmissionRejectedError as error:
            return type(error)(str(error))  # without its traceback, which holds those who asked
        return None

    if len(each) == 1:
        outcomes = [have(each[0])]
    else:
        with ThreadPoolExecutor(_PULLS_AT_ONCE, thread_name_prefix="tao-pull") as pool:
            try:
                outcomes = list(pool.map(have, each))
            except BaseException:
                given_up.set()  # the others end with their next report
                raise
    return {one: error for one, error in zip(each, outcomes, strict=True) if error is not None}


def ensure(transport: DockerClient, image: str, policy: str, listener: Listener) -> None:
    """Have the image on the daemon's host, or raise `SubmissionRejectedError` with the reason."""
    if policy != "always" and is_present(transport, image):
        return
    if policy == "never":
        raise SubmissionRejectedError(
            f"image {image} is not on the Docker host, and the pull policy is 'never': pull it "
            "there, or use pull_policy='missing'"
        )
    _pull(transport, image, listener)


def credentials(registry: str) -> dict[str, str] | None:
    """Whose name a pull goes by: NGC_KEY at nvcr.io, elsewhere what `docker login` stored."""
    if registry == _NGC and settings.lookup("NGC_KEY"):
        return {
            "username": settings.get("DOCKER_USERNAME"),
            "password": settings.get("NGC_KEY"),
            "serveraddress": _NGC,
        }
    stored = registry_credentials("" if registry == _DOCKER_HUB else registry)
    if not stored:
        return None
    names = {
        "Username": "username",
        "Password": "password",
        "ServerAddress": "serveraddress",
        "IdentityToken": "identitytoken",
    }
    found = {names.get(key, key): str(value) for key, value in stored.items() if value}
    return {"serveraddress": registry, **found}


def read_progress(image: str, report: Iterable[dict[str, Any]]) -> Iterator[PullProgress]:
    """The daemon's report on a pull; raises `DaemonError` with its last words."""
    layers: dict[str, tuple[int, int, bool]] = {}
    for said in report:
        if "error" in said:
            raise DaemonError(500, str(said["error"]), "POST /images/create")
        layer, status = said.get("id", ""), said.get("status", "")
        detail = said.get("progressDetail") or {}
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
    """Has the daemon's host got this image?"""
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
                said = json.loads(line) if line else {}
            except ValueError as error:
                raise ConnectionError("the report on a pull broke off") from error
        yield said


def _refusal(image: str, registry: str, named: bool, said: str) -> SubmissionRejectedError:
    denied = _DENIED.search(said.replace(image, ""))
    if denied and registry == _NGC:
        hint = (
            "the registry refuses NGC_KEY: is it valid, and may its organisation use this image?"
            if named
            else "set NGC_KEY (https://org.ngc.nvidia.com/setup/api-keys)"
        )
        return RegistryRefusalError(f"image {image} cannot be pulled: {said}; {hint}")
    if denied:
        hint = "its credentials are refused" if named else f"log in: docker login {registry}"
        return RegistryRefusalError(f"image {image} cannot be pulled: {said}; {hint}")
    return SubmissionRejectedError(f"image {image} cannot be pulled: {said}")


class RegistryRefusalError(SubmissionRejectedError, CredentialError):
    """The registry wants to know who asks: the job is refused for want of a credential."""


class _GivenUpError(Exception):
    """Another pull has failed in a way that ends them all, or was interrupted."""
