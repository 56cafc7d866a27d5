"""Args mode, as a whole: values on a command line, never in a shell's hands."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest
from entrypoints import Container
from stores import Bucket

HOSTILE = [
    "it's",
    '"double"',
    "$(touch PWNED)",
    "`touch PWNED`",
    "; touch PWNED;",
    "a' ; touch PWNED; '",
    "$HOME ${HOME} \\ \\n",
    "line\nbreak\ttab",
    "*",
    "~",
    "-rf",
    "ünïcode 模型",
    "{other}",
    "",
]
ARGUMENTS = shlex.join([sys.executable, "-c", "import json, sys; print(json.dumps(sys.argv[1:]))"])


def words_of(box: Container, command: str = ARGUMENTS, **asked: Any) -> list[str]:
    """The words that the command got."""
    ended = box.run(command, **asked)
    assert ended.code == 0, ended.err
    found: list[str] = json.loads(ended.out)
    return found


@pytest.mark.seed("000.16")
def test_values_arrive_as_they_are(box: Container) -> None:
    """Lesson B2: whatever they hold, nothing of it is executed."""
    args = {f"name-{index}": value for index, value in enumerate(HOSTILE)}
    words = words_of(box, args={**args, "other": "O"}, flags=["verbose", "--dry-run"])
    expected = [word for name, value in args.items() for word in (f"--{name}", value)]
    assert words == [*expected, "--other", "O", "--verbose", "--dry-run"]
    assert not list(box.folder.rglob("PWNED"))


def test_placeholders_are_filled_in(box: Container) -> None:
    """Lesson B4: each value where its placeholder stands, quoted there; `----` never."""
    words = words_of(
        box,
        f"{ARGUMENTS} first={{a}} '{{b-c}}' {{json}} {{unknown}} ${{HOME}}",
        args={"a": "x y", "b_c": "it's", "json": {"k": [1, "}"]}, "rest": 1},
        flags=["--v", "v"],
    )
    assert words == [
        "first=x y",
        "it's",
        '{"k": [1, "}"]}',
        "{unknown}",
        str(box.folder),
        "--rest",
        "1",
        "--v",
    ]


def test_values_that_are_not_text(box: Container) -> None:
    """None is an argument that is not given; lists and mappings are JSON."""
    words = words_of(box, args={"n": None, "t": True, "f": 0.1, "l": [2, "a b"], "d": {"x": None}})
    assert words == ["--t", "True", "--f", "0.1", "--l", '[2, "a b"]', "--d", '{"x": null}']


def test_inputs_outputs_and_variables(box: Container, bucket: Bucket) -> None:
    """Arguments that are URIs become paths; those that are outputs are delivered."""
    bucket.put({"data/a.txt": b"AAA", "model.onnx": b"M"})
    program = (
        "import json, os, sys; a = dict(zip(sys.argv[1::2], sys.argv[2::2])); "
        "open(a['--onnx'], 'w').write('exported'); "
        "open(os.path.join(a['--output-dir'], 'log'), 'w').write('logged'); "
        "print(json.dumps([sys.argv[1:], os.listdir(a['--data'])]))"
    )
    ended = box.run(
        shlex.join([sys.executable, "-c", program]),
        env=bucket.results,
        args={
            "data": "s3://bucket/data",
            "weights": "s3://bucket/model.onnx",
            "output-dir": None,
            "onnx": "out/final.onnx",
        },
        inputs={"data": {"type": "folder"}, "weights": {"type": "file"}},
        outputs={"output_dir": {"type": "folder"}, "onnx": {"type": "file"}},
    )
    assert ended.code == 0, ended.err
    words, listed = json.loads(ended.out)
    given = dict(zip(words[::2], words[1::2], strict=True))
    assert listed == ["a.txt"]
    assert Path(given["--weights"]).read_bytes() == b"M"
    assert bucket.below("results/job-1") == {
        "output_dir/log": b"logged",
        "onnx/final.onnx": b"exported",
    }
