"""Preflight of a real Docker daemon: of this machine, and of another one over ssh."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from launches import Broken, Launch, assert_names_it, assert_passes, broken, isolate, write_data

from lab.docker import Engine, private_engine
from lab.docker.images import BASH, NO_SHELL, NVIDIA_SMI_H100, SMOKE, busybox_root, load
from lab.docker.ssh_server import SshServer
from tao_sdk.platforms.docker.client import DockerClient

COSMOS = "registry.example/cosmos-rl:1"


class DockerLaunch(Launch):
    """Data in a folder of this machine, and a driver that lists GPUs."""

    key = "GPU-lab"

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path, engine: Engine) -> None:
        self.engine = engine
        self.data = folder / "data"
        write_data(self.data)
        super().__init__(
            monkeypatch,
            folder,
            platform="local-docker",
            container_image=SMOKE,
            paths={
                "train_annotation": f"file://{self.data}/annotations.json",
                "train_media": str(self.data / "media"),
            },
            required_fields={"train_annotation": ("video_fps",)},
            effective_batch={"train_annotation": (3, 4)},
            min_gpu_memory_gb=80,
            gpu_count=2,
        )

    def driver(self, program: str) -> None:
        """What nvidia-smi of this machine does."""
        tools = self.folder / "bin"
        tools.mkdir(exist_ok=True)
        (tools / "nvidia-smi").write_text(program)
        (tools / "nvidia-smi").chmod(0o755)
        self.monkeypatch.setenv("PATH", str(tools), prepend=":")


@pytest.fixture
def launch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: Engine) -> DockerLaunch:
    isolate(monkeypatch, tmp_path)
    monkeypatch.setenv("DOCKER_HOST", engine.url)
    launch = DockerLaunch(monkeypatch, tmp_path, engine)
    # No other test of this engine may lease the same ones.
    launch.key = f"GPU-{uuid.uuid4().hex[:8]}"
    launch.driver(NVIDIA_SMI_H100.replace("GPU-lab", launch.key))
    return launch


@pytest.fixture
def remote(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: Engine, ssh_to_engine: SshServer
) -> DockerLaunch:
    """The same daemon behind ssh: nothing of this machine is its own, as far as one can tell."""
    isolate(monkeypatch, tmp_path)
    monkeypatch.setenv("PATH", ssh_to_engine.client_path)
    launch = DockerLaunch(monkeypatch, tmp_path, engine)
    launch.ask(platform="remote-docker", docker_host=ssh_to_engine.url(), smoke_image=SMOKE)
    return launch


@pytest.mark.seed("001.11", "004.4")
def test_all_is_well(launch: DockerLaunch) -> None:
    found = assert_passes(launch.run())
    assert found["docker.runtime"].status == "passed"
    assert found["gpu.driver"].message == "driver 580.65.06"
    assert found["docker.smoke"].message == (
        f"a container of {SMOKE} sees 3 GPUs, and was removed again"
    )
    assert found["gpu.architecture"].details["host_sms"] == ["sm_90"]
    assert found["gpu.memory"].message == "85.5 GB per GPU at least"
    assert found["gpu.free"].details == {
        "free": ["1", "2"],
        "busy": {"0": "40000 of 81559 MiB in use"},
        "chosen": ["1", "2"],
    }
    assert "GPU 0: 40000 of 81559 MiB in use; free: 1, 2; chosen: 1, 2" in (
        found["gpu.free"].message
    )
    assert found["fields:train_annotation"].message == "video_fps in 12 of 12 records"


@pytest.mark.seed("001.11", "004.4")
def test_all_is_well_on_another_machine(remote: DockerLaunch) -> None:
    found = assert_passes(remote.run())
    assert "gpu.driver" not in found, "the driver of this machine says nothing about that one"
    assert found["docker.smoke"].status == "passed"
    assert found["gpu.count"].message == "3 x NVIDIA H100 80GB HBM3 (79.6 GiB, sm_90)"
    assert found["fields:train_annotation"].message == "video_fps in 12 of 12 records"
    assert found["batch:train_annotation"].status == "passed"
    assert found["path:train_media"].message.endswith("media: a folder")


def test_a_job_without_gpus_needs_none(launch: DockerLaunch) -> None:
    launch.driver("#!/bin/sh\nexit 9\n")
    launch.ask(gpu_count=0, container_image=NO_SHELL)
    found = assert_passes(launch.run())
    assert "docker.smoke" not in found


def test_an_image_that_is_not_there_yet_is_worth_a_warning(launch: DockerLaunch) -> None:
    launch.ask(container_image="registry.example/not/yet:1", smoke_image=SMOKE)
    found = assert_passes(launch.run())
    assert found["docker.image"].status == "warning"
    assert "the launch pulls it first" in found["docker.image"].message


def test_little_memory_is_worth_a_warning(launch: DockerLaunch) -> None:
    launch.ask(low_vram_threshold_gb=100.0)
    assert assert_passes(launch.run())["gpu.memory"].status == "warning"


def test_gpus_that_jobs_have_are_told(launch: DockerLaunch) -> None:
    labels = ["--label", "tao-toolkit=true", "--label", f"tao-sdk-gpu-keys={launch.key}-1"]
    words = ["run", "-d", "--network", "none", *labels, SMOKE, "sleep", "600"]
    container = launch.engine.docker(*words).strip()
    try:
        found = assert_passes(launch.run())
    finally:
        launch.engine.docker("rm", "-f", container)
    assert found["gpu.free"].status == "warning"
    assert found["gpu.free"].details["busy"]["1"] == "leased to a job"
    assert found["gpu.free"].details["free"] == ["2"]


def _image(name: str, program: str) -> Callable[[DockerLaunch], None]:
    def change(launch: DockerLaunch) -> None:
        root = busybox_root({"bin/nvidia-smi": (program.encode(), 0o755)})
        load(launch.engine, name, root)
        launch.ask(smoke_image=name)

    return change


def _without_runtime(launch: DockerLaunch) -> None:
    """As the daemon of a machine without the toolkit tells about itself."""
    told = json.loads(launch.engine.docker("info", "--format", "{{json .}}"))
    told["Runtimes"] = {"runc": {"path": "runc"}}
    launch.monkeypatch.setattr(DockerClient, "info", told, raising=False)


def _lacking(launch: DockerLaunch) -> None:
    (launch.data / "annotations.json").write_text(json.dumps([{"video": "a"}] * 12))


def _ask(**changes: object) -> Callable[[Launch], None]:
    return lambda launch: launch.ask(**changes)


@pytest.mark.seed("001.9", "001.11", "004.4")
@broken(
    Broken(
        "daemon away",
        lambda it: it.set("DOCKER_HOST", "unix:///no/such.sock"),
        "docker.daemon",
        "does not answer",
    ),
    Broken(
        "not a daemon's address",
        lambda it: it.set("DOCKER_HOST", "carrier-pigeon://loft"),
        "docker.host",
        "is not the address of a Docker daemon",
    ),
    Broken("no NVIDIA runtime", _without_runtime, "docker.runtime", "nvidia-ctk runtime configure"),
    Broken(
        "driver broken",
        lambda it: it.driver("#!/bin/sh\necho 'Driver/library mismatch' >&2\nexit 18\n"),
        "gpu.driver",
        "Driver/library mismatch",
    ),
    Broken("smoke image missing", _ask(smoke_image="no/such:1"), "docker.smoke", "docker pull"),
    Broken(
        "container sees no GPU",
        _image("tao-lab/blind:1", "#!/bin/sh\necho 'No devices were found'\nexit 6\n"),
        "docker.smoke",
        "No devices were found",
    ),
    Broken("image without nvidia-smi", _ask(smoke_image=NO_SHELL), "docker.smoke", "nvidia-smi"),
    Broken("several nodes", _ask(num_nodes=2), "nodes", "Docker runs a job on one machine"),
    Broken("too few GPUs", _ask(gpu_count=4), "gpu.count", "GPUs needed: 4; there: 3"),
    Broken("too little memory", _ask(min_gpu_memory_gb=100), "gpu.memory", "85.5 GB"),
    Broken(
        "image for other GPUs",
        _ask(image_supported_sms=("8.0", "sm_100")),
        "gpu.architecture",
        "does not support sm_90, only sm_80, sm_100",
    ),
    Broken(
        "kernels for other GPUs",
        _ask(gpu_arch_allowlist={"flash-attention": ("compute_80",)}),
        "gpu.allowlist:flash-attention",
        "does not support sm_90",
    ),
    Broken(
        "image never pulled",
        lambda it: (it.set("DOCKER_PULL_POLICY", "never"), it.ask(container_image=COSMOS)),
        "docker.image",
        "DOCKER_PULL_POLICY is never",
    ),
    Broken(
        "media missing",
        lambda it: it.path("train_media", it.data / "nothing"),
        "path:train_media",
        "is not there, seen from this machine",
    ),
    Broken("field missing", _lacking, "fields:train_annotation", "and 7 more"),
    Broken(
        "batch too large",
        _ask(effective_batch={"train_annotation": (4, 4)}),
        "batch:train_annotation",
        "12 records in 4 shards are 3 each",
    ),
    Broken(
        "fields of nothing",
        _ask(required_fields={"train_annotations": ("x",)}),
        "fields:train_annotations",
        "no path with the label",
    ),
)
def test_the_one_thing_broken_is_named(launch: DockerLaunch, variant: Broken) -> None:
    if variant.what == "image never pulled":
        launch.ask(smoke_image=SMOKE)
    assert_names_it(launch, variant)


@pytest.mark.seed("004.4")
def test_a_known_limit_of_an_image_blocks(launch: DockerLaunch) -> None:
    old = NVIDIA_SMI_H100.replace("9.0", "8.6").replace("H100 80GB HBM3", "A40")
    launch.driver(old)
    launch.ask(container_image=COSMOS, smoke_image=SMOKE)
    [found] = launch.run().failures
    assert found.name == "gpu.architecture"
    assert "does not support sm_86, only sm_80, sm_90, sm_100, sm_120" in found.message


@pytest.mark.seed("001.11", "004.4")
@broken(
    Broken(
        "daemon of this machine",
        lambda it: it.ask(docker_host=it.engine.url),
        "docker.host",
        "DOCKER_HOST=ssh://user@gpu-host",
    ),
    Broken(
        "nobody answers",
        lambda it: it.ask(docker_host="ssh://root@127.0.0.1:1"),
        "docker.daemon",
        "BatchMode=yes",
    ),
    Broken(
        "media missing there",
        lambda it: it.path("train_media", it.data / "nothing"),
        "path:train_media",
        "seen from the Docker host",
    ),
    Broken(
        "volume missing there",
        lambda it: it.path("train_media", "docker-volume://no-such-volume/x"),
        "path:train_media",
        "is not there",
    ),
    Broken("field missing there", _lacking, "fields:train_annotation", "has no video_fps"),
    Broken("relative path", lambda it: it.path("x", "data"), "path:x", "not an absolute path"),
)
def test_the_one_thing_broken_on_another_machine(remote: DockerLaunch, variant: Broken) -> None:
    assert_names_it(remote, variant)
    assert "no-such-volume" not in remote.engine.docker("volume", "ls", "-q")


# ---------------------------------------------------------------------- what remains


@pytest.fixture
def own_engine() -> Iterator[Engine]:
    with private_engine() as engine:
        yield engine


def _inventory(engine: Engine) -> dict[str, list[str]]:
    return {
        what: sorted(engine.docker(*words).split())
        for what, words in {
            "containers": ("ps", "-aq", "--no-trunc"),
            "networks": ("network", "ls", "-q", "--no-trunc"),
            "images": ("images", "-aq", "--no-trunc"),
            "volumes": ("volume", "ls", "-q"),
        }.items()
    }


def test_nothing_remains_on_the_daemon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_engine: Engine
) -> None:
    isolate(monkeypatch, tmp_path)
    launch = DockerLaunch(monkeypatch, tmp_path, own_engine)
    launch.driver(NVIDIA_SMI_H100)
    launch.set("DOCKER_HOST", own_engine.url)
    files = set(tmp_path.rglob("*"))
    before = _inventory(own_engine)
    assert_passes(launch.run())
    # Paths as on another machine: through containers that never run.
    monkeypatch.setattr("tao_sdk.platforms.docker.endpoint.Endpoint.local", False)
    launch.ask(platform="remote-docker")
    launch.path("other", "docker-volume://nothing")
    report = launch.run()
    assert [check.name for check in report.failures] == ["path:other"]
    assert _inventory(own_engine) == before
    assert set(tmp_path.rglob("*")) == files
    # Not even where the container cannot be started.
    launch.ask(smoke_image=BASH, container_image=NO_SHELL)
    own_engine.stop()
    own_engine.start(stub=False)
    assert "docker.smoke" in [check.name for check in launch.run().failures]
    assert _inventory(own_engine)["containers"] == before["containers"]
