"""The work of explaining grows with the log and no faster, whatever the log says."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from tao_sdk.failures import Evidence, explain
from tao_sdk.failures.catalogue import CATALOGUE
from tao_sdk.failures.log_lines import LONGEST_LINE, LONGEST_TAIL, MOST_LINES, read_lines

SMALL, LARGE = LONGEST_TAIL // 4, LONGEST_TAIL
# Four times the text: linear work takes 4 times as long, quadratic work 16 times.
MOST_TIMES_LONGER = 10
# Below this a measurement is noise.
LEAST_SECONDS = 0.02


def repeat(unit: str) -> Callable[[int], str]:
    return lambda size: (unit * (size // len(unit) + 1))[:size]


HOSTILE = {
    "letters": repeat("a"),
    "addresses": repeat("a://"),
    "spaces": repeat(" "),
    "short lines": repeat("a\n"),
    "words": repeat("error "),
    "error lines": repeat("Error: x\n"),
    "exceptions": repeat("RuntimeError: foo bar\n"),
    "torn tracebacks": repeat("Traceback (most recent call last):\n"),
    "tracebacks": repeat(
        'Traceback (most recent call last):\n  File "x", line 1, in f\nValueError: x\n'
    ),
    "a chain of tracebacks": repeat(
        'Traceback (most recent call last):\n  File "x", line 1, in f\nValueError: x\n'
        "During handling of the above exception, another exception occurred:\n"
    ),
    "tracebacks of many ranks": lambda size: "\n".join(
        f"[rank{n}]: {line}"
        for line in ("Traceback (most recent call last):", "  File", "ValueError: x")
        for n in range(size // 93)
    ),
    "prefixes": repeat("[INFO] "),
    "brackets": repeat("["),
    "colons": repeat("a: "),
    "dots": repeat("a."),
    "quotes": repeat("'"),
    "many ranks": lambda size: "\n".join(f"[rank {n % 500}] x" for n in range(size // 13)),
    "many processes": lambda size: "\n".join(f"[rank{n % 500}]: E: x" for n in range(size // 17)),
}


def seconds(text: str) -> float:
    """The least of three: other programs can only make it longer."""
    times = []
    for _ in range(3):
        begin = time.process_time()
        explain(Evidence(exit_code=1, log_tail=text, reason=text[:10_000]))
        times.append(time.process_time() - begin)
    return max(min(times), LEAST_SECONDS)


@pytest.fixture(scope="module", autouse=True)
def compiled() -> None:
    """Patterns are compiled at first use: that is not what is measured here."""
    for cause in CATALOGUE:
        assert (cause.log_patterns, cause.reason_patterns) != ()


@pytest.mark.parametrize("kind", HOSTILE)
def test_work_grows_with_the_log_and_no_faster(kind: str) -> None:
    make = HOSTILE[kind]
    assert seconds(make(LARGE)) < MOST_TIMES_LONGER * seconds(make(SMALL))


@pytest.mark.parametrize("kind", ["letters", "addresses", "spaces", "short lines", "exceptions"])
def test_more_than_the_tail_costs_next_to_nothing(kind: str) -> None:
    make = HOSTILE[kind]
    assert seconds(make(4 * LONGEST_TAIL)) < MOST_TIMES_LONGER / 2 * seconds(make(LONGEST_TAIL))


@pytest.mark.parametrize("shape", ["{0}\n", "{0}", "{1} ", "{1} {1} {1} {1}\n"])
def test_texts_made_of_the_samples_are_no_worse(shape: str) -> None:
    """Half of a message, again and again, is what makes a careless pattern slow."""
    texts = []
    for cause in CATALOGUE:
        last = (cause.sample.splitlines() or ["x"])[-1]
        texts.append(shape.format(last, last[: len(last) // 2]))
    make = repeat("".join(texts))
    assert seconds(make(LARGE)) < MOST_TIMES_LONGER * seconds(make(SMALL))


def test_only_the_end_is_read() -> None:
    lines = read_lines("first\n" + "x" * LONGEST_TAIL + "\nlast\n")
    assert [line.text for line in lines] == ["last"]
    assert len(read_lines("a\n" * LONGEST_TAIL)) == MOST_LINES
    [line] = read_lines("a" * 10_000)
    assert len(line.text) < LONGEST_LINE + 10


def test_a_message_at_the_end_of_a_huge_log_is_found() -> None:
    log = "healthy\n" * 500_000 + "ModuleNotFoundError: No module named 'timm'"
    assert "timm" in explain(Evidence(exit_code=1, log_tail=log))["cause"]
