"""The pure parts: container config, users, GPUs, states, images."""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from tao_sdk.errors import CapacityError, UnknownOptionError, ValidationError
from tao_sdk.models import JobState
from tao_sdk.platforms.common.gpu_choice import choose_gpus
from tao_sdk.platforms.common.option_checks import check_size
from tao_sdk.platforms.docker import config, gpus, images, users
from tao_sdk.platforms.docker.options import DockerOptions, check_mounts
from tao_sdk.platforms.docker.status import Census, Container, interpret
from tao_sdk.platforms.gpus.discovery import Gpu
from tao_sdk.platforms.request import JobRequest, build_request

NOW = datetime(2026, 1, 2, tzinfo=timezone.utc)
INFO = {"MemTotal": 64 << 30, "SecurityOptions": ["name=seccomp"], "KernelVersion": "6.1.0"}
TEGRA = {**INFO, "KernelVersion": "5.15.148-tegra"}


def request(**keywords: Any) -> JobRequest:
    asked: dict[str, Any] = {"image": "img", "command": "true", "gpu_count": 0, "env_vars": None}
    named = {name: keywords.pop(name) for name in tuple(asked) if name in keywords}
    return build_request(DockerOptions, **{**asked, **named}, keywords=keywords, platform="docker")


def body(asked: JobRequest, user: users.ContainerUser | None = None) -> dict[str, Any]:
    given = config.ContainerSettings(
        "job-1",
        "token",
        "net",
        user or users.ContainerUser(),
        INFO,
        credentials={"HF_TOKEN": "hf-secret"},
        runner={},
        stop_seconds=10,
    )
    return config.container_config(asked, given)


# ---------------------------------------------------------------------- container config


@pytest.mark.seed("004.8")
def test_shared_memory_is_sized_and_the_engine_removes_nothing() -> None:
    made = body(request())["HostConfig"]
    assert made["ShmSize"] == 32 << 30
    assert made["AutoRemove"] is False
    assert made["Init"] is True
    assert body(request(shm_size="16g"))["HostConfig"]["ShmSize"] == 16 << 30
    assert body(request(memory="8g"))["HostConfig"]["ShmSize"] == 4 << 30
    assert "ShmSize" not in body(request(ipc="host"))["HostConfig"]


@pytest.mark.seed("004.7")
def test_control_values_are_labels_never_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("BACKEND", "HOST_PLATFORM", "MONGOSECRET", "DOCKER_HOST", "DOCKER_NETWORK"):
        monkeypatch.setenv(name, "control")
    made = body(request(env_vars={"MINE": "x"}))
    names = {entry.partition("=")[0] for entry in made["Env"]}
    assert names == {"MINE", "HF_TOKEN", "NVIDIA_VISIBLE_DEVICES", "TAO_JOB_ID", "TAO_ATTEMPT"}
    assert made["Labels"]["tao-sdk-backend"] == "local-docker"
    assert made["Labels"]["tao-sdk-job-id"] == "job-1"


def test_a_plan_shows_names_of_secrets_only() -> None:
    made = body(request(env_vars={"TOKEN": "very-secret-value"}))
    text = config.shown(made, frozenset({"TOKEN", "HF_TOKEN"}))
    assert "very-secret-value" not in text
    assert "hf-secret" not in text
    assert "TOKEN=[secret]" in text
    assert json.loads(text)["Cmd"] == made["Cmd"]


@pytest.mark.seed("000.13")
def test_results_mount_sets_the_results_root() -> None:
    assert "TAO_RESULTS_ROOT=/results" in body(request(mounts=["/data/out:/results"]))["Env"]
    for other in ("/data/out:/results:ro", "/data/out:/elsewhere"):
        env = body(request(mounts=[other]))["Env"]
        assert not any(entry.startswith("TAO_RESULTS_ROOT") for entry in env)


def test_limits_and_working_directory() -> None:
    made = body(request(cpus=1.5, memory="2g", cwd="/w", ulimits={"nofile": 1024}))
    host = made["HostConfig"]
    assert (host["NanoCpus"], host["Memory"], made["WorkingDir"]) == (1_500_000_000, 2 << 30, "/w")
    assert {"Name": "nofile", "Soft": 1024, "Hard": 1024} in host["Ulimits"]


@pytest.mark.seed("004.10")
def test_mounts_in_every_form() -> None:
    found = check_mounts(
        "mounts",
        ["/a:/b:ro", "vol:/v", "file:///data", {"source": "/s", "target": "/t", "read_only": True}],
    )
    assert [(m.source, m.target, m.read_only) for m in found] == [
        ("/a", "/b", True),
        ("vol", "/v", False),
        ("/data", "/data", False),
        ("/s", "/t", True),
    ]


@pytest.mark.parametrize(
    "mount", ["s3://bucket/x:/data", "./here:/data", "/a:data", "~/x:/data", ["/a:/x", "/b:/x"]]
)
def test_mounts_that_cannot_be_right(mount: Any) -> None:
    with pytest.raises(ValidationError, match="mounts"):
        check_mounts("mounts", mount)


def test_sizes() -> None:
    assert [check_size("x", text) for text in ("1k", "2m", "1.5g", 7)] == [
        1024,
        2 << 20,
        3 << 29,
        7,
    ]
    for wrong in ("much", "0g", -1, True):
        with pytest.raises(ValidationError, match="x"):
            check_size("x", wrong)


def test_unknown_keywords_are_named() -> None:
    with pytest.raises(UnknownOptionError, match="did you mean 'mounts'"):
        request(mount=["/a:/b"])


# ---------------------------------------------------------------------- users

ME = users.Caller(1000, 1000, (1000, 44), "me")
ROOT = users.Caller(0, 0, (0,), "root")


def choose(caller: users.Caller, **keywords: Any) -> users.ContainerUser:
    facts = {"local": True, "results": True, "info": INFO}
    facts.update({name: keywords.pop(name) for name in tuple(facts) if name in keywords})
    return users.choose(DockerOptions(**keywords), caller, **facts)  # type: ignore[arg-type]  # keywords of several types


def test_results_belong_to_whoever_asked() -> None:
    chosen = choose(ME)
    assert (chosen.user, chosen.groups) == ("1000:1000", ("44",))
    assert chosen.env["HOME"] == users.HOME
    assert chosen.env["HF_HOME"].startswith(users.HOME)


def test_root_runs_as_the_image_says() -> None:
    """Seen on real engines: the reference refuses a /results mount when the caller is root."""
    assert choose(ROOT) == users.ContainerUser()


def test_who_needs_no_mapping() -> None:
    assert choose(ME, results=False) == users.ContainerUser()
    assert choose(ME, run_as_user=False) == users.ContainerUser()
    rootless = {**INFO, "SecurityOptions": ["name=seccomp", "name=rootless"]}
    assert choose(ME, info=rootless) == users.ContainerUser()
    assert choose(ME, results=False, run_as_user=True).user == "1000:1000"
    assert choose(ME, container_user="2000:3000").user == "2000:3000"


def test_remote_users_are_not_guessed() -> None:
    remote = choose(ME, local=False)
    assert (remote.user, "container_user=" in remote.note) == ("", True)
    with pytest.raises(ValidationError, match="container_user"):
        choose(ME, local=False, run_as_user=True)


# ---------------------------------------------------------------------- GPUs

FOUR = [Gpu(str(n), f"GPU-{n}", used_mib=used) for n, used in enumerate((40_000, 2, 3, 5))]


@pytest.mark.seed("004.6", "004.9")
def test_gpus_by_count_by_id_all_and_none() -> None:
    free, count = choose_gpus(FOUR, gpus.request_of(request(gpu_count=2)), gpus.HOST)
    assert ([gpu.index for gpu in free], count) == (["1", "2", "3", "0"], 2), "idle ones first"
    chosen, count = choose_gpus(
        FOUR, gpus.request_of(request(gpu_count=1, gpu_ids=[3, 0])), gpus.HOST
    )
    assert ([gpu.index for gpu in chosen], count) == (["3", "0"], 2)
    assert choose_gpus(FOUR, gpus.request_of(request(gpu_count=-1)), gpus.HOST)[1] == 4
    assert not gpus.request_of(request(gpu_count=0)).any
    assert "NVIDIA_VISIBLE_DEVICES=void" in body(request(gpu_count=0))["Env"]


@pytest.mark.parametrize("asked", [{"gpu_count": 5}, {"gpu_ids": [7]}])
def test_more_than_there_is(asked: dict[str, Any]) -> None:
    with pytest.raises(CapacityError, match="has 4"):
        choose_gpus(FOUR, gpus.request_of(request(**{"gpu_count": 1, **asked})), gpus.HOST)


@pytest.mark.seed("004.9")
def test_device_requests_and_tegra() -> None:
    made = gpus.with_gpus(body(request(gpu_count=2)), [FOUR[2], FOUR[1]], INFO)
    [asked] = made["HostConfig"]["DeviceRequests"]
    assert (asked["DeviceIDs"], asked["Capabilities"]) == (["1", "2"], [["gpu"]])
    jetson = gpus.with_gpus(body(request(gpu_count=1)), [FOUR[0]], TEGRA)
    assert jetson["HostConfig"]["Runtime"] == "nvidia"
    assert "DeviceRequests" not in jetson["HostConfig"]
    assert "NVIDIA_VISIBLE_DEVICES=0" in jetson["Env"]
    assert "NVIDIA_DRIVER_CAPABILITIES=all" in jetson["Env"]


def test_the_choice_of_gpus_is_not_made_twice() -> None:
    with pytest.raises(ValidationError, match=r"env_vars\.NVIDIA_VISIBLE_DEVICES"):
        gpus.request_of(request(gpu_count=1, env_vars={"NVIDIA_VISIBLE_DEVICES": "0"}))
    with pytest.raises(ValidationError, match="make them agree"):
        gpus.request_of(request(gpu_count=3, gpu_ids=[0, 1]))


# ---------------------------------------------------------------------- states


@pytest.mark.seed("004.11")
@pytest.mark.parametrize(
    ("state", "status", "expected"),
    [
        ("created", "Created", JobState.PENDING),
        ("running", "Up 2 minutes", JobState.RUNNING),
        ("restarting", "Restarting (1) 3 seconds ago", JobState.RUNNING),
        ("paused", "Up 3 minutes (Paused)", JobState.PAUSED),
        ("exited", "Exited (0) 5 seconds ago", JobState.COMPLETE),
        ("exited", "Exited (137) About an hour ago", JobState.ERROR),
        ("dead", "Dead", JobState.ERROR),
    ],
)
def test_states(state: str, status: str, expected: JobState) -> None:
    seen = interpret(Container("id", "name", state, status, 0, {}), canceled=False)
    assert seen is not None
    assert seen.state is expected


@pytest.mark.parametrize(
    ("status", "ago"),
    [
        ("Exited (0) Less than a second ago", timedelta()),
        ("Exited (0) 1 second ago", timedelta(seconds=1)),
        ("Exited (137) 42 seconds ago", timedelta(seconds=42)),
        ("Exited (1) About a minute ago", None),
        ("Exited (1) 3 weeks ago", None),
        ("Dead", None),
    ],
)
def test_an_end_is_as_exact_as_the_list_or_not_known(status: str, ago: timedelta | None) -> None:
    """It was read from "3 weeks ago"."""
    container = Container("id", "name", "exited", status, 1_600_000_000, {})
    assert container.ended_at(NOW) == (None if ago is None else NOW - ago)
    seen = interpret(container, canceled=False)
    assert seen is not None
    assert (seen.started_at, seen.ended_at) == ("2020-09-13T12:26:40+00:00", "")


def test_canceled_and_vanishing() -> None:
    ended = Container("id", "name", "exited", "Exited (0) 1 second ago", 0, {})
    seen = interpret(ended, canceled=True)
    assert seen is not None
    assert (seen.state, seen.exit_code) == (JobState.CANCELED, 0)
    assert interpret(Container("id", "n", "removing", "", 0, {}), canceled=False) is None


def test_census_tells_jobs_queue_and_leases_apart() -> None:
    def entry(name: str, **labels: str) -> dict[str, Any]:
        named = {label.replace("_", "-"): value for label, value in labels.items()}
        return {"Id": "i", "Names": [f"/{name}"], "State": "created", "Labels": named}

    census = Census.take(
        [
            entry("tao-job-a", tao_sdk_job_id="a"),
            entry("tao-queued-b", tao_sdk_job_id="b", tao_sdk_queued="true"),
            entry("tao-gpu-0", tao_sdk_job_id="a", tao_sdk_gpu_lease="GPU-0"),
            entry("made-of-a-job", tao_sdk_job_id="c"),
            entry("tao-job-"),
        ]
    )
    assert (list(census.jobs), list(census.queued), len(census.leases_of("a"))) == (["a"], ["b"], 1)


# ---------------------------------------------------------------------- images


@pytest.mark.parametrize(
    ("image", "registry", "repository", "tag"),
    [
        ("ubuntu", "docker.io", "ubuntu", "latest"),
        ("nvcr.io/nvidia/tao:6.26.3-pyt", "nvcr.io", "nvcr.io/nvidia/tao", "6.26.3-pyt"),
        ("127.0.0.1:5000/a/b", "127.0.0.1:5000", "127.0.0.1:5000/a/b", "latest"),
        ("user/image@sha256:abc", "docker.io", "user/image", "sha256:abc"),
    ],
)
def test_image_names(image: str, registry: str, repository: str, tag: str) -> None:
    assert images.registry_of(image) == registry
    assert images.split_tag(image) == (repository, tag)


@pytest.mark.seed("004.3")
def test_whose_name_a_pull_goes_by(monkeypatch: pytest.MonkeyPatch) -> None:
    def account(registry: str) -> dict[str, str] | None:
        return images.credentials(registry)

    def stored(registry: str) -> dict[str, Any] | None:
        return {"Username": "me", "Password": "mine"} if registry == "other.io" else None

    monkeypatch.setattr(images, "registry_credentials", stored)
    monkeypatch.delenv("DOCKER_USERNAME", raising=False)
    monkeypatch.delenv("NGC_KEY", raising=False)
    assert account("nvcr.io") is None
    monkeypatch.setenv("NGC_KEY", "ngc-key")
    found = account("nvcr.io")
    assert found is not None
    assert (found["username"], found["password"]) == ("$oauthtoken", "ngc-key")
    monkeypatch.setenv("DOCKER_USERNAME", "somebody")
    assert (account("nvcr.io") or {})["username"] == "somebody"
    other = account("other.io")
    assert other is not None
    assert (other["username"], other["password"]) == ("me", "mine"), "the key is NGC's only"
    assert account("docker.io") is None


def test_parts_of_a_gpu_are_in_no_list() -> None:
    listed = [Gpu("0", "GPU-a"), Gpu("1", "GPU-b")]
    part = "MIG-c7384736-a75d-5afc-978f-d2f1294409fd"
    wanted = gpus.GpuRequest(1, (part,))
    found, count = choose_gpus(gpus.with_unlisted(listed, wanted), wanted, gpus.HOST)
    assert (found, count) == ([Gpu(part, part)], 1)
    given = gpus.with_gpus({"Labels": {}, "HostConfig": {}}, found, INFO)
    assert given["HostConfig"]["DeviceRequests"][0]["DeviceIDs"] == [part]
    other = gpus.GpuRequest(1, ("7",))
    with pytest.raises(CapacityError, match="has no GPU 7"):
        choose_gpus(gpus.with_unlisted(listed, other), other, gpus.HOST)
    assert gpus.with_unlisted([], other) == []
    assert gpus.with_unlisted(None, other) == [Gpu("7", "7")]


def test_pull_progress() -> None:
    lines = [
        {"status": "Pulling from lab/image", "id": "1"},
        {"status": "Pulling fs layer", "id": "aaa"},
        {"status": "Already exists", "id": "bbb"},
        {"status": "Downloading", "id": "aaa", "progressDetail": {"current": 5, "total": 10}},
        {"status": "Pull complete", "id": "aaa"},
    ]
    seen = list(images.read_progress("x", lines))
    assert str(seen[-2]) == "pulling x: 50%, 1 of 2 layers"
    assert (seen[-1].layers_done, seen[-1].done_bytes) == (2, 10)
