"""`tao-sdk launch` as people and programs use it: real processes on the local platform."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import signal
import socket
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli_runner import PATIENCE, SOURCE, Cli, clean_cli, until
from launch_bank import MODEL, PatientBank

from tao_sdk import settings

pytest.importorskip("numpy")

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
SMALL = ("--set", "dataset.num_samples=300", "--set", "dataset.image_size=8")
QUICK = ("--status-interval", "0.02")
ESCAPE = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")


@pytest.fixture
def cli(tmp_path: Path) -> Iterator[Cli]:
    with clean_cli(tmp_path) as made:
        for setting in settings.SETTINGS.values():
            for name in (setting.name, *setting.aliases):
                if not name.startswith("TAO_"):
                    made.environment.pop(name, None)
        for name in ("SSH_AUTH_SOCK", "NO_COLOR", "COLUMNS", "LINES"):
            made.environment.pop(name, None)
        made.environment |= {
            "PYTHONPATH": f"{SOURCE}:{EXAMPLES}",
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "HOME": str(tmp_path),
            "TERM": "xterm",
        }
        yield made


class Terminal:
    """A command in a terminal of its own, in which things are typed."""

    def __init__(self, cli: Cli, *words: str, columns: int = 100) -> None:
        self._screen, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
        self.process = subprocess.Popen(
            cli.command(*words),
            cwd=cli.folder,
            env=cli.environment,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            # The terminal's own Ctrl-C goes to the session that it controls.
            preexec_fn=lambda: (os.setsid(), fcntl.ioctl(0, termios.TIOCSCTTY, 0)),
        )
        os.close(theirs)
        self._seen = b""
        self._answered = 0

    @property
    def text(self) -> str:
        return _plain(self._seen)

    def read_to(self, text: str) -> None:
        """Read on until this is on the screen, after the last answer."""
        while text not in _plain(self._seen[self._answered :]):
            piece = self._read()
            assert piece, f"{text!r} never came:\n{self.text}"

    def answer(self, question: str, answer: str) -> None:
        """Wait for a question, then type."""
        self.read_to(question)
        self._answered = len(self._seen)
        os.write(self._screen, f"{answer}\n".encode())

    def press(self, key: bytes) -> None:
        os.write(self._screen, key)

    def end_by(self, key: bytes, code: int) -> str:
        """Press until it is heard: Python misses a signal just before it waits for input."""
        self.press(key)
        while select.select([self._screen], [], [], 10)[0]:
            if not self._read():
                return self.end(code)
        return self.end_by(key, code)

    def end(self, code: int) -> str:
        while self._read():
            pass
        os.close(self._screen)
        assert self.process.wait(PATIENCE) == code, self.text
        return self.text

    def _read(self) -> bytes:
        try:
            piece = os.read(self._screen, 65536)
        except OSError:  # Linux: the other side is closed
            return b""
        self._seen += piece
        return piece


def _plain(seen: bytes) -> str:
    return ESCAPE.sub("", seen.decode(errors="replace").replace("\r\n", "\n"))


@pytest.fixture
def data(cli: Cli) -> Path:
    """A dataset that the demo trainer made, by a launch as well."""
    cli("launch", "tiny-trainer", "dataset", "-p", "local", "--yes", *SMALL, *QUICK)
    return next(cli.folder.rglob("images.npz")).parent


# ---------------------------------------------------------------- at once


@pytest.mark.seed("000.6")
def test_one_line_trains(cli: Cli, data: Path) -> None:
    out, said = cli.both(
        *("launch", "tiny-trainer", "train", "--platform", "local", "--train-root", str(data)),
        *("--yes", "--set", "num_epochs=2", *QUICK),
    )
    assert re.search(r"^\S+  (Pending|Running)", out)
    assert re.search(r"Complete after", out.splitlines()[-1])
    for fact in (
        "Launch review",
        "tiny-trainer",
        "not used here",
        f"dataset.path={data}",
        "0 GPUs",
    ):
        assert fact in said
    assert "AutoML is the recommended route" in said
    job = re.search(r"^job\s+(\S+)", said, re.MULTILINE)
    assert job
    assert f"TAO_SDK_STATE_DIR={cli.folder / 'state'} tao-sdk status {job[1]}" in said
    [found] = json.loads(cli("--json", "status", job[1]))["jobs"]
    assert (found["network_arch"], found["action"]) == ("tiny_trainer", "train")
    assert list(Path(found["results_dir"]).rglob("model_epoch_002.safetensors"))


def test_a_relative_root_is_one_of_this_folder(cli: Cli, data: Path) -> None:
    relative = os.path.relpath(data, cli.folder)
    _, said = cli.both(
        *("launch", "tiny-trainer", "-p", "local", "--train-root", relative, "--yes"),
        *("--set", "num_epochs=1", *QUICK),
    )
    assert f"dataset.path={data}" in said


def test_a_relative_place_for_results_is_one_of_this_folder(cli: Cli) -> None:
    words = ("launch", "tiny-trainer", "--automl", "off", "--results", "out")
    [gate] = cli.documents(*words, "-p", "local", "--gpus", "0", code=2)
    assert gate["review"]["results"] == str(cli.folder / "out")  # type: ignore[index]  # JSON, of whatever shape
    _, told = cli.both(*words, "-p", "slurm", code=2)
    assert "results: 'out' is relative" in told


def test_a_root_that_is_not_there_closes_the_gate(cli: Cli) -> None:
    words = ("launch", "tiny-trainer", "-p", "local", "--train-root", "/no/such", "--yes")
    _, said = cli.both(*words, code=1)
    assert "nothing was created" in said
    assert "datasets (failed)" in said
    assert not (cli.folder / "state").exists()


def test_a_dry_run_shows_the_plan_and_creates_nothing(cli: Cli) -> None:
    words = ("launch", "tiny-trainer", "-p", "local", "--yes", "--dry-run")
    assert cli(*words).startswith("tao-job-")
    [plan] = cli.documents(*words)
    assert (plan["kind"], plan["platform"]) == ("plan", "local")
    assert not (cli.folder / "state").exists()


def test_a_program_gets_the_gate_and_then_the_job(cli: Cli) -> None:
    bank = PatientBank(cli.folder)
    bank.let_go()
    gate, launched, *jobs = cli.documents("-q", *bank.words(*QUICK))
    assert str(launched["status_command"]).endswith(f"tao-sdk status {launched['job_id']}")
    assert Path(str(launched["watcher_log"])).exists()
    assert gate["kind"] == "gate"
    assert gate["open"] is True
    assert gate["review"]["gpu_count"] == 0  # type: ignore[index]  # JSON, of whatever shape
    assert {job["kind"] for job in jobs} == {"job"}
    assert jobs[-1]["status"] == "Complete"


@pytest.mark.parametrize("model", ["nope", "dino"])
def test_wrong_input_is_said_with_what_there_is(cli: Cli, model: str) -> None:
    _, said = cli.both("launch", model, "dance", code=2)
    assert ("no model 'nope'" if model == "nope" else "no action 'dance'") in said
    document = cli.documents("launch", model, "dance", code=2)[-1]
    assert document["kind"] == "error"


@pytest.mark.parametrize(
    "command", [["launch", "dino", "-p", "local"], ["preflight", "-p", "local"]]
)
def test_a_bank_that_is_not_there_is_a_wrong_command_line(cli: Cli, command: list[str]) -> None:
    _, said = cli.both(*command, "--bank", "no/such", code=2)
    assert "'--bank': no/such is not a folder" in said
    assert "tao-sdk bank path" in said
    cli.environment["TAO_SKILL_BANK_PATH"] = "/no/such"
    assert "TAO_SKILL_BANK_PATH=/no/such is not a folder" in cli.both(*command, code=125)[1]


def test_a_bank_with_a_broken_file_is_not_the_fault_of_the_command_line(cli: Cli) -> None:
    bank = PatientBank(cli.folder)
    next(bank.root.rglob("skill_info.yaml")).write_text("[1]")
    _, said = cli.both(*bank.words(), code=125)
    assert "skill_info.yaml" in said


def test_a_shape_that_the_platform_cannot_have_is_wrong_with_and_without_a_dry_run(
    cli: Cli,
) -> None:
    words = ("launch", "tiny-trainer", "-p", "local", "--yes", "--automl", "off")
    for more in ([], ["--dry-run"]):
        _, said = cli.both(*words, "--nodes", "1000000000", *more, code=2)
        assert "1000000000 nodes are more than any platform has" in said
        _, said = cli.both(*words, "-o", "gpu_ids=0,0", "--gpus", "0", *more, code=2)
        assert "names a GPU twice" in said
    assert not (cli.folder / "state").exists()


def test_who_asks_for_automl_is_told(cli: Cli) -> None:
    words = ("launch", "tiny-trainer", "-p", "local", "--yes", "--automl", "on")
    _, said = cli.both(*words, code=2)
    assert "cannot run AutoML yet" in said
    assert not (cli.folder / "state").exists()


# ---------------------------------------------------------------- monitoring


@pytest.mark.seed("001.3")
def test_reports_go_on_while_nothing_changes_and_mirror_the_end(cli: Cli) -> None:
    bank = PatientBank(cli.folder, exit_code=3)
    process = cli.start(*bank.words("--status-interval", "0.005"))
    assert process.stdout is not None
    lines = [process.stdout.readline() for _ in range(5)]
    assert all("Running" in line for line in lines[1:]), lines
    bank.let_go()
    out, said = process.communicate(timeout=PATIENCE)
    assert process.returncode == 3
    assert "Error" in out.splitlines()[-1]
    assert "cause:" in said


@pytest.mark.seed("000.6")
def test_without_monitoring_the_id_is_printed_and_a_watcher_sees_the_end(cli: Cli) -> None:
    bank = PatientBank(cli.folder)
    out, said = cli.both(*bank.words("--no-monitor"))
    job = out.strip()
    told = cli("status", job)
    assert re.search(r"^command   echo started; until", told, re.MULTILINE), "the user's own"
    assert len(told) < 2000, "what the job carries is not for a person's screen"
    assert f"tao-sdk status {job}" in said
    log = re.search(r"^watcher .*log: (.*)$", said, re.MULTILINE)
    assert log
    bank.let_go()
    until(lambda: "Complete" in Path(log[1]).read_text(), "the watcher wrote down the end")


def test_ctrl_c_detaches(cli: Cli) -> None:
    bank = PatientBank(cli.folder)
    terminal = Terminal(cli, *bank.words("--monitor", *QUICK, "--yes"))
    terminal.read_to("Running")
    terminal.press(b"\x03")
    text = terminal.end(130)
    assert "detached; job" in text
    assert "goes on" in text
    assert re.search(r"tao-sdk status \w+", text)
    assert cli.state_of("-") == "Running"
    bank.let_go()
    cli("wait", "-")


@pytest.mark.seed("001.3")
def test_a_terminated_client_says_the_way_back(cli: Cli) -> None:
    bank = PatientBank(cli.folder)
    process = cli.start(*bank.words(*QUICK))
    assert process.stdout is not None
    assert process.stdout.readline()
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=PATIENCE)
    assert process.returncode == 143
    goodbye = said[said.index("terminated; job") :]
    assert "tao-sdk status" in goodbye
    assert f"log: {cli.folder}/state/jobs.db.watch.log" in goodbye
    assert cli.state_of("-") == "Running"


# ---------------------------------------------------------------- the wizard


@pytest.mark.seed("001.2")
@pytest.mark.parametrize("columns", [80, 120])
def test_the_wizard_asks_in_order_and_launches(cli: Cli, data: Path, columns: int) -> None:
    terminal = Terminal(cli, "launch", columns=columns)
    for question, answer in (
        ("Number or name", "tiny-trainer"),
        ("Number or name", "99"),
        ("Number or name", "nowhere"),
        ("Number or name", "1"),
        ("A (roots) or B (exact paths), or none [none]", "x"),
        ("A (roots) or B (exact paths), or none [none]", "a"),
        ("train_root (Enter for none)", str(data)),
        ("image=<override> [use it]", "image="),
        ("image=<override> [use it]", ""),
        ("GPUs per node", "many"),
        ("GPUs per node", "0"),
        ("Nodes", ""),
        ("Watch the run here", ""),
        ("Minutes between two reports", "-1"),
        ("Minutes between two reports", "0.02"),
        ("Launch?", ""),
    ):
        terminal.answer(question, answer)
    text = terminal.end(0)
    titles = ["Model", "Platform", "Data", "Image", "Compute shape", "Credentials", "Monitoring"]
    places = [text.index(f"\n{title}") for title in (*titles, "Preflight", "Launch review")]
    assert places == sorted(places)
    for complaint in (
        "99 is not a number from 1",
        "supported:",
        "please answer A or B or none",
        "override is empty",
        "'many' is not a whole number",
        "minutes above 0",
    ):
        assert complaint in text
    assert f"-> dataset.path={data}" in text
    assert "Complete after" in text
    prose = [line for line in text.splitlines() if " " in line.strip() and "/" not in line]
    prose = [line for line in prose if not line.startswith("note:")]  # wrapped by the terminal
    assert max(map(len, prose)) <= columns


def test_the_wizard_asks_only_what_is_missing(cli: Cli) -> None:
    bank = PatientBank(cli.folder)
    bank.let_go()
    terminal = Terminal(cli, *bank.words("--monitor", *QUICK))
    terminal.answer("Launch?", "y")
    text = terminal.end(0)
    assert "Number or name" not in text
    assert "Minutes" not in text


@pytest.mark.seed("001.1")
@pytest.mark.parametrize(("key", "code"), [(b"n\n", 1), (b"\x03", 130), (b"\x04", 130)])
def test_no_at_the_review_leaves_nothing(cli: Cli, key: bytes, code: int) -> None:
    bank = PatientBank(cli.folder)
    terminal = Terminal(cli, *bank.words("--no-monitor"))
    terminal.read_to("Launch?")
    text = terminal.end_by(key, code)
    assert "nothing was created" in text
    assert ("To go on from here:\n  tao-sdk launch patient" in text) == (code == 1)
    assert not (cli.folder / "state").exists()


@pytest.mark.seed("001.1")
def test_ctrl_c_in_the_preflight_leaves_nothing(cli: Cli) -> None:
    key = cli.folder / "key"
    key.touch(mode=0o600)
    with socket.create_server(("127.0.0.1", 0)) as silent:  # it takes the call, and says nothing
        cli.environment |= {
            "SLURM_USER": "someone",
            "SLURM_HOSTNAME": f"127.0.0.1:{silent.getsockname()[1]}",
            "SLURM_PARTITION": "gpu",
            "SSH_KEY_PATH": str(key),
        }
        words = ("launch", "tiny-trainer", "-p", "slurm", "--automl", "off", "--yes")
        terminal = Terminal(cli, *words, columns=80)
        terminal.read_to("looking at slurm")
        terminal.read_to("wall_time")
        terminal.press(b"\x03")
        assert "stopped; nothing was created" in terminal.end(130)
    assert not (cli.folder / "state").exists()


def test_answers_that_cannot_be_are_asked_for_again(cli: Cli) -> None:
    terminal = Terminal(cli, "launch", "tiny-trainer", columns=80)
    for answer, complaint in (
        ("\u00b2", "no platform"),
        ("99", "not a number from 1 to"),
    ):
        terminal.answer("Number or name", answer)
        terminal.read_to(complaint)
    terminal.read_to("Number or name")
    assert "\ntao-sdk: stopped; nothing was created\n" in terminal.end_by(b"\x03", 130)
    assert not (cli.folder / "state").exists()


@pytest.mark.seed("001.11")
def test_findings_look_as_those_of_preflight_and_commands_stay_whole(cli: Cli) -> None:
    cli.environment |= {
        "SLURM_USER": "someone",
        "SLURM_HOSTNAME": "login.example.org",
        "SLURM_PARTITION": "gpu",
        "SSH_KEY_PATH": "/no/such/key",
    }
    words = ("-p", "slurm", "--train-root", "/lustre/data", "--automl", "off", "--gpus", "1")
    asked = ("--confirm-image", "--nodes", "1", "--no-monitor")
    text = Terminal(cli, "launch", "tiny-trainer", *words, *asked, columns=80).end(1)
    by_itself = Terminal(cli, "preflight", "-p", "slurm", columns=80).end(1)
    for screen in (text, by_itself):
        assert "✓ wall_time" in screen
        assert "✗ ssh.key" in screen
        assert "ssh-copy-id -i ~/.ssh/id_ed25519.pub someone@login.example.org\n" in screen
    closed = text[text.index("not launched, and nothing was created:") :].splitlines()
    assert closed[1].startswith("  access (failed): SSH_KEY_PATH=/no/such/key: there is no such")
    assert closed[2].startswith("    "), "it goes on below itself"
    *closed, go_on, command = closed
    assert max(map(len, closed)) <= 80
    assert go_on == "To go on from here:"
    assert command.startswith("  tao-sdk launch tiny-trainer train --platform slurm --gpus 1")
    assert "SSH_KEY_PATH" not in command


@pytest.mark.seed("001.6")
def test_the_wizard_stops_where_credentials_are_missing(cli: Cli) -> None:
    terminal = Terminal(cli, "launch", "cosmos-rl", "--automl", "off", columns=80)
    for question, answer in (
        ("Number or name", "slurm"),
        ("A (roots) or B", ""),
        ("train_root", "/lustre/you/train"),
        ("eval_root", "/lustre/you/eval"),
        ("[use it]", ""),
        ("GPUs per node", ""),
        ("Nodes", ""),
    ):
        terminal.answer(question, answer)
    text = terminal.end(2)
    asked = text[text.index("\nCredentials") :]
    names = re.findall(r"^  - (\w+):", asked, re.MULTILINE)
    assert names == ["SSH_KEY_PATH", "SLURM_USER", "SLURM_HOSTNAME", "SLURM_PARTITION", "HF_TOKEN"]
    assert "read -rs HF_TOKEN && export HF_TOKEN" in asked
    again = "".join(asked[asked.index("tao-sdk launch") :].splitlines())
    for words in (
        "--platform slurm",
        "--train-root /lustre/you/train",
        "--gpus 4",
        "--confirm-image",
    ):
        assert words in again
    assert not (cli.folder / "state").exists()
    # The command goes on from there: only the credentials are missing.
    _, *words = again.split()
    [gate] = cli.documents(*words, code=2)
    assert [question["id"] for question in gate["missing"]] == [  # type: ignore[attr-defined]  # JSON, of whatever shape
        "credentials",
        "monitoring",
        "status_interval",
    ]


@pytest.mark.seed("001.7")
def test_the_wizard_takes_exact_paths(cli: Cli) -> None:
    terminal = Terminal(cli, "launch", "cosmos-rl", "-p", "local", "--automl", "off", "--gpus", "1")
    keys = [f"custom.{part}_dataset.{name}_path" for part in ("train", "val") for name in
            ("annotation", "media")]  # fmt: skip
    terminal.answer("A (roots) or B (exact paths) [A]", "B")
    terminal.answer(keys[0], "annotations.json")
    for key in keys:
        terminal.answer(f"{key}: ", f"/data/{key}")
    terminal.answer("[use it]", "image=registry/own:2")
    text = terminal.end(2)
    assert "'annotations.json' is relative" in text
    again = text[text.rindex("tao-sdk launch") :]
    for key in keys:
        assert f"--set {key}=/data/{key}" in again.replace("\n", "")
    assert "--image registry/own:2" in again.replace("\n", "")


def test_the_model_of_the_patient_bank_is_found_by_its_name(cli: Cli) -> None:
    bank = PatientBank(cli.folder)
    assert MODEL in cli("bank", "list", "--bank", str(bank.root))
