"""Command lines of any kind end in sentences, and a closed output is no mistake."""

from __future__ import annotations

import os
import random
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType

import click
import pytest
from fuzzing import Findings, broken, counts

from tao_sdk.cli import _SUMMARIES, _group, exit_codes, main
from tao_sdk.job_store import JobStore, NewJob

JOBS = [f"{number:08x}-0000-4000-8000-000000000000" for number in range(30)]
WORDS = [
    *("", " ", "-", "--", "²", "١٢", "-1", "0", "00", "1e999", "nan", "inf", "0x10", "1_0", "+1"),
    *(
        "9" * 5000,
        str(2**31),
        str(2**63),
        str(10**20),
        "99999999999999d",
        "1e308w",
        "99999999d",
        "0.1s",
        "3m",
    ),
    *("\x1b[2J", "\udcff", "\u202e", "é", "\t", "a\nb", "a" * 100_000, "[" * 10_000, "{", '"', "'"),
    *("=", "=x", "x=", "a=b=c", "a.b.c=1", "a[=1", "A=", "1A=2", "x=[[", "x={", "x=²", "x,y", ",,"),
    *(
        "tao://",
        "tao://local",
        f"tao://local/{JOBS[0]}",
        "tao://local/x?state=/dev/null",
        "tao://[",
    ),
    *("/", ".", "..", "/dev/null", "/proc/self/mem", "/nowhere/x", "~", "~nobody-of-that-name"),
    *("s3://", "s3:///x", "s3://b/k", "file://", "hf_model://", "ngc://a/b", "http://[", "x://y"),
    *("/a=s3://b", "/a=", "=s3://b", "a=file:///x", "%s", "${x}", "*", "[a", "(?", "\\", "local"),
    *("docker", "slurm", "kubernetes", "brev", "lepton", "virtualenv", "dino", "train", "on"),
    *(JOBS[0], JOBS[1][:8], "0000", "tao-job", "error", "--help", "--json", "-q", "--version"),
]
USUAL = [
    *("local", "dino", "train", "a=1", "train=/nowhere/x", "train=s3://b/k", "/nowhere", "1", "3m"),
    *("when_busy=refuse", "results_root=/nowhere", "A=b", "/data=file:///nowhere", "python", "-"),
]
# Never given: they go on for ever, or start processes that outlive the test.
WITHOUT = {"--watch", "--detach", "--no-watch"}
ALWAYS = {"run": ["--dry-run"], "launch": ["--dry-run", "--no-monitor"]}
SECONDS = 60


class HangError(BaseException):
    """A command took too long; no handler of the command line catches it."""


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of ended jobs, so that no command waits."""
    folder = tmp_path_factory.mktemp("store")
    with JobStore(folder / "s.tao.db") as store:
        for number, job_id in enumerate(JOBS):
            job = NewJob(job_id, "dino", "train", "local", "local", f"token-{number}", "")
            store.begin_submissions([job])
            native = {"folder": str(folder / job_id), "nodes": 1, "host": "h", "root": str(folder)}
            store.confirm_submission(job_id, backend_job_id=f"tao-job-{job_id}", native=native)
            store.update_job_status(job_id, "Error" if number % 2 else "Complete")
    return folder / "s.json"


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No platform, bank or setting of this machine, nothing to read, a limit of time."""
    for name in list(os.environ):
        if name.startswith(
            ("TAO_", "SLURM_", "SSH_", "BREV_", "LEPTON_", "KUBE", "AWS_", "DOCKER")
        ):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("TAO_SDK_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("TAO_GPU_LEASE_DIR", str(tmp_path / "leases"))
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/no-daemon")
    monkeypatch.chdir(tmp_path)

    def hang(_: int, __: FrameType | None) -> None:
        raise HangError

    before = signal.signal(signal.SIGALRM, hang)
    with open(os.devnull) as nothing:
        monkeypatch.setattr(sys, "stdin", nothing)
        yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def commands() -> dict[tuple[str, ...], click.Command]:
    """Every command, by its words."""
    found: dict[tuple[str, ...], click.Command] = {}
    context = click.Context(_group)
    for name in _SUMMARIES:
        command = _group.get_command(context, name)
        assert command is not None
        inner = command.commands if isinstance(command, click.Group) else {}
        found[(name,)] = command
        found.update({(name, each): inside for each, inside in inner.items()})
    return found


def value_for(option: click.Option, chance: random.Random) -> str:
    """A value of any kind; mostly one that leads further."""
    if chance.random() < 0.4:
        return chance.choice(WORDS)
    if isinstance(option.type, click.Choice):
        return str(chance.choice(option.type.choices))
    return "1" if isinstance(option.type, click.types.IntParamType) else chance.choice(USUAL)


def words_for(path: Sequence[str], command: click.Command, chance: random.Random) -> list[str]:
    """A command line with options of the command and values of any kind."""
    options = [
        parameter
        for parameter in command.params
        if isinstance(parameter, click.Option) and not WITHOUT & set(parameter.opts)
    ]
    words = [*path, *ALWAYS.get(path[0], [])]
    for option in chance.choices(options, k=chance.randrange(4)):
        words.append(chance.choice(option.opts))
        if not option.is_flag:
            words.append(value_for(option, chance))
    words += chance.choices([*JOBS, *USUAL, *WORDS], k=chance.randrange(3))
    if path[0] in ("run", "plan") and chance.random() < 0.7:
        words += ["--", "true", chance.choice(WORDS)]
    place = chance.randrange(len(words))
    if chance.random() < 0.2 and words[place] not in (*ALWAYS.get(path[0], ()), *path):
        words[place] = broken(words[place], chance).replace("\x00", "").replace("\ud800", "")
    return [word for word in words if word not in WITHOUT]


@counts(150, 3_000)
def test_every_command_line_ends_in_a_sentence(
    store: Path, capfd: pytest.CaptureFixture[str], count: int
) -> None:
    chance, found, known = random.Random(3), Findings("command lines"), commands()
    for _ in range(count):
        path = chance.choice(list(known))
        words = words_for(path, known[path], chance)
        state = str(store) if chance.random() < 0.95 else chance.choice(WORDS)

        def act(words: list[str] = words, state: str = state) -> None:
            signal.alarm(SECONDS)
            code = main(["--state", state, *words])
            signal.alarm(0)
            said = capfd.readouterr()
            mistakes = [line for line in said.err.splitlines() if "mistake in the SDK" in line]
            assert not mistakes, mistakes[0]
            assert code in range(256)
            assert code == 0 or said.err or said.out, f"exit code {code} and nothing said"

        found.attempt(shlex.join(words), act)
    with capfd.disabled():
        found.check()


@pytest.mark.parametrize(
    "words",
    [
        *(["wait", "--timeout", "99999999999999d", JOBS[0]], ["wait", "--timeout", "1e308w", "-"]),
        *(
            ["ls", "-n", str(10**20)],
            ["logs", "-n", str(10**20), "-"],
            ["logs", "--rank", "²", "-"],
        ),
        *(["logs", "--cursor", word, JOBS[0]] for word in ("²", "9" * 5000, "1|2", "\udcff")),
    ],
    ids=lambda words: " ".join(words)[:40].encode("ascii", "replace").decode(),
)
def test_numbers_out_of_bounds(
    store: Path, words: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["--state", str(store), *words]) in (0, exit_codes.USAGE, exit_codes.SDK_FAILED)
    assert "mistake in the SDK" not in capfd.readouterr().err


CLOSED = [
    ["ls", "-a"],
    ["ls", "-a", "--json"],
    ["status", JOBS[0]],
    ["--help"],
    ["man"],
    ["ls", "--no"],
]


@pytest.mark.parametrize("words", CLOSED, ids=" ".join)
@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&- <&-", "| head -c1 >/dev/null"])
def test_a_closed_output_is_no_mistake(store: Path, words: list[str], closed: str) -> None:
    program = shlex.join([sys.executable, "-m", "tao_sdk.cli", "--state", str(store), *words])
    ended = subprocess.run(
        ["bash", "-c", f'{program} {closed}; exit "${{PIPESTATUS[0]}}"'],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert "Traceback" not in ended.stderr
    assert "Exception ignored" not in ended.stderr
    expected = [exit_codes.USAGE] if words[-1] == "--no" else [exit_codes.OK]
    assert ended.returncode in [*expected, *([exit_codes.OUTPUT_CLOSED] if "|" in closed else [])]
