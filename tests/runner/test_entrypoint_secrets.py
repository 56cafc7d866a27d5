"""Secrets, as a whole: in the environment and nowhere else."""

from __future__ import annotations

import base64
import json
import threading
from pathlib import Path
from typing import Any

import pytest
from entrypoints import Container, entrypoint, until
from stores import Bucket

from lab import s3
from tao_sdk import LocalSDK
from tao_sdk.bundle.command import payload_of
from tao_sdk.errors import SecretExposureError
from tao_sdk.script_runner import build_entrypoint

CANARY = "cAnArY-5ecret-0f-the-j0b"
CANARIES = (s3.SECRET_KEY, s3.ACCESS_KEY, CANARY, "hf_cAnArY1234567890")


def descendants(pid: int) -> set[int]:
    """A process and everything it started that is still there."""
    children: dict[int, list[int]] = {}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            fields = (process / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        children.setdefault(int(fields[1]), []).append(int(process.name))
    found, waiting = set(), [pid]
    while waiting:
        found.add(waiting.pop())
        waiting += [child for parent in found for child in children.get(parent, ())]
        waiting = [each for each in waiting if each not in found]
    return found


class CommandLines(threading.Thread):
    """Reads the command lines of all processes of a job for as long as it runs."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self.pid, self.seen = pid, set[bytes]()
        self.ended = threading.Event()
        self.start()

    def run(self) -> None:
        while not self.ended.is_set():
            for pid in descendants(self.pid):
                try:
                    self.seen.add(Path(f"/proc/{pid}/cmdline").read_bytes())
                except OSError:
                    continue


def forms_of(secret: str) -> list[bytes]:
    """As text, and as somebody might hide it."""
    plain = secret.encode()
    return [plain, base64.b64encode(plain).rstrip(b"="), plain.hex().encode()]


def test_secrets_are_seen_by_the_job_and_by_nobody_else(box: Container, bucket: Bucket) -> None:
    """Lesson E1: not in any process's arguments, not in the log, not in a file that others can
    read, not in the payload, not in the bucket; while staging, running and delivering."""
    bucket.put({"in/a": b"1"})
    job = "python3 -c \"import json,sys; s = json.load(open(sys.argv[1])); print(len(s['key'])); "
    job += "open(s['out'] + '/x', 'w').write('r')\" {config_path}; touch ready; "
    job += "while [ ! -e go ]; do sleep 0.05; done"
    command = entrypoint(
        command=job,
        specs={"key": "${env:WANDB_API_KEY}", "d": "s3://bucket/in", "out": ""},
        inputs=["d"],
        outputs=["out"],
        config_format="json",
    )
    assert all(form not in command.encode() for s in CANARIES for form in forms_of(s))
    assert "${env:WANDB_API_KEY}" in json.dumps(payload_of(command))
    process = box.start(
        command, {**bucket.results, "WANDB_API_KEY": CANARY, "HF_TOKEN": CANARIES[3]}
    )
    lines = CommandLines(process.pid)
    until(lambda: (box.cwd / "ready").exists(), "running")
    until(lambda: len(lines.seen) >= 3, "looked at")
    (box.cwd / "go").touch()
    ended = box.end(process)
    lines.ended.set()
    lines.join()
    assert ended.code == 0, ended.err
    assert ended.out == f"{len(CANARY)}\n", "the job itself has it"
    visible = b"\0".join([*lines.seen, ended.out.encode(), ended.err.encode()])
    assert b"sleep" in visible, "the command's own processes were looked at"
    stored = b"\0".join(bucket.read(key) for key in bucket.names())
    for secret in CANARIES:
        for form in forms_of(secret):
            assert form not in visible
            assert form not in stored
    for path in (each for each in box.folder.rglob("*") if each.is_file()):
        if any(form in path.read_bytes() for secret in CANARIES for form in forms_of(secret)):
            assert path.name == "spec.json"
            assert path.stat().st_mode & 0o077 == 0, path


@pytest.mark.parametrize(
    ("args", "flags"),
    [
        ({"token": "${env:TOKEN}"}, []),
        ({"a": ["x", "Bearer ${env:TOKEN}"]}, []),
        ({}, ["${env:TOKEN}"]),
    ],
)
def test_no_variable_gets_into_the_arguments_of_a_program(
    args: dict[str, Any], flags: list[str]
) -> None:
    """Lesson E1: every user of a machine can read them there."""
    with pytest.raises(
        SecretExposureError, match=r"take TOKEN from its environment, or give it in"
    ):
        build_entrypoint(command="echo", args=args, flags=flags)


def test_a_variable_in_the_address_of_an_argument_is_not_in_it(
    box: Container, bucket: Bucket
) -> None:
    bucket.put({"in/a": b"A"})
    box.env = bucket.env
    ended = box.run(
        "cat {data}/a; echo",
        env={"PLACE": "in"},
        args={"data": "s3://bucket/${env:PLACE}"},
        inputs={"data": {"type": "folder"}},
    )
    assert ended.out.startswith("A"), ended.err


@pytest.mark.parametrize(
    "asked",
    [
        {"command": "x {config_path}", "specs": {"auth": {"key": CANARY}}},
        {"command": "x", "args": {"key": f"Bearer {CANARY}"}},
        {"command": f"export NGC_KEY={CANARY}; x"},
        {"command": "x", "args": {}, "flags": [CANARY]},
        {"command": "x", "inputs": {"/d": f"s3://bucket/{CANARY}"}},
        {"command": "x", "outputs": {"/d": f"s3://bucket/{CANARY}"}},
        {"command": "x", "specs": {CANARY: 1}},
    ],
    ids=["specs", "args", "command", "flags", "inputs", "outputs", "a key"],
)
def test_a_known_secret_is_refused_when_it_is_built(
    asked: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lesson E1: with its place, the variable's name, and what to write instead."""
    monkeypatch.setenv("NGC_KEY", CANARY)
    with pytest.raises(SecretExposureError) as caught:
        build_entrypoint(**asked)
    assert "NGC_KEY" in str(caught.value)
    assert "${env:NGC_KEY}" in str(caught.value)
    assert CANARY not in str(caught.value)


def test_what_to_write_instead_exists_in_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lesson E1: SECRET_KEY is called AWS_SECRET_ACCESS_KEY there."""
    monkeypatch.setenv("SECRET_KEY", CANARY)
    with pytest.raises(SecretExposureError, match=r"\$\{env:AWS_SECRET_ACCESS_KEY\}"):
        build_entrypoint(command="x", args={"key": CANARY})


def test_addresses_that_are_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lesson E1: a password in a URL is one; a variable in its place is none."""
    for wrong in ("https://me:hunter2@host/x", "https://host/x?X-Amz-Signature=abc"):
        with pytest.raises(SecretExposureError):
            build_entrypoint(command="x", args={"url": wrong})
    for right in ("https://me:${env:PW}@host/x", "https://${env:USER}:${env:PW}@host", "${env:U}"):
        build_entrypoint(command="x {config_path}", specs={"url": right})


def test_a_secret_of_one_job_is_refused_in_its_command(tmp_path: Path) -> None:
    """Lesson E1: also when it is hidden in the payload of a built command."""
    command = build_entrypoint(command="x", args={"key": CANARY})["command"]
    with LocalSDK(state_file=tmp_path / "s.json", work_dir=tmp_path / "jobs") as sdk:
        with pytest.raises(SecretExposureError) as caught:
            sdk.create_job(command=command, gpu_count=0, env_vars={"MY_TOKEN": CANARY})
        assert "MY_TOKEN" in str(caught.value)
        assert CANARY not in str(caught.value)
        with pytest.raises(SecretExposureError) as caught:
            sdk.create_job(command="x", specs={CANARY: 1}, env_vars={"MY_TOKEN": CANARY})
        assert CANARY not in str(caught.value)
        assert sdk.list_jobs() == []
