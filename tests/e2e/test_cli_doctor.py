"""`tao-sdk doctor`: what it finds, and that it leaves no trace."""

from __future__ import annotations

import re
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli_runner import SOURCE, Cli, clean_cli, until
from test_cli_json import check
from test_cli_terminal import ESCAPE, at_terminal

from tao_sdk import JobStore
from tao_sdk.cli.checks.installation import EXTRAS
from tao_sdk.job_store import NewJob
from tao_sdk.platforms.brev.ledger import DELETED, KEPT, ORDERED, UNWANTED, Entry, ledger_of

CANARY = "canary-51f9c0"


@pytest.fixture
def cli(tmp_path: Path) -> Iterator[Cli]:
    with clean_cli(tmp_path) as made:
        made.environment["TERM"] = "xterm-256color"
        for name in ("NO_COLOR", "COLUMNS", "LINES"):
            made.environment.pop(name, None)
        yield made


def _tree(folder: Path) -> dict[str, object]:
    """Every file and folder with its mode and content."""
    return {
        str(path.relative_to(folder)): (
            stat.S_IMODE(path.lstat().st_mode),
            path.read_bytes() if path.is_file() else None,
        )
        for path in sorted(folder.rglob("*"))
    }


def _check(cli: Cli, name: str, *words: str, code: int = 0) -> list[dict[str, str]]:
    """The findings of that name."""
    [document] = cli.documents(*words, "doctor", code=code)
    found = check(document, "doctor")["checks"]
    for finding in found:
        assert set(finding) == {"section", "name", "level", "text", "todo"}
    return [finding for finding in found if finding["name"] == name]


# ---------------------------------------------------------------- no trace


def test_a_fresh_machine_is_left_as_it_was(cli: Cli, tmp_path: Path) -> None:
    cli.environment["TAO_LOCAL_GPUS"] = "2"
    out, err = cli.both("doctor")
    assert "none yet" in out
    assert "no problems" in err
    cli("--state", "mine.json", "doctor")
    assert list(tmp_path.iterdir()) == []


def test_a_used_machine_is_left_as_it_was(cli: Cli, tmp_path: Path) -> None:
    cli.environment["TAO_LOCAL_GPUS"] = "2"
    cli("run", "--no-watch", "--gpus", "1", "--", "true")
    cli("watch")
    before = _tree(tmp_path)
    cli("doctor")
    assert _tree(tmp_path) == before


@pytest.mark.parametrize("name", ["state", "state/jobs.db"])
def test_what_others_may_read_is_a_problem_and_stays_one(cli: Cli, name: str) -> None:
    cli("ls")
    path = cli.folder / name
    path.chmod(path.stat().st_mode | stat.S_IROTH)
    before = path.stat().st_mode
    out, err = cli.both("doctor", code=1)
    assert f"-> chmod {'600' if 'db' in name else '700'} {path}\n" in out
    assert "1 problem" in err
    assert path.stat().st_mode == before


# ---------------------------------------------------------------- installation


def test_nvidias_package_beside_ours_is_a_problem(cli: Cli) -> None:
    """Both distributions bring an import package `tao_sdk`."""
    other = cli.folder / "other"
    (other / "nvidia_tao_sdk-5.0.dist-info").mkdir(parents=True)
    (other / "nvidia_tao_sdk-5.0.dist-info" / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: nvidia-tao-sdk\nVersion: 5.0\n", encoding="utf-8"
    )
    (other / "tao_sdk").mkdir()
    (other / "tao_sdk" / "__init__.py").touch()
    cli.environment["PYTHONPATH"] = f"{SOURCE}:{other}"
    [found] = _check(cli, "nvidia-tao-sdk", code=1)
    assert found["level"] == "problem"
    assert "5.0" in found["text"]
    assert "pip uninstall nvidia-tao-sdk" in found["todo"]
    [copy] = [f for f in _check(cli, "another copy", code=1) if str(other) in f["text"]]
    assert copy["level"] == "note"


def test_version_and_place(cli: Cli) -> None:
    [version] = _check(cli, "version")
    assert sys.executable in version["text"]
    [place] = _check(cli, "imported from")
    assert place["text"] == str(Path(SOURCE).resolve() / "tao_sdk")


def test_the_extras_are_those_of_the_package() -> None:
    text = (Path(SOURCE).parent / "pyproject.toml").read_text(encoding="utf-8")
    table = text.partition("[project.optional-dependencies]\n")[2].partition("\n[")[0]
    declared = {
        extra: tuple(re.findall(r'"(\w+)[>\[]', packages))
        for extra, packages in re.findall(r"^(\w+) = \[(.*?)\]$", table, re.MULTILINE)
    }
    for name in ("all", "dev"):
        declared.pop(name, None)
    assert {extra: names for extra, names in declared.items() if names} == EXTRAS


def test_a_missing_extra_comes_with_the_command_that_installs_it(cli: Cli) -> None:
    for extra in EXTRAS:
        [found] = _check(cli, extra)[:1]
        assert found["section"] == "extras"
        if found["level"] == "note":
            assert found["todo"] == f"pip install 'tao-sdk[{extra}]'"
        else:
            assert found["text"] == "installed"


def test_jobs_of_kubernetes_do_without_the_official_client(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['kubernetes'] = None\n")
    cli.environment["PYTHONPATH"] = f"{tmp_path}:{SOURCE}"
    [found] = _check(cli, "kubernetes")[:1]
    assert found["level"] == "note"
    assert "installed without kubernetes (kubernetes: only the preflight commands" in found["text"]
    modules = (Path(SOURCE) / "tao_sdk" / "platforms" / "kubernetes").glob("[!_]*.py")
    imports = "; ".join(f"import tao_sdk.platforms.kubernetes.{path.stem}" for path in modules)
    subprocess.run([sys.executable, "-c", imports], env=cli.environment, check=True)


# ---------------------------------------------------------------- credentials and settings


def test_credentials_are_named_and_never_shown(cli: Cli) -> None:
    cli.environment.update(HF_TOKEN=CANARY, AWS_ACCESS_KEY_ID=CANARY, TAO_SDK_STATEDIR=CANARY)
    for name in ("ACCESS_KEY", "SECRET_KEY", "AWS_SECRET_ACCESS_KEY", "NGC_KEY"):
        cli.environment.pop(name, None)
    said = "".join(cli.both("doctor")) + "".join(cli.both("--json", "doctor"))
    assert CANARY not in said
    assert _check(cli, "HF_TOKEN")[0]["text"] == "set"
    assert _check(cli, "ACCESS_KEY")[0]["text"] == "set, as AWS_ACCESS_KEY_ID"
    absent, half = _check(cli, "SECRET_KEY")
    assert absent["level"] == "note"
    assert "SECRET_KEY" in absent["todo"]
    assert "ACCESS_KEY is set and SECRET_KEY is not" in half["text"]
    assert "https://" in _check(cli, "NGC_KEY")[0]["todo"]
    assert _check(cli, "TAO_SDK_STATEDIR")[0]["todo"] == "did you mean TAO_SDK_STATE_DIR?"


def test_a_setting_that_cannot_be_right_is_a_problem(cli: Cli) -> None:
    cli.environment["TAO_SDK_STORE_MODE"] = "turbo"
    out = cli("doctor", code=1)
    assert "TAO_SDK_STORE_MODE='turbo'" in out
    del cli.environment["TAO_SDK_STORE_MODE"]


# ---------------------------------------------------------------- state


def test_store_jobs_and_watcher(cli: Cli) -> None:
    job = cli.submit("--", "sleep", "300")
    until(lambda: cli.state_of(job) == "Running", "running")
    cli("run", "--no-watch", "--gpus", "0", "-c", "exit 3", code=3)
    [store] = _check(cli, "store")
    assert f"{cli.folder}/state/jobs.db (wal mode, " in store["text"]
    assert _check(cli, "jobs")[0]["text"] == "2 (1 Error, 1 Running)"
    assert _check(cli, "watcher")[0]["text"] == "none is running"
    assert _check(cli, "watching")[0]["todo"] == "tao-sdk watch -d"
    cli("watch", "-d")
    until(lambda: _check(cli, "watcher")[0]["text"] == "one is running", "watched")
    assert _check(cli, "watching") == []


def test_a_store_of_ones_own(cli: Cli) -> None:
    cli("--state", "mine.json", "ls")
    [store] = _check(cli, "store", "--state", "mine.json")
    assert f"{cli.folder}/mine.tao.db" in store["text"]
    assert "none yet" in _check(cli, "store")[0]["text"]


def test_a_file_that_is_no_store_is_a_problem(cli: Cli) -> None:
    (cli.folder / "mine.tao.db").write_text("not a database" * 20, encoding="utf-8")
    [found] = _check(cli, "check", "--state", "mine.json", code=1)[:1]
    assert found["section"] == "state"
    assert "not a job store" in found["text"]


def test_an_unsettled_submission_is_shown(cli: Cli) -> None:
    cli("ls")
    with JobStore(cli.folder / "state" / "jobs.db") as store:
        store.begin_submissions(
            [NewJob("half-way", "", "", "", backend_type="moonbase", token="", owner="")]
        )
    [found] = _check(cli, "submission")
    assert "half-way" in found["text"]
    assert found["todo"] == "tao-sdk status half-way"
    with JobStore(cli.folder / "state" / "jobs.db") as store:
        store.reject_submission("half-way", message="a test", failure={})


# ---------------------------------------------------------------- this machine


def test_folders_that_no_job_belongs_to_are_listed_and_kept(cli: Cli) -> None:
    known, forgotten = cli.submit("--", "true"), cli.submit("--", "true")
    cli("wait", known, forgotten)
    cli("rm", "-y", "--keep-results", forgotten)
    [found] = _check(cli, "folder")[-1:]
    folder = cli.folder / "state" / "local" / "jobs" / forgotten
    assert f"{folder} (Complete)" in found["text"]
    assert found["level"] == "note"
    assert folder.is_dir()
    assert known not in cli("doctor")


def test_gpus_and_who_has_them(cli: Cli) -> None:
    cli.environment["TAO_LOCAL_GPUS"] = "2"
    cli("run", "-d", "--no-watch", "--gpus", "1", "-c", "echo ready; sleep 300")
    until(lambda: cli("logs", "-") == "ready\n", "running")
    said = [_check(cli, f"GPU {index}")[0]["text"] for index in (0, 1)]
    assert sorted(text.rpartition(", ")[2] for text in said) == ["free", "leased to a job"]
    assert str(cli.folder / "leases") in _check(cli, "leases")[0]["text"]


def test_a_driver_that_does_not_answer_is_a_problem(cli: Cli) -> None:
    tools = cli.folder / "tools"
    tools.mkdir()
    (tools / "nvidia-smi").write_text("#!/bin/sh\necho no driver; exit 9\n", encoding="utf-8")
    (tools / "nvidia-smi").chmod(0o755)
    cli.environment["PATH"] = f"{tools}:{cli.environment['PATH']}"
    assert "nvidia-smi failed (9): no driver" in cli("doctor", code=1)


def test_programs_on_path(cli: Cli) -> None:
    tools = cli.folder / "tools"
    tools.mkdir()
    (tools / "brev").touch(mode=0o755)
    cli.environment["PATH"] = str(tools)
    assert _check(cli, "brev")[0]["text"] == str(tools / "brev")
    assert "not on PATH" in _check(cli, "kubectl")[0]["text"]


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_at_a_terminal_it_fits(cli: Cli, columns: int) -> None:
    seen = at_terminal(cli, "doctor", columns=columns)
    assert "\x1b[32m" in seen
    assert max(len(line) for line in ESCAPE.sub("", seen).splitlines()) <= columns


# ---------------------------------------------------------------- rented instances


def test_instances_that_nobody_uses(cli: Cli, tmp_path: Path) -> None:
    """Each with its age, its cost, and the command that deletes it; nothing is contacted."""
    cli("--state", "mine.json", "run", "--no-watch", "--gpus", "0", "--", "true")
    store = next(tmp_path.rglob("mine*.db"))
    ledger = ledger_of(store)
    day = time.time() - 24 * 3600
    ledger.order(Entry("tao-00000001", "no-such-job", "g5.xlarge", 1.5, day))
    ledger.order(Entry("tao-00000002", "j", "g5.xlarge", 1.5, day, state=KEPT, why="keep=True"))
    ledger.order(Entry("tao-00000003", "j", "g5.xlarge", None, day, state=UNWANTED, why="401"))
    ledger.order(Entry("tao-00000004", "j", "g5.xlarge", 1.5, day, state=DELETED, since=day))
    now = time.time()
    ledger.order(Entry("tao-00000005", "j", "g5.xlarge", 1.5, day, state=DELETED, since=now))
    ledger.order(Entry("tao-00000006", "j", "g5.xlarge", 1.5, now, state=ORDERED))
    (store.with_name(f"{store.stem}.brev") / "instances" / "tao-00000007.json").write_text("{")
    state = ("--state", "mine.json")
    [being_made] = _check(cli, "tao-00000006", *state, code=1)
    assert (being_made["level"], "being made" in being_made["text"]) == ("ok", True)
    [damaged] = _check(cli, "tao-00000007", *state, code=1)
    assert (damaged["level"], "is damaged" in damaged["text"]) == ("note", True)
    [orphan] = _check(cli, "tao-00000001", *state, code=1)
    assert orphan["level"] == "problem"
    # It grows while the test runs.
    assert re.search(r"24\.0 hours old, \$1\.50 an hour, about \$36\.0\d so far", orphan["text"])
    assert orphan["todo"] == "brev delete tao-00000001"
    [kept] = _check(cli, "tao-00000002", *state, code=1)
    assert (kept["level"], "keep=True" in kept["text"]) == ("note", True)
    [stuck] = _check(cli, "tao-00000003", *state, code=1)
    assert (stuck["level"], "not needed (401)" in stuck["text"]) == ("problem", True)
    [slow] = _check(cli, "tao-00000004", *state, code=1)
    assert (slow["level"], "asked to delete it" in slow["text"]) == ("note", True)
    assert _check(cli, "tao-00000005", *state, code=1) == [], "Brev may take its time"


def test_no_instances(cli: Cli) -> None:
    assert _check(cli, "instances")[0]["text"] == "none of ours"
