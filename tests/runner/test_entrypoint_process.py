"""The whole command: how it starts, what it leaves alone, how it ends."""

from __future__ import annotations

import io
import json
import os
import random
import re
import shlex
import signal
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from entrypoints import (
    JOB,
    Container,
    container,
    entrypoint,
    files_below,
    gone,
    names_in,
    until,
)
from stores import Bucket

from tao_sdk.errors import ValidationError

KERNEL_LIMIT = 131_071
"""Bytes of one word of a command line."""


# -- what travels


@pytest.mark.seed("000.10")
def test_nothing_of_ours_has_to_be_in_the_image(box: Container) -> None:
    """Lesson B8: no installer and no network are needed; the packages of the image stay hidden
    from the runner, and its own are not offered to the command."""
    (box.cwd / "json.py").write_text("raise SystemExit('the image has a json.py of its own')")
    program = "import sys; print([m for m in sys.modules if 'tao' in m]); import json"
    ended = box.run(
        entrypoint(command=f"python3 -c {shlex.quote(program)}"),
        env={"PYTHONPATH": str(box.cwd), "http_proxy": "http://127.0.0.1:9"},
    )
    assert ended.out == "[]\n"
    assert "the image has a json.py of its own" in ended.err, "the command has its own settings"
    assert ended.code == 1


def test_no_program_but_python_and_the_shell_is_started(box: Container) -> None:
    """Lesson B8: pip, base64 and the like are neither needed nor called."""
    tools = box.folder / "bin"
    tools.mkdir()
    for name, program in {"bash": "/bin/bash", "sh": "/bin/sh", "python3": sys.executable}.items():
        (tools / name).symlink_to(Path(program).resolve())
    ended = box.run(
        "echo written > {config_path}.seen",
        env={"PATH": str(tools)},
        specs={"a": 1},
        config_format="yaml",
    )
    assert ended.code == 0, ended.err
    assert (box.work / "spec.yaml.seen").read_text() == "written\n"


def test_an_image_without_python_is_told_so(box: Container) -> None:
    """Exit code 127 and a sentence, not a syntax error of some shell."""
    tools = box.folder / "bin"
    tools.mkdir()
    (tools / "bash").symlink_to("/bin/bash")
    ended = box.run(entrypoint(command="true"), env={"PATH": str(tools)})
    assert ended.code == 127
    assert "the image has neither python3 nor python" in ended.error


def test_python_may_go_by_either_name(box: Container) -> None:
    """Lesson B9: a program called `python` need not exist, and `python3` neither."""
    tools = box.folder / "bin"
    tools.mkdir()
    (tools / "sh").symlink_to("/bin/sh")
    (tools / "bash").symlink_to("/bin/bash")
    (tools / "python").symlink_to(Path(sys.executable).resolve())
    assert box.run(entrypoint(command="echo ran"), env={"PATH": str(tools)}).out == "ran\n"


def test_a_python_without_the_usual_compression_is_told_what_to_do(box: Container) -> None:
    """Some small images leave bz2 out."""
    tools = box.folder / "bin"
    tools.mkdir()
    without = "import sys; sys.modules['bz2'] = None\n"
    (tools / "python3").write_text(
        f'#!/bin/bash\nexec {sys.executable} "${{@:1:$#-1}}" "{without}${{@: -1}}"\n'
    )
    (tools / "python3").chmod(0o755)
    ended = box.run(entrypoint(command="echo ran"), env={"PATH": f"{tools}:/usr/bin:/bin"})
    assert ended.code == 1
    assert "TAO_BUNDLE_CODEC=zlib" in ended.error
    assert ended.out == ""


@pytest.mark.parametrize("version", ["3.8", "3.9", "3.10", "3.12", "3.13", "3.14"])
def test_on_the_pythons_of_containers(box: Container, bucket: Bucket, version: str) -> None:
    """Those that this machine has: staging, unpacking, resuming, running, delivering."""
    found = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python3"))
    if not found:
        pytest.skip(f"there is no Python {version} here")
    tools = box.folder / "bin"
    tools.mkdir()
    (tools / "python3").symlink_to(found[-1])
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("set/a.txt", "A")
    ann = json.dumps([{"video": "v1"}]).encode()
    bucket.put({"set.zip": stream.getvalue(), "v/v1": b"1", "v/v2": b"2", "ann.json": ann})
    bucket.put({"results/job-1/out/epoch_1.pth": stream.getvalue()})
    ended = box.run(
        "cat {config_path}; python3 --version; echo done > $(dirname {config_path})/out/log",
        env={**bucket.results, "PATH": f"{tools}:/usr/bin:/bin", "TAO_ATTEMPT": "2"},
        specs={
            "data": "s3://bucket/set.zip",
            "videos": "s3://bucket/v",
            "ann": "s3://bucket/ann.json",
            "train": {"resume_training_checkpoint_path": None, "key": "${env:HOME}"},
            "out": "",
        },
        inputs={
            "data": {},
            "ann": {},
            "videos": {"selective": {"annotation": "ann", "keys": ["video"]}},
        },
        outputs={"out": {"type": "folder"}},
        upload_excludes=["*.tmp"],
        config_format="yaml",
    )
    assert ended.code == 0, ended.err
    assert f"Python {version}." in ended.out
    assert f"data: {box.work}/inputs/data/set\n" in ended.out
    assert f"resume_training_checkpoint_path: {box.work}/out/epoch_1.pth\n" in ended.out
    assert names_in(box.work / "inputs" / "videos") == ["v1"]
    assert bucket.read("results/job-1/out/log") == b"done\n"


def test_identical_inputs_give_identical_bytes() -> None:
    asked = {"command": "train {config_path}", "specs": {"b": 1, "a": [2]}, "inputs": ["a"]}
    assert entrypoint(**asked) == entrypoint(**asked)


@pytest.mark.parametrize("mode", [{}, {"args": {"x": "a b"}}, {"specs": {}}])
def test_a_command_of_a_megabyte(box: Container, mode: dict[str, object]) -> None:
    """Lesson B1: the kernel's limit for one word is not the command's."""
    dice = random.Random(1)
    lines = [f": {dice.getrandbits(400):x}" for _ in range(10_000)]
    command = "\n".join([*lines, 'printf "%s|" "$0" $BASHPID $$; exit 3 #'])
    ended = subprocess.run(
        ["bash", "/dev/stdin"],
        input=entrypoint(command=command, **mode),
        env=box.environment(),
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 3, ended.stderr
    name, first, second, _ = ended.stdout.split("|")
    assert (name, first) == ("/bin/bash", second)
    assert all(path.stat().st_mode & 0o077 == 0 for path in box.work.glob(".tao/command*"))


def test_many_class_names_fit(box: Container) -> None:
    """Lesson B1: 9,801 apostrophes, or 4,000 class names, were too much for one word."""
    classes = [f"class '{number}' of the \"data\" set" for number in range(6000)]
    command = entrypoint(command="cat {config_path}", specs={"c": classes}, config_format="json")
    assert len(command.encode()) < KERNEL_LIMIT
    assert json.loads(box.run(command).out) == {"c": classes}


# -- side effects


def test_importing_it_configures_nothing() -> None:
    """Lesson B10: logging is the caller's."""
    program = (
        "import logging; before = (logging.root.handlers[:], logging.root.level); "
        "import tao_sdk.script_runner, tao_sdk.runner.entry, tao_sdk.runner.stage; "
        "assert (logging.root.handlers, logging.root.level) == before"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_nothing_is_left_in_tmp_or_where_it_started(box: Container) -> None:
    """Lesson B9: no file of a name that another job, or another user, could know before."""
    tmp = box.folder / "tmp"
    tmp.mkdir()
    ended = box.run(entrypoint(command="true", specs={"a": 1}), env={"TMPDIR": str(tmp)})
    assert ended.code == 0, ended.err
    assert files_below(tmp) == files_below(box.cwd) == {}
    assert "/tmp" not in entrypoint(command="true", specs={"a": 1})


def test_jobs_and_ranks_at_once_do_not_meet(tmp_path: Path) -> None:
    """Lesson B9: eight at a time with one /tmp and one storage, each with its own spec."""
    with container(tmp_path) as box:
        started = [
            (
                f"{job}-{rank}",
                box.start(
                    entrypoint(command="cat {config_path}", specs={"me": f"{job}-{rank}"}),
                    {"TAO_JOB_ID": job, "NODE_RANK": str(rank), "TAO_RESULTS_ROOT": str(box.root)},
                ),
            )
            for job in ("one", "two", "three", "four")
            for rank in (0, 1)
        ]
        ended = {name: box.end(process) for name, process in started}
    assert {name: each.out for name, each in ended.items()} == {
        name: f'me = "{name}"\n' for name in ended
    }


@pytest.mark.parametrize(
    "job_id", ["../../escaped", "/etc", "a b", "a\nb", "$(touch x)", ".", "-n"]
)
def test_a_hostile_job_id(box: Container, job_id: str) -> None:
    """Lesson B11: nothing is written outside the results, nor anywhere else."""
    ended = box.run(
        entrypoint(command="echo ran", specs={"a": 1}, outputs=["out"]),
        env={"TAO_JOB_ID": job_id, "TAO_RESULTS_ROOT": str(box.root / "deep")},
    )
    assert ended.code == 1
    assert "is not a job id" in ended.error
    assert ended.out == ""
    assert [path.name for path in box.folder.iterdir()] == ["workspace"]


def test_without_a_job_id_one_is_made(box: Container) -> None:
    ended = box.run(entrypoint(command="echo $TAO_JOB_ID", specs={"a": 1}), env={"TAO_JOB_ID": ""})
    assert re.fullmatch(r"[0-9a-f-]{36}\n", ended.out)
    assert [path.name for path in box.root.iterdir()] == [ended.out.strip()]


# -- the command


BRACES = r"""printf '%s|' ${HOME} "$(echo a b | awk '{print $2}')" '{"json": {"x": 1}}' {1..3} \
  "$0" '$not \expanded' "it's"; python3 -c 'x = 7; print(f"{x:03d} {{}}")'"""


@pytest.mark.seed("000.16")
@pytest.mark.parametrize("mode", ["config", "args", "passthrough"])
def test_braces_and_quotes_are_the_shells(box: Container, mode: str) -> None:
    """Lesson B3: `${HOME}`, awk, JSON and f-strings mean what they mean without us."""
    plain = box.run(BRACES).out.replace("bash|", "SHELL|")
    asked = {"config": {"specs": {"a": 1}}, "args": {"args": {}}, "passthrough": {}}[mode]
    ended = box.run(entrypoint(command=BRACES, **asked))
    assert ended.code == 0, ended.err
    assert ended.out.replace("/bin/bash|", "SHELL|") == plain
    assert "007 {}" in plain


@pytest.mark.parametrize(
    ("command", "code"),
    [("exit 0", 0), ("exit 3", 3), ("exit 255", 255), ("kill -KILL $$", 137), ("kill $$", 143)],
)
def test_exit_codes_are_the_commands(box: Container, command: str, code: int) -> None:
    """Lesson B5: 137 and 143, by which an out-of-memory kill is told from others."""
    ended = box.run(entrypoint(command=command, specs={"a": 1}))
    assert ended.code == code
    assert box.record()["exit_code"] == box.record()["command"]["exit_code"] == code


def test_output_is_not_touched_and_input_is_the_jobs(box: Container) -> None:
    command = entrypoint(command=r"cat; printf 'no end\377'; printf 'to err' >&2; test ! -t 0")
    ended = subprocess.run(
        ["bash", "-c", command], env=box.environment(), input=b"from outside\0", capture_output=True
    )
    assert ended.stdout == b"from outside\0no end\377"
    assert b"to err" in ended.stderr
    assert ended.returncode == 0


TRAINING = """
trap 'echo saved > "$OUT/checkpoint"; exit 9' TERM
sleep 600 & echo $! > "$OUT/child.new"; mv "$OUT/child.new" "$OUT/child"; wait
"""


@pytest.mark.parametrize("whom", ["the first process", "the group"])
def test_a_stopped_job_saves_its_state_and_leaves_no_orphan(box: Container, whom: str) -> None:
    """Lesson B6: the training hears of SIGTERM and nothing of it survives."""
    out = box.folder / "out"
    out.mkdir()
    process = box.start(entrypoint(command=TRAINING, specs={"a": 1}), {"OUT": str(out)})
    child = int(until(lambda: (out / "child").exists() and (out / "child").read_text(), "running"))
    if whom == "the group":
        os.killpg(process.pid, signal.SIGTERM)
    else:
        process.terminate()
    ended = box.end(process)
    assert ended.code == 9, ended.err
    assert (out / "checkpoint").read_text() == "saved\n"
    until(lambda: gone(child), "the child is gone")
    assert box.record()["exit_code"] == 9


def test_who_does_not_listen_is_ended(box: Container) -> None:
    """Lesson B6: after TAO_GRACE_SECONDS."""
    stubborn = "trap '' TERM; touch ready; while :; do sleep 0.05; done"
    process = box.start(entrypoint(command=stubborn), {"TAO_GRACE_SECONDS": "0.2"})
    until(lambda: (box.cwd / "ready").exists(), "running")
    process.terminate()
    assert box.end(process).code == 137


def test_a_killed_runner_takes_its_command_along(box: Container) -> None:
    """An out-of-memory kill of the runner must not leave a training that nobody knows of."""
    process = box.start(entrypoint(command="echo $$ > pid.new; mv pid.new pid; sleep 600"))
    pid = int(until(lambda: (box.cwd / "pid").exists() and (box.cwd / "pid").read_text(), "runs"))
    # The command runs a moment before its guard knows of it; then the runner waits.
    stat = Path(f"/proc/{process.pid}/stat")
    until(lambda: stat.read_text().rpartition(")")[2].split()[0] == "S", "the runner waits")
    process.kill()
    assert box.end(process).code == -signal.SIGKILL
    until(lambda: gone(pid), "the command is gone")


# -- what is refused before anything is submitted


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"command": ""}, "command"),
        ({"command": "a\0b"}, "NUL"),
        ({"command": "x", "specs": {}, "args": {}}, "not both"),
        ({"command": "x", "flags": ["v"]}, "only with args"),
        ({"command": "x", "specs": {"train.lr": 1}}, r'\{"train": \{"lr": \.\.\.\}\}'),
        ({"command": "x", "inputs": {"data": "s3://b/k"}}, "absolute path"),
        ({"command": "x", "inputs": {"/data": "gs://b/k"}}, "gs://"),
        ({"command": "x", "outputs": ["results"]}, "absolute path"),
    ],
)
def test_mistakes_are_found_at_once(asked: dict[str, object], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        entrypoint(**asked)


@pytest.mark.seed("000.15")
def test_flat_dotted_keys_are_an_error_with_the_nested_form() -> None:
    with pytest.raises(ValidationError, match=r"'train\.optim\.lr'.*\"optim\": \{\"lr\""):
        entrypoint(command="x", specs={"train.optim.lr": 0.1})


def test_the_job_is_named_after_its_id(box: Container) -> None:
    box.successful("true", specs={"a": 1})
    assert (box.root / JOB / "spec.toml").exists()
