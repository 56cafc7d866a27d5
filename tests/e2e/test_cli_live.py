"""What moves while one looks: `ls --watch`, progress, the lowest line, and what `watch` tells."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import signal
import struct
import termios
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli_runner import PATIENCE, Cli, clean_cli, until
from test_cli_json import check
from test_cli_terminal import ESCAPE, _read, at_terminal

from tao_sdk.cli.jobs import find_job
from tao_sdk.cli.progress_feed import ProgressFeed
from tao_sdk.cli.session import Session


@pytest.fixture
def cli(tmp_path: Path) -> Iterator[Cli]:
    with clean_cli(tmp_path) as made:
        made.environment["TERM"] = "xterm-256color"
        for name in ("NO_COLOR", "COLUMNS", "LINES"):
            made.environment.pop(name, None)
        yield made


def _until_file(path: Path) -> str:
    return f"until [ -e {path} ]; do sleep 0.05; done; "


class Terminal:
    """A command in a terminal of its own; `seen` is all that it has written there."""

    def __init__(self, cli: Cli, *words: str, columns: int = 120) -> None:
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 30, columns, 0, 0))
        self.process = cli.start(
            *words,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            # The terminal's own Ctrl-C goes to the session that it controls.
            preexec_fn=lambda: (os.setsid(), fcntl.ioctl(0, termios.TIOCSCTTY, 0)),
        )
        os.close(theirs)
        self.seen = ""

    def read_until(self, pattern: str) -> str:
        """Read on until it has been written; returns what is behind the place read before."""
        start = len(self.seen)
        while not re.search(pattern, self.seen[start:]):
            piece = _read(self._ours)
            assert piece, f"{pattern!r} never came: {self.seen}"
            self.seen += piece.decode(errors="replace")
        return self.seen[start:]

    def type(self, text: str) -> None:
        os.write(self._ours, text.encode())

    def finish(self) -> int:
        while piece := _read(self._ours):
            self.seen += piece.decode(errors="replace")
        os.close(self._ours)
        return self.process.wait(PATIENCE)

    def lines(self) -> list[str]:
        """What is left on the screen, as far as erasing the lowest line goes."""
        rows = [""]
        for part in re.split(r"(\r\n|\r\x1b\[2K)", self.seen):
            if part == "\r\n":
                rows.append("")
            elif part == "\r\x1b[2K":
                rows[-1] = ""
            else:
                rows[-1] += ESCAPE.sub("", part)
        return rows


# ---------------------------------------------------------------- progress


def test_status_tells_how_far_a_job_is(cli: Cli) -> None:
    gate = cli.folder / "gate"
    job = cli.submit("-c", f"echo 'Epoch 3/10 loss=0.25'; {_until_file(gate)}")
    until(lambda: "Epoch" in cli("logs", job), "printed")
    facts = dict(re.split(r"  +", line, maxsplit=1) for line in cli("status", job).splitlines())
    assert "epoch 3/10" in facts["progress"]
    assert "loss 0.25" in facts["progress"]
    [found] = cli.documents("status", job)[0]["jobs"]  # type: ignore[attr-defined]  # JSON, of whatever shape
    assert (found["progress"]["epoch"], found["progress"]["epochs"]) == (3, 10)
    assert cli.documents("ls")[0]["jobs"][0]["progress"] is None  # type: ignore[index]  # JSON, of whatever shape


def test_progress_is_read_from_taos_status_file(cli: Cli) -> None:
    record = {"date": "1/1/2030", "status": "RUNNING", "epoch": 4, "max_epoch": 8}
    folder = '"$TAO_RESULTS_ROOT/$TAO_JOB_ID/train"'
    write = f"mkdir {folder}; echo '{json.dumps(record)}' > {folder}/status.json"
    job = cli.submit("-c", write)
    cli("wait", job)
    [found] = cli.documents("status", job)[0]["jobs"]  # type: ignore[attr-defined]  # JSON, of whatever shape
    assert (found["progress"]["epoch"], found["progress"]["epochs"]) == (4, 8)
    assert found["progress"]["eta_seconds"] is None


def test_a_job_that_says_nothing_has_no_progress(cli: Cli) -> None:
    job = cli.submit("--", "echo", "hello")
    cli("wait", job)
    assert "progress" not in cli("status", job)


def test_a_feed_reads_only_what_is_new(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    job = cli.submit("-c", "echo Epoch 1/9 loss=0.5; echo Epoch 2/9 loss=0.4")
    cli("wait", job)
    monkeypatch.setenv("TAO_SDK_STATE_DIR", str(cli.folder / "state"))
    found = find_job(Session(), job)
    feed = ProgressFeed()
    first = feed.update(found)
    assert first is not None
    assert first.epoch == 2
    log = cli.folder / "state" / "local" / "jobs" / job / "job.log"
    log.write_text(log.read_text(encoding="utf-8").replace("Epoch 1/9", "Epoch 8/9"))
    assert feed.update(found) == first
    with log.open("a", encoding="utf-8") as file:
        file.write("Epoch 3/9 loss=0.3\n")
    second = feed.update(found)
    assert second is not None
    assert second.epoch == 3
    found.place.store.close()


# ---------------------------------------------------------------- ls --watch


def test_ls_watch_in_a_pipe_tells_every_change(cli: Cli) -> None:
    gates = [cli.folder / f"gate-{number}" for number in range(2)]
    train = f"{_until_file(gates[0])} echo Epoch 5/10; {_until_file(gates[1])}"
    job = cli.submit("-c", train)
    until(lambda: cli.state_of(job) == "Running", "running")
    process = cli.start("ls", "-w", "--interval", "0.1")
    assert process.stdout is not None
    fields = process.stdout.readline().rstrip("\n").split("\t")
    assert fields[1:4] == [job, "local", "Running"]
    gates[0].touch()
    assert "epoch 5/10" in process.stdout.readline()
    gates[1].touch()
    assert "\tRunning -> Complete\t" in process.stdout.readline()
    new = cli.submit("--", "true")
    assert process.stdout.readline().split("\t")[1] == new
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0
    assert err == ""


def test_ls_watch_as_documents(cli: Cli) -> None:
    gate = cli.folder / "gate"
    job = cli.submit("-c", f"echo Epoch 5/10; {_until_file(gate)}")
    until(lambda: "Epoch" in cli("logs", job), "printed")
    process = cli.start("--json", "ls", "-w", "--interval", "0.1")
    assert process.stdout is not None
    [listed] = check(json.loads(process.stdout.readline()), "jobs")["jobs"]
    assert listed["progress"]["epoch"] == 5
    gate.touch()
    change = check(json.loads(process.stdout.readline()), "change")
    assert (change["before"], change["status"]) == ("Running", "Complete")
    assert change["progress"]["epoch"] == 5
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=PATIENCE)
    assert process.returncode == 0


def test_ls_watch_complains_once_about_a_platform_that_is_not_here(cli: Cli) -> None:
    from tao_sdk import JobStore

    cli("ls")
    with JobStore(cli.folder / "state" / "jobs.db") as store:
        store.create_job("afar", "", "", "", backend_type="moonbase", status="Running")
    process = cli.start("ls", "-w", "--interval", "0.1")
    assert process.stdout is not None
    assert "\tafar\t" in process.stdout.readline()
    assert process.stderr is not None
    assert "moonbase" in process.stderr.readline()
    new = cli.submit("--", "sleep", "300")
    assert new in process.stdout.readline()
    process.send_signal(signal.SIGINT)
    assert "moonbase" not in process.communicate(timeout=PATIENCE)[1]


@pytest.mark.parametrize("columns", [80, 120])
def test_ls_watch_at_a_terminal_is_a_live_table(cli: Cli, columns: int) -> None:
    gate = cli.folder / "gate"
    job = cli.submit("-c", f"echo Epoch 5/10 loss=0.5; {_until_file(gate)}")
    until(lambda: "Epoch" in cli("logs", job), "printed")
    screen = Terminal(cli, "ls", "-w", "--interval", "0.1", columns=columns)
    screen.read_until(r"\x1b\[\?1049h")  # a screen of its own
    drawn = ESCAPE.sub("", screen.read_until(r"epoch 5/10"))
    assert "1 Running" in drawn
    assert ("█" in drawn) == (columns >= 100)
    gate.touch()
    assert "completed" in ESCAPE.sub("", screen.read_until(r"1 Complete[\s\S]*completed"))
    screen.type("\x03")
    assert screen.finish() == 0
    left = ESCAPE.sub("", screen.seen.rpartition("\x1b[?1049l")[2])
    assert re.search(rf"{job[:8]} +local +Complete", left)
    assert "Traceback" not in screen.seen


def test_ls_watch_does_not_lose_sight_of_an_old_job_that_goes_on(cli: Cli) -> None:
    old = cli.submit("--", "sleep", "300")
    new = [cli.submit("--", "true") for _ in range(2)]
    cli("wait", *new)
    process = cli.start("--json", "ls", "-w", "-n", "2")
    assert process.stdout is not None
    document = json.loads(process.stdout.readline())
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=PATIENCE)
    assert [job["job_id"] for job in document["jobs"]] == [old, new[1]]
    assert document["more"] is True


def test_ls_watch_that_is_terminated_gives_the_screen_back(cli: Cli) -> None:
    for _ in range(3):
        cli("run", "--no-watch", "--gpus", "0", "--", "true")
    screen = Terminal(cli, "ls", "-w")
    screen.read_until(r"3 Complete")
    screen.process.terminate()
    assert screen.finish() == 143
    assert "\x1b[?1049l" in screen.seen
    assert "Traceback" not in screen.seen


# ---------------------------------------------------------------- the lowest line


def test_an_attached_run_shows_how_far_it_is_below_its_output(cli: Cli) -> None:
    gate = cli.folder / "gate"
    # A bar that redraws itself is a line without an end.
    train = rf"echo one; printf '\rEpoch 3/9 loss=0.5'; {_until_file(gate)} echo; echo two"
    screen = Terminal(cli, "run", "--no-watch", "--gpus", "0", "-c", train)
    screen.read_until(r"Running for .*epoch 3/9")
    gate.touch()
    assert screen.finish() == 0
    lines = screen.lines()
    assert "one" in lines
    assert "two" in lines
    assert not any("Running for" in line for line in lines)
    assert any(line.startswith("Complete after") for line in lines)


def test_ctrl_c_takes_the_lowest_line_away(cli: Cli) -> None:
    job = cli.submit("-c", "echo Epoch 3/9 loss=0.5; sleep 300")
    screen = Terminal(cli, "logs", "-f", job, columns=60)
    screen.read_until(r"Running for .*epoch 3/9")
    screen.type("\x03")
    assert screen.finish() == 130
    assert not any("Running for" in line for line in screen.lines())
    assert all(len(line) <= 60 for line in screen.lines())


@pytest.mark.parametrize("how", ["quiet", "dumb", "ended"])
def test_where_no_lowest_line_is_wanted_there_is_none(cli: Cli, how: str) -> None:
    words = ["logs", "-f", "-"]
    if how == "dumb":
        cli.environment["TERM"] = "dumb"
    cli.submit("-c", "echo Epoch 3/9; sleep 1")
    if how == "ended":
        cli("wait", "-")
    quiet = ["--quiet"] if how == "quiet" else []
    assert at_terminal(cli, *quiet, *words) == "Epoch 3/9\n"


# ---------------------------------------------------------------- watch


def test_watch_says_what_it_does_and_why_it_ends(cli: Cli) -> None:
    gate = cli.folder / "gate"
    cli.submit("-c", _until_file(gate))
    process = cli.start("watch", "--interval", "0.1")
    assert process.stderr is not None
    first = process.stderr.readline()
    assert f"{cli.folder}/state/jobs.db: 1 job is open (1 local); looking every 0.1 s" in first
    gate.touch()
    out, err = process.communicate(timeout=PATIENCE)
    assert "-> Complete" in out
    assert err.endswith("  the end: no job is open\n")


def test_watch_tells_of_an_end_that_somebody_else_saw(cli: Cli) -> None:
    job = cli.submit("--", "sleep", "300")
    process = cli.start("watch", "--interval", "0.5")
    assert process.stdout is not None
    assert "-> Running" in process.stdout.readline()
    cli("cancel", job)
    out, _ = process.communicate(timeout=PATIENCE)
    assert f"{job[:8]}  local  Running -> Canceled" in out


@pytest.mark.parametrize(
    ("sent", "code", "why"),
    [(signal.SIGINT, 130, "stopped by Ctrl-C"), (signal.SIGTERM, 143, "terminated")],
)
def test_watch_that_is_stopped_says_so(cli: Cli, sent: signal.Signals, code: int, why: str) -> None:
    cli.submit("--", "sleep", "300")
    process = cli.start("watch")
    assert process.stdout is not None
    assert "-> Running" in process.stdout.readline()
    process.send_signal(sent)
    _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == code
    assert f"{why}; 1 job is open and not watched" in err


def test_watch_once_says_what_is_left(cli: Cli) -> None:
    cli.submit("--", "sleep", "300")
    _, err = cli.both("watch", "--once")
    assert "1 job is open (1 local); asking once" in err
    assert err.endswith("1 job is still open\n")
    assert cli.both("--quiet", "watch", "--once")[1] == ""


def test_watch_tells_of_jobs_that_it_cannot_watch(cli: Cli) -> None:
    from tao_sdk import JobStore

    cli("ls")
    with JobStore(cli.folder / "state" / "jobs.db") as store:
        store.create_job("afar", "", "", "", backend_type="moonbase", status="Running")
    _, err = cli.both("watch")
    assert "the end: 1 job is open, which cannot be watched from here" in err
