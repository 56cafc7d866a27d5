"""Until the gate is open nothing is created: no file, no folder, no pull, no connection.

Files are compared before and after, what Python itself does is written down by an audit hook, and
the Docker daemon of the lab is asked what it has.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cli_runner import PATIENCE, SOURCE
from launch_bank import PatientBank

sys.path.append(str(Path(__file__).parents[1] / "conformance"))

from common_lab import isolated
from docker_lab import DockerLab

from lab.docker import Engine, private_engine
from lab.docker.images import BUSYBOX
from lab.docker.python_image import python_image
from tao_sdk import settings
from tao_sdk.launch import GateClosedError, LaunchPlan, examine, launch, prepare
from tao_sdk.launch.launching import platform_sdk
from tao_sdk.preflight.engine import PreflightReport

pytestmark = pytest.mark.seed("001.1")

AUDITED = """
import json, os, sys

CREATING = os.O_WRONLY | os.O_RDWR | os.O_CREAT
WATCHED = ("os.mkdir", "os.rename", "os.remove", "os.link", "os.symlink", "os.truncate",
           "socket.connect", "socket.bind", "socket.getaddrinfo", "subprocess.Popen",
           "os.posix_spawn", "os.fork", "os.exec", "sqlite3.connect", "urllib.Request")
seen = []

def note(event, arguments):
    if event == "open":
        path, _, flags = arguments
        if isinstance(flags, int) and flags & CREATING and path != os.devnull:
            seen.append(f"{event} {path}")
    elif event in WATCHED:
        seen.append(f"{event} {arguments[:1]}")

from tao_sdk.cli import main
sys.addaudithook(note)
code = main(sys.argv[2:])
found = json.dumps({"code": code, "seen": seen})
with open(sys.argv[1], "w") as file:
    file.write(found)
"""


class Someone:
    """A user with a home, a folder to work in, and nothing else."""

    def __init__(self, folder: Path) -> None:
        self._report = folder / "report.json"
        self.world = folder / "world"
        for name in ("home", "work", "tmp"):
            (self.world / name).mkdir(parents=True)
        names = {
            name
            for setting in settings.SETTINGS.values()
            for name in (setting.name, *setting.aliases)
        }
        self.environment = {
            **{name: value for name, value in os.environ.items() if name not in names},
            "HOME": str(self.world / "home"),
            "TMPDIR": str(self.world / "tmp"),
            # In a checkout the packed runner is kept here; an installed SDK brings it along.
            "XDG_CACHE_HOME": str(folder / "cache"),
            "TAO_SDK_STATE_DIR": str(self.world / "state"),
            "TAO_GPU_LEASE_DIR": str(self.world / "leases"),
            "PYTHONPATH": SOURCE,
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        self.environment.pop("SSH_AUTH_SOCK", None)

    def runs(self, *words: str) -> tuple[int, list[str], str]:
        """The exit code of `tao-sdk`, what it did beyond reading, and what it said."""
        ended = subprocess.run(
            [sys.executable, "-c", AUDITED, str(self._report), *words],
            cwd=self.world / "work",
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        assert self._report.exists(), ended.stderr
        found = json.loads(self._report.read_text())
        self._report.unlink()
        return found["code"], found["seen"], ended.stdout + ended.stderr

    def files(self) -> dict[str, tuple[int, float]]:
        return {
            str(path): (path.stat().st_size, path.stat().st_mtime)
            for path in sorted(self.world.rglob("*"))
        }


@pytest.fixture
def someone(tmp_path: Path) -> Someone:
    return Someone(tmp_path)


LUSTRE = ("--train-root", "/lustre/t", "--eval-root", "/lustre/e")
READY = ("--confirm-image", "--gpus", "1", "--automl", "off")
MISSING = {
    "everything": ("launch", "cosmos-rl"),
    "platform": ("launch", "cosmos-rl", *LUSTRE, *READY),
    "data": ("launch", "cosmos-rl", "-p", "local", *READY),
    "half of the data": ("launch", "cosmos-rl", "-p", "local", *LUSTRE[:2], *READY),
    "image": ("launch", "tiny-trainer", "-p", "local", "--gpus", "0"),
    "compute": ("launch", "tiny-trainer", "-p", "local", "--confirm-image"),
    "credentials of slurm": ("launch", "dino", "-p", "slurm", *LUSTRE, "--yes"),
    "credentials of the model": ("launch", "cosmos-rl", "-p", "local-docker", *LUSTRE, *READY),
    "keys of a store": ("launch", "dino", "-p", "kubernetes", "--train-root", "s3://b/t",
                        "--eval-root", "s3://b/e", "--yes"),
    "for a program": ("--json", "launch", "cosmos-rl", "-p", "slurm", "--yes"),
    "although a plan was asked for": ("launch", "cosmos-rl", "-p", "slurm", "--dry-run"),
}  # fmt: skip


@pytest.mark.parametrize("words", MISSING.values(), ids=MISSING)
def test_missing_input_leaves_no_trace(someone: Someone, words: tuple[str, ...]) -> None:
    before = someone.files()
    code, seen, said = someone.runs(*words)
    assert code == 2, said
    assert seen == []
    assert someone.files() == before


WRONG = {
    "unknown model": (2, ("launch", "nope")),
    "unknown platform": (2, ("launch", "dino", "-p", "nowhere")),
    "empty image": (2, ("launch", "dino", "--image", "")),
    "automl on": (2, ("launch", "dino", "--automl", "on")),
    "wrong spec key": (2, ("launch", "dino", "--set", "no.such.key=1")),
    "no such data": (1, ("launch", "tiny-trainer", "-p", "local", "--train-root", "/no", "--yes")),
}


@pytest.mark.parametrize(("expected", "words"), WRONG.values(), ids=WRONG)
def test_what_is_wrong_leaves_no_trace(
    someone: Someone, expected: int, words: tuple[str, ...]
) -> None:
    before = someone.files()
    code, seen, said = someone.runs(*words)
    assert code == expected, said
    assert [what for what in seen if not what.startswith("subprocess")] == []
    assert someone.files() == before


def test_a_dry_run_leaves_no_trace(someone: Someone) -> None:
    before = someone.files()
    words = ("launch", "tiny-trainer", "-p", "local", "--yes", "--dry-run")
    code, _, said = someone.runs(*words)
    assert code == 0
    assert said.startswith("tao-job-")
    assert someone.files() == before


def test_the_hook_sees_what_a_launch_makes(someone: Someone) -> None:
    """Otherwise the tests above would prove nothing."""
    bank = PatientBank(someone.world)
    bank.let_go()
    before = someone.files()
    code, seen, said = someone.runs(*bank.words("--no-watch", "--status-interval", "0.01"))
    assert code == 0, said
    assert any(what.startswith("sqlite3.connect") for what in seen)
    assert any(what.startswith("os.mkdir") for what in seen)
    assert someone.files() != before


# ---------------------------------------------------------------- Docker


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    """Of these tests alone, so that everything on it can be compared."""
    with private_engine() as engine:
        yield engine


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: Engine) -> Iterator[DockerLab]:
    with isolated(monkeypatch, DockerLab(tmp_path, engine)) as lab:
        yield lab


def daemon(lab: DockerLab) -> dict[str, list[str]]:
    """Everything that the daemon has."""
    lists = {"containers": "ps -aq", "images": "images -aq", "networks": "network ls -q",
             "volumes": "volume ls -q"}  # fmt: skip
    return {what: sorted(lab.engine.docker(*how.split()).split()) for what, how in lists.items()}


@pytest.fixture
def docker_plan(lab: DockerLab, monkeypatch: pytest.MonkeyPatch) -> LaunchPlan:
    monkeypatch.delenv("DOCKER_NETWORK", raising=False)
    bank = PatientBank(lab.folder)
    bank.let_go()
    return LaunchPlan(
        "patient", platform="local-docker", gpus=0, automl="off", image=BUSYBOX, bank=bank.root
    )


def no_preflight(*_: Any) -> PreflightReport:
    return PreflightReport(())


def test_a_closed_gate_leaves_nothing_on_the_daemon(
    lab: DockerLab, docker_plan: LaunchPlan
) -> None:
    before = daemon(lab)
    for changes in (
        {"gpus": None},
        {"image": None},
        {"image": "nvcr.io/my-org/private:1"},
        {"platform": "remote-docker", "image": None},
    ):
        plan = docker_plan.set(**changes)
        with pytest.raises(GateClosedError):
            launch(plan, state_file=lab.state_file)
    assert daemon(lab) == before
    assert not list(lab.folder.glob("*.db"))


def test_looking_and_planning_leave_nothing_on_the_daemon(
    lab: DockerLab, docker_plan: LaunchPlan
) -> None:
    before = daemon(lab)
    gate = examine(docker_plan)
    prepared = prepare(docker_plan, platform_sdk(docker_plan, lab.state_file))
    assert prepared.request.image == BUSYBOX
    assert daemon(lab) == before
    assert {condition.id for condition in gate.conditions if condition.state == "holds"} >= {
        "platform",
        "image",
        "compute",
    }


def test_an_open_gate_runs_the_job_in_its_container(
    lab: DockerLab, docker_plan: LaunchPlan
) -> None:
    data = lab.folder / "data"
    data.mkdir()
    (data / "file").write_text("seen in the container")
    mounts = [f"{lab.folder}:{lab.folder}", f"{data}:{data}:ro"]
    plan = docker_plan.set(options={"mounts": mounts}, image=python_image(lab.engine))
    before = daemon(lab)
    job = launch(plan, state_file=lab.state_file, preflight=no_preflight)
    assert daemon(lab) != before
    try:
        assert job.wait(timeout=PATIENCE).status == "Complete"
        assert "started" in lab.sdk().get_job_logs(job.id)
    finally:
        lab.sdk().cancel_job(job.id)
