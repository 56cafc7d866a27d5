"""The lab of the Docker platform: one test's share of a real engine."""

from __future__ import annotations

import contextlib
import json
import random
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from common_lab import DIE, ContainerLab, files_under

from lab.docker import Engine
from lab.docker.proxy import Proxy
from lab.docker.python_image import python_image
from tao_sdk.models import Job
from tao_sdk.platforms.conformance import eventually
from tao_sdk.platforms.docker import DockerSDK
from tao_sdk.platforms.sdk import PlatformSDK


class DockerLab(ContainerLab[DockerSDK]):
    """Reached through a proxy of its own, which can be cut."""

    sdk_class = DockerSDK
    foreign = (
        *("DOCKER_CONTEXT", "DOCKER_TLS_VERIFY", "DOCKER_CERT_PATH", "DOCKER_AUTO_REMOVE"),
        *("DOCKER_NETWORK", "CUDA_VISIBLE_DEVICES"),
    )
    multi_node = False
    gpu_key = "pretended-{}"
    """What a GPU of this lab is called in leases."""

    def __init__(self, folder: Path, engine: Engine) -> None:
        super().__init__(folder)
        self.engine = engine
        self.results = folder / "results"
        self.results.mkdir()
        self.starts = folder / "starts"
        self.starts.mkdir()
        # No other test of this engine may have the same ones.
        first = random.SystemRandom().randrange(10, 10**9)
        self.gpus = f"{first},{first + 1}"
        self.proxy = self.make_proxy()

    def make_proxy(self) -> Proxy:
        return Proxy(self.folder / "docker.sock", self.engine.socket)

    @property
    def url(self) -> str:
        return f"unix://{self.folder}/docker.sock"

    def variables(self) -> dict[str, str]:
        return {
            **super().variables(),
            "DOCKER_HOST": self.url,
            "DOCKER_CONFIG": str(self.folder / "docker-config"),
            "TAO_LOCAL_GPUS": self.gpus,
            "TAO_GPU_LEASE_DIR": str(self.folder / "leases"),
        }

    def data_job(self, script: str) -> dict[str, Any]:
        return {**self.job(script), "image": python_image(self.engine)}

    def jobs_in_reality(self) -> set[str]:
        found = {path.name for path in self.starts.iterdir()}
        return found | set(self._containers("{{.Label `tao-sdk-job-id`}}"))

    def gpu_job(self, job: dict[str, Any], count: int) -> dict[str, Any]:
        """The same job with GPUs of this lab."""
        return {**job, "gpu_count": count}

    def pending_job(self, sdk: PlatformSDK) -> Job:
        holder = sdk.create_job(**self.gpu_job(self.job("sleep 600"), 2))
        eventually(lambda: holder.refresh().status == "Running")
        asked = self.gpu_job(self.counted_job("true"), 1)
        waiting = sdk.create_job(**asked, when_busy="wait")
        eventually(lambda: "waiting for GPUs" in waiting.refresh().message)
        return waiting

    def snapshot(self) -> object:
        """The containers of this lab, in full."""
        ids = sorted(self._containers("{{.ID}}"))
        described = json.loads(self.engine.docker("inspect", *ids)) if ids else []
        for container in described:
            container["Mounts"].sort(key=lambda mount: mount["Destination"])
        return described

    def submission_steps(self) -> dict[str, str]:
        arm = (
            f"{DIE}from tao_sdk.platforms.docker.containers import Launcher\n"
            "real = {'create': Launcher.create, 'start': Launcher.start}\n"
        )
        after = "Launcher.{0} = lambda *a: (real['{0}'](*a), die())[0]"
        return {
            "before the container": f"{arm}Launcher.create = die",
            "container made": arm + after.format("create"),
            "before the start": f"{arm}Launcher.start = die",
            "container started": arm + after.format("start"),
        }

    @contextlib.contextmanager
    def unreachable(self) -> Iterator[None]:
        with self.proxy.cut():
            yield

    def forget(self, job: Job, *, with_results: bool) -> None:
        name = f"tao-job-{job.id}"
        eventually(
            lambda: "exited" in self.engine.docker("inspect", "-f", "{{.State.Status}}", name)
        )
        self.engine.docker("rm", name)
        if with_results:
            (self.results / job.id / "tao_result.json").unlink()

    def readable_artefacts(self) -> Iterable[tuple[str, bytes]]:
        yield from files_under(self.folder)
        yield "the engine's log", self.engine.log.read_bytes()
        for container in self._containers("{{.ID}}"):
            described = json.loads(self.engine.docker("inspect", container))[0]
            # The environment is where Docker keeps what a container must know: documented.
            described["Config"].pop("Env")
            yield f"container {container}", json.dumps(described).encode()

    def _containers(self, form: str) -> list[str]:
        volume = f"volume={self.results}"
        return self.engine.docker("ps", "-a", "--filter", volume, "--format", form).split()

    def end_all(self) -> None:
        """Whatever a test left is removed."""
        self.engine.remove_all(f"volume={self.results}")
        for gpu in self.gpus.split(","):
            self.engine.remove_all(f"label=tao-sdk-gpu-lease={self.gpu_key.format(gpu)}")
        self.proxy.close()
