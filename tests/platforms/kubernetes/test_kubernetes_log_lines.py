"""Logs with times in, lines and places out: whatever was cut, rotated or printed at once."""

from __future__ import annotations

import random

import pytest

from tao_sdk.errors import ValidationError
from tao_sdk.platforms.kubernetes.log_lines import START, Place, Position, TimedLines

LIMIT = 1 << 20


def stamp(tenths: int) -> str:
    return f"2026-04-20T09:00:{tenths // 10:02}.{tenths % 10}00000000Z"


def log(*times: int) -> list[tuple[str, bytes]]:
    return [(stamp(t), f"line {n} é".encode()) for n, t in enumerate(times)]


def again(place: Place) -> Place:
    """The place as it is read from a cursor."""
    position = Position.parse(str(Position("p", place)))
    assert position.pod == "p"
    return position.place


def served(lines: list[tuple[str, bytes]], since: str) -> bytes:
    """What the API would send: lines not older than a second."""
    return b"".join(
        f"{time} ".encode() + text + b"\n" for time, text in lines if time[:19] >= since[:19]
    )


def read(lines: list[tuple[str, bytes]], place: Place, most: int) -> tuple[list[str], Place]:
    reader = TimedLines(place, LIMIT)
    texts = []
    for line in reader.feed(served(lines, place.since))[:most]:
        texts.append(line.text)
        place = place.after(line.time)
    return texts, place


@pytest.mark.parametrize("seed", range(20))
def test_going_on_in_any_steps_shows_every_line_once(seed: int) -> None:
    """Also with lines of one time, and lines that were written in another order than stamped."""
    chance = random.Random(seed)
    times = sorted(chance.randrange(0, 60) for _ in range(60))
    for n in range(0, 58, 7):
        if times[n] // 10 == times[n + 1] // 10:
            times[n], times[n + 1] = times[n + 1], times[n]
    lines, place, seen = log(*times), START, []
    while True:
        texts, place = read(lines, again(place), chance.randrange(1, 9))
        if not texts:
            break
        seen += texts
    assert seen == [text.decode() for _, text in lines]


def test_a_log_that_was_rotated_goes_on_with_what_is_new() -> None:
    lines = log(1, 5, 5, 5, 7, 12)
    texts, place = read(lines, START, 3)
    assert texts == ["line 0 é", "line 1 é", "line 2 é"]
    # The node has cut off the first line; two of the three of one time were read.
    assert read(lines[1:], place, 9)[0] == ["line 3 é", "line 4 é", "line 5 é"]
    assert read(lines[4:], place, 9)[0] == ["line 4 é", "line 5 é"]


def test_bytes_cut_anywhere() -> None:
    data = served(log(1, 2, 13), "")
    for size in (1, 2, 3, 7):
        reader = TimedLines(START, LIMIT)
        found = []
        for begin in range(0, len(data), size):
            found += reader.feed(data[begin : begin + size])
        assert [line.text for line in found] == ["line 0 é", "line 1 é", "line 2 é"]


def test_a_line_without_end_is_for_those_who_ask() -> None:
    reader = TimedLines(START, LIMIT)
    assert reader.feed(f"{stamp(1)} half".encode()) == []
    [line] = reader.flush()
    assert (line.time, line.text) == (stamp(1), "half")


def test_a_line_that_is_too_long_comes_in_pieces() -> None:
    reader = TimedLines(START, 1000)
    text = "é" * 2000
    found = reader.feed(f"{stamp(1)} {text}\n".encode())
    found += reader.flush()
    assert "".join(line.text for line in found) == text
    assert [line.whole for line in found][-1] is True
    assert all(line.time == stamp(1) for line in found)


def test_times_of_another_zone() -> None:
    place = START.after("2026-04-20T09:00:01.5+02:00")
    assert place.since == "2026-04-20T09:00:01+02:00"
    assert again(place) == place


@pytest.mark.parametrize("cursor", ["x", "p=", "p=2026/1/2", "=-", "p=-,q=-"])
def test_cursors_of_something_else_are_refused(cursor: str) -> None:
    with pytest.raises(ValidationError, match="does not belong to this log"):
        Position.parse(cursor)


def test_cursors_of_nothing() -> None:
    assert Position.parse("") == Position.parse("-") == Position("", START)
    assert str(Position()) == "-"
    assert Position.parse("a=-") == Position("a", START)
