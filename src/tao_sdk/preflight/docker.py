"""Before a launch on Docker: the daemon, its runtime, its GPUs, and the data on its host.

What is made for it (a container that lists GPUs, containers that never run and through which files
are seen) is removed again. An image is pulled only if that is asked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NamedTuple

from tao_sdk import settings
from tao_sdk.errors import BackendUnreachableError, PlatformError, TaoError, ValidationError
from tao_sdk.preflight.checks import Check, Task, failed, passed, skipped, warning
from tao_sdk.preflight.data import unlooked
from tao_sdk.preflight.flags import with_flag
from tao_sdk.preflight.gpus import QUERY, GpuFacts, gpu_checks, occupancy, parse_gpus
from tao_sdk.preflight.host_gpus import host_gpus
from tao_sdk.preflight.host_setup import check_command
from tao_sdk.preflight.local_files import local_checks
from tao_sdk.preflight.nodes import one_machine_tasks
from tao_sdk.preflight.paths import mounted, unsupported_tasks
from tao_sdk.preflight.request import PreflightRequest

if TYPE_CHECKING:
    from tao_sdk.platforms.docker.client import DockerClient
    from tao_sdk.platforms.docker.endpoint import Endpoint

_VOLUME = "docker-volume"
_PACKAGES = ("docker", "urllib3")
_SETUP = (
    "Install the NVIDIA Container Toolkit on the Docker host and register it: "
    "nvidia-ctk runtime configure --runtime=docker, then restart Docker. "
    f"What is missing there:\n  {check_command('docker')}"
)


class Smoked(NamedTuple):
    """What the container that looks for GPUs showed."""

    check: Check
    gpus: list[GpuFacts] | None = None


def docker_tasks(
    request: PreflightRequest, described: Mapping[str, Any], *, must_be_remote: bool
) -> list[Task]:
    """All that is looked at."""
    chosen = _endpoint(request, described["platform"], must_be_remote)
    if isinstance(chosen, Check):
        problem = chosen
        tasks = [Task(problem.name, lambda: [problem])]
        reason = "no Docker daemon was asked"
        tasks += [
            Task(f"path:{label}", partial(unlooked, request, label, reason))
            for label in mounted(request, _VOLUME)
        ]
        return [*tasks, *unsupported_tasks(request, _VOLUME)]
    daemon = _Daemon(request, chosen)
    paths = [
        Task(f"path:{label}", partial(daemon.path_checks, label))
        for label in mounted(request, _VOLUME)
    ]
    return [
        Task("docker", daemon.checks),
        *one_machine_tasks(request, "Docker"),
        *paths,
        *unsupported_tasks(request, _VOLUME),
    ]


def _endpoint(request: PreflightRequest, platform: str, must_be_remote: bool) -> Endpoint | Check:
    """The daemon that jobs would go to, or what is wrong with the choice."""
    missing = [name for name in _PACKAGES if find_spec(name) is None]
    if missing:
        return failed(
            "docker.package",
            f"the Docker platform needs {', '.join(missing)}, which is not installed",
            "pip install 'tao-sdk[docker]'",
        )
    from tao_sdk.platforms.docker import endpoint

    try:
        found = endpoint.resolve(request.docker_host or None)
    except ValidationError as error:
        return failed(
            "docker.host",
            str(error),
            f"Correct DOCKER_HOST{with_flag(', or pass {}', request.flags.docker_host)}.",
        )
    if must_be_remote and found.local:
        return failed(
            "docker.host",
            f"{platform} needs a daemon of another machine, and {found} is this one's",
            "Set DOCKER_HOST=ssh://user@gpu-host"
            f"{with_flag(' (or pass {})', request.flags.docker_host)}, or use local-docker.",
        )
    return found


class _Daemon:
    """One daemon, looked at from several threads."""

    def __init__(self, request: PreflightRequest, endpoint: Endpoint) -> None:
        from tao_sdk.platforms.docker.client import DockerClient

        self._request = request
        self._local = endpoint.local
        self._transport: DockerClient = DockerClient(endpoint)

    def path_checks(self, label: str) -> Iterator[Check]:
        """Findings about one path of the daemon's host."""
        request = self._request
        if self._local and not request.paths[label].startswith(f"{_VOLUME}://"):
            yield from local_checks(request, label)
            return
        if request.skip_platform_access:
            yield from unlooked(request, label, "platform access is skipped")
            return
        from tao_sdk.preflight.docker_files import remote_checks

        try:
            image = self._window_image()
            if not image:
                yield from unlooked(request, label, "the Docker host has no image to look with")
                return
            yield from remote_checks(self._transport, request, label, image)
        except BackendUnreachableError:
            yield from unlooked(request, label, "the Docker daemon does not answer")

    def checks(self) -> Iterator[Check]:
        """Findings about the daemon and its GPUs."""
        if self._request.skip_platform_access:
            yield skipped("docker.daemon", "not asked: platform access is skipped")
            yield from gpu_checks(self._request, None)
            return
        try:
            info = self._transport.info
        except (BackendUnreachableError, PlatformError) as error:
            yield failed("docker.daemon", str(error), start_remedy(self._transport.endpoint, error))
            return
        version, name = info.get("ServerVersion", "?"), info.get("Name", "?")
        where = self._transport.endpoint
        yield passed("docker.daemon", f"Docker {version} on {name}, {where}")
        yield from self._image_check()
        if self._request.wants_gpus:
            yield from self._gpu_part(info)
        else:
            yield from gpu_checks(self._request, [])

    def _image_check(self) -> Iterator[Check]:
        from tao_sdk.platforms.docker.images import is_present

        image = self._request.container_image
        if not image:
            return
        if is_present(self._transport, image):
            yield passed("docker.image", f"{image} is on the Docker host")
        elif settings.get("DOCKER_PULL_POLICY").lower() == "never":
            yield failed(
                "docker.image",
                f"{image} is not on the Docker host, and DOCKER_PULL_POLICY is never",
                f"On the Docker host, run: docker pull {image}; or unset DOCKER_PULL_POLICY",
            )
        else:
            yield warning(
                "docker.image",
                f"{image} is not on the Docker host: the launch pulls it first",
                f"To have it sooner: docker pull {image}",
            )

    def _gpu_part(self, info: Mapping[str, Any]) -> Iterator[Check]:
        runtimes = sorted(info.get("Runtimes") or {})
        if "nvidia" not in runtimes:
            yield failed(
                "docker.runtime",
                f"Docker has no NVIDIA runtime; it has {', '.join(runtimes) or 'none'}",
                _SETUP,
            )
            yield skipped("docker.smoke", "skipped: Docker has no NVIDIA runtime")
            return
        yield passed("docker.runtime", "the NVIDIA runtime is registered")
        gpus: list[GpuFacts] | None = None
        if self._local:
            seen = host_gpus()
            if isinstance(seen, Check):
                yield seen
                if seen.status == "failed":
                    yield skipped("docker.smoke", "skipped: the host itself sees no GPUs")
                    return
            else:
                gpus = seen
                yield passed("gpu.driver", f"driver {', '.join(sorted({g.driver for g in gpus}))}")
        smoked = self._smoke(info)
        yield smoked.check
        gpus = gpus or smoked.gpus
        if gpus is None:
            return
        yield from gpu_checks(self._request, gpus)
        yield occupancy(self._request, gpus, self._leased(gpus))

    def _smoke(self, info: Mapping[str, Any]) -> Smoked:
        """Does a container see the GPUs?"""
        from tao_sdk.platforms.docker import gpus as docker_gpus
        from tao_sdk.platforms.docker.client import DaemonError
        from tao_sdk.platforms.docker.host import DockerHost

        image = self._smoke_image()
        if isinstance(image, Check):
            return Smoked(image)
        try:
            body = docker_gpus.probe_config(image, info, QUERY)
            code, text = DockerHost(self._transport).run(body)
        except DaemonError as error:
            return Smoked(failed("docker.smoke", f"no container with GPUs starts: {error}", _SETUP))
        found = parse_gpus(text)
        if code != 0 or not found:
            said = " ".join(text.split())[-300:] or "nothing was printed"
            told = f"nvidia-smi in a container of {image} ended with {code}: {said}"
            return Smoked(failed("docker.smoke", told, _SETUP, image=image, exit_code=code))
        told = f"a container of {image} sees {len(found)} GPUs, and was removed again"
        return Smoked(passed("docker.smoke", told, image=image), found)

    def _smoke_image(self) -> str | Check:
        """The image that the container is made of; pulled only if that is asked for."""
        from tao_sdk.platforms.docker.images import ensure, is_present

        request = self._request
        usual = settings.get("TAO_GPU_SMOKE_IMAGE")
        asked = request.smoke_image or settings.lookup("TAO_GPU_SMOKE_IMAGE")
        candidates = [asked] if asked else [request.container_image, usual]
        for image in filter(None, candidates):
            if is_present(self._transport, image):
                return image
        wanted = asked or usual
        if request.pull_smoke_image:
            try:
                ensure(self._transport, wanted, "missing", lambda _: None)
            except TaoError as error:
                another = with_flag("Name another one: {}", request.flags.smoke_image)
                return failed("docker.smoke", str(error), another)
            return wanted
        found = [image for image in candidates if image]
        named = f"neither {' nor '.join(found)} is" if len(found) > 1 else f"{found[0]} is not"
        return failed(
            "docker.smoke",
            f"skipped: {named} on the Docker host",
            f"On the Docker host, run: docker pull {wanted}"
            + with_flag("; or let this pull it: {}", request.flags.pull_smoke_image),
        )

    def _window_image(self) -> str:
        """An image that the host has: whichever it is, the container never runs."""
        from tao_sdk.platforms.docker.images import is_present

        request = self._request
        named = (request.smoke_image, request.container_image, settings.get("TAO_GPU_SMOKE_IMAGE"))
        for image in filter(None, named):
            if is_present(self._transport, image):
                return image
        present = self._transport.api.images()
        return str(present[0]["Id"]) if present else ""

    def _leased(self, gpus: list[GpuFacts]) -> set[str]:
        """The GPUs that jobs of ours have, on the daemon and beside it."""
        from tao_sdk.platforms.docker.config import LABEL
        from tao_sdk.platforms.docker.gpus import keys_given
        from tao_sdk.platforms.docker.status import LIVE_STATES
        from tao_sdk.platforms.gpus.leases import look_for_free

        listed = self._transport.api.containers(filters={"label": [LABEL]})
        taken = {
            key
            for container in listed
            if container["State"] in LIVE_STATES
            for key in keys_given(container.get("Labels") or {})
        }
        if self._local:
            keys = [gpu.key for gpu in gpus]
            taken |= set(keys) - set(look_for_free(settings.get("TAO_GPU_LEASE_DIR"), keys))
        return taken


def start_remedy(endpoint: Endpoint, error: Exception) -> str:
    """What to do about a daemon that does not answer."""
    if endpoint.url.startswith("ssh://"):
        host, _, number = endpoint.url.removeprefix("ssh://").partition(":")
        port = f"-p {number} " if number else ""
        return (
            f"Try: ssh -o BatchMode=yes {port}{host} docker info. A key, a known host key and the "
            "docker group there are needed."
        )
    if "Permission denied" in str(error):
        return "Join the docker group (sudo usermod -aG docker $USER), then log in again."
    return "Start Docker (sudo systemctl start docker), or set DOCKER_HOST."
