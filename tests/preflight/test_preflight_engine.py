"""How checks are run and reported, whatever the platform."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from launches import BANK, CANARIES, Launch, assert_passes, isolate, names_in, write_data

from tao_sdk.preflight import Check, PreflightReport, PreflightRequest, engine, run_preflight
from tao_sdk.preflight.checks import Task, failed, passed
from tao_sdk.skills import MissingNameError, SkillBank
from tao_sdk.skills.layout import PACKAGED_BANK


@pytest.fixture
def launch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Launch:
    isolate(monkeypatch, tmp_path)
    monkeypatch.setenv("TAO_LOCAL_GPUS", "2")
    write_data(tmp_path / "data")
    paths = {"train_annotation": str(tmp_path / "data" / "coco.json")}
    fields = {"train_annotation": ("bbox",)}
    return Launch(monkeypatch, tmp_path, platform="local", paths=paths, required_fields=fields)


def test_this_machine(launch: Launch) -> None:
    before = names_in(launch.folder)
    found = assert_passes(launch.run())
    assert found["gpu.free"].details["chosen"] == ["0"]
    assert found["fields:train_annotation"].status == "passed"
    assert names_in(launch.folder) == before
    launch.ask(gpu_count=3)
    assert [check.name for check in launch.run().failures] == ["gpu.count"]
    launch.ask(gpu_count=1, num_nodes=2)
    assert_passes(launch.run())
    launch.ask(num_nodes=3)
    [found] = launch.run().failures
    assert found.message == "GPUs needed: 3; there: 2", "nodes are processes of one machine"
    launch.ask(gpu_count=None)
    launch.set("TAO_LOCAL_GPUS", None)
    launch.set("PATH", str(launch.folder))
    assert [check.name for check in launch.run().failures] == ["gpu.count"]


@pytest.mark.seed("001.9")
def test_an_unknown_platform_is_an_error() -> None:
    with pytest.raises(MissingNameError, match="no platform 'mainframe'"):
        run_preflight(PreflightRequest(platform="mainframe"), BANK)


@pytest.mark.seed("001.9")
def test_access_that_nobody_can_prove_has_failed(tmp_path: Path) -> None:
    """A bank may have platforms that the SDK does not know."""
    folder = tmp_path / "skills" / "platform"
    folder.mkdir(parents=True)
    manifest = json.loads(
        (PACKAGED_BANK / "skills" / "platform" / "platforms.manifest.json").read_text()
    )
    record = {
        "name": "moonbase",
        "backend_type": "rocket",
        "required_credentials": [],
        "aliases": [],
    }
    manifest["platforms"] = [record]
    (folder / "platforms.manifest.json").write_text(json.dumps(manifest))
    (tmp_path / "skills" / "models").mkdir()
    bank = SkillBank(tmp_path)
    report = run_preflight(PreflightRequest(platform="moonbase", paths={"x": "/data"}), bank)
    assert {check.name for check in report.failures} == {"access", "path:x"}
    skipping = PreflightRequest(platform="moonbase", skip_platform_access=True, paths={"x": "/d"})
    assert run_preflight(skipping, bank).ok


def _tasks(monkeypatch: pytest.MonkeyPatch, *tasks: Task) -> PreflightReport:
    monkeypatch.setattr(engine, "platform_tasks", lambda *_: list(tasks))
    return run_preflight(PreflightRequest(platform="local"), BANK)


def test_a_check_that_crashes_is_a_failed_check(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", CANARIES["HF_TOKEN"])

    def crash() -> Iterator[Check]:
        yield passed("first", "fine")
        raise KeyError(f"oh no: {CANARIES['HF_TOKEN']}")

    report = _tasks(monkeypatch, Task("second", crash), Task("third", lambda: [passed("c", "d")]))
    assert [(check.name, check.status) for check in report.checks] == [
        ("first", "passed"),
        ("second", "failed"),
        ("c", "passed"),
    ]
    assert "KeyError" in report.checks[1].message
    assert CANARIES["HF_TOKEN"] not in json.dumps(report.as_json())


def test_checks_run_side_by_side_and_are_heard_as_they_come(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    heard: list[str] = []
    slow_may_end = threading.Event()

    def slow() -> Iterator[Check]:
        assert slow_may_end.wait(30), "the other one was not run beside it"
        yield passed("slow", "at last")

    def hear(check: Check) -> None:
        assert threading.current_thread() is threading.main_thread()
        heard.append(check.name)
        slow_may_end.set()

    tasks = [Task("slow", slow), Task("quick", lambda: [passed("quick", "at once")])]
    monkeypatch.setattr(engine, "platform_tasks", lambda *_: tasks)
    report = run_preflight(PreflightRequest(platform="local"), BANK, hear)
    assert heard == ["quick", "slow"]
    assert [check.name for check in report.checks] == ["slow", "quick"]


def test_secrets_are_nowhere_in_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_TOKEN", "my-own-secret-value")
    monkeypatch.setenv("NGC_KEY", CANARIES["NGC_KEY"])
    leak = f"x {CANARIES['NGC_KEY']} https://me:pass-word@host/ my-own-secret-value"
    found = failed("leak", leak, leak, inner={"deep": [leak]})
    monkeypatch.setattr(engine, "platform_tasks", lambda *_: [Task("leak", lambda: [found])])
    request = PreflightRequest(platform="local", model_credentials=("MY_TOKEN",))
    said = json.dumps(run_preflight(request, BANK).as_json())
    assert "x [secret]" in said
    for secret in (CANARIES["NGC_KEY"], "pass-word", "my-own-secret-value"):
        assert secret not in said


def test_a_presigned_address_is_not_even_its_own_label(launch: Launch) -> None:
    uri = "https://store.example/x?X-Amz-Signature=0123456789abcdef"
    launch.path(uri, uri)
    assert "0123456789abcdef" not in json.dumps(launch.run().as_json())


def test_what_others_say_does_not_steer_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    loud = failed("a", "\x1b[31mred\x1b[0m \x07bell\nline", "first\n  second\x1b[2J")
    report = _tasks(monkeypatch, Task("a", lambda: [loud]))
    assert (report.checks[0].message, report.checks[0].remedy) == (
        r"\x1b[31mred\x1b[0m \x07bell line",
        "first\n  second\\x1b[2J",
    )


def test_somebody_who_interrupts_is_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(
        engine, "platform_tasks", lambda *_: [Task("a", lambda: [passed("a", "b")])]
    )
    with pytest.raises(KeyboardInterrupt):
        run_preflight(PreflightRequest(platform="local"), BANK, stop)


def test_platforms_of_others_are_not_loaded() -> None:
    """Neither docker-py nor anything else that a platform needs and others do without."""
    program = (
        "import sys, tao_sdk.preflight\n"
        "from tao_sdk.preflight import PreflightRequest, run_preflight\n"
        "from tao_sdk.skills import SkillBank\n"
        f"bank = SkillBank({str(PACKAGED_BANK)!r})\n"
        "run_preflight(PreflightRequest('local', gpu_count=0), bank)\n"
        "print({'docker', 'requests', 'rich', 'tao_sdk.platforms.slurm.client'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.strip() == "set()", done.stderr
