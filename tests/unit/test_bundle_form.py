"""The form in which things travel: bytes as printable text, sources without indentation."""

from __future__ import annotations

import os
import random
import subprocess
import sys

import pytest

from tao_sdk.bundle.folding import fold
from tao_sdk.bundle.preparation import module_names, shortened
from tao_sdk.bundle.printable import DECODER, decode, encode
from tao_sdk.runner.loading import unfold


@pytest.mark.parametrize("length", [0, 1, 2, 48, 49, 50, 97, 98, 99, 817, 5_000])
def test_bytes_come_back(length: int) -> None:
    for data in (bytes(length), b"\xff" * length, random.Random(length).randbytes(length)):
        assert decode(encode(data)) == data


def test_the_text_survives_shells() -> None:
    text = encode(bytes(range(256)) * 200)
    assert set(text) <= {chr(code) for code in range(33, 127)} - {"'"} | {"\n"}
    assert max(map(len, text.split("\n"))) <= 4000
    assert len(text) < 1.226 * 256 * 200


@pytest.mark.parametrize("length", [0, 1, 49, 5_000])
def test_the_container_decodes_it_with_python_alone(length: int) -> None:
    data = random.Random(length).randbytes(length)
    reading, writing = os.pipe()
    os.write(writing, f"{encode(data)}\n".encode())
    os.close(writing)
    program = f"import os,sys\nos.dup2({reading},3)\n{DECODER}\nsys.stdout.buffer.write(d)"
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program],
        pass_fds=[reading],
        capture_output=True,
        timeout=60,
    )
    os.close(reading)
    assert done.stdout == data, done.stderr


@pytest.mark.parametrize("name", module_names())
def test_modules_unfold_to_what_they_were(name: str) -> None:
    assert unfold(fold(shortened(name))).rstrip() == shortened(name).rstrip()


def test_an_example() -> None:
    source = "if a:\n for b in c:\n  d()\ne={1:2}\nclass f:\n def g(h):\n  i\n"
    folded = "if a\1for b in c\1d()\2\2e={1:2}\nclass f\1def g(h)\1i\n"
    assert fold(source) == folded
    assert unfold(folded).rstrip() == source.rstrip()


def test_a_source_with_the_marks_is_refused() -> None:
    with pytest.raises(ValueError, match="marks"):
        fold("a='\1'\n")
