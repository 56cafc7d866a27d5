"""Lines and cursors from the daemon's frames. Pure."""

from __future__ import annotations

import random

import pytest

from tao_sdk.errors import ValidationError
from tao_sdk.platforms.backend import LogLine
from tao_sdk.platforms.docker.log_frames import (
    THE_START,
    LineReader,
    Message,
    Position,
    knowing_all_before,
    read_messages,
)

LIMIT = 1 << 18
STAMP = b"2023-11-14T22:00:00.000000001Z"
LATER = b"2023-11-14T22:00:00.000000002Z"
OUT, ERR, TROUBLE = 1, 2, 3


def frame(message: Message) -> bytes:
    time, stream, text = message
    content = time + b" " + text if time else text
    return bytes([stream, 0, 0, 0]) + len(content).to_bytes(4, "big") + content


def messages(seed: int) -> list[Message]:
    """A log of a few seconds. Times of a stream never go back, those of the log sometimes do."""
    chance = random.Random(seed)
    moment, newest, made = 1_700_000_000_000_000_000, {OUT: 0, ERR: 0}, []
    for number in range(400):
        moment += chance.choice((0, 100, 10_000_000, 400_000_000))
        stream = chance.choice((OUT, OUT, OUT, ERR))
        newest[stream] = max(newest[stream], moment - chance.choice((0, 0, 3_000_000)))
        second, part = divmod(newest[stream], 10**9)
        stamp = f"2023-11-14T22:{second // 60 % 60:02d}:{second % 60:02d}.{part:09d}Z"
        made.append((stamp.encode(), stream, f"line {number}\n".encode()))
    return made


def read_from(log: list[Message], cursor: str) -> list[LogLine]:
    """What a reader does who knows nothing but the cursor."""
    return LineReader(cursor).take(log, LIMIT)


@pytest.mark.parametrize("seed", range(10))
def test_a_log_can_be_gone_on_with_from_any_line_whatever_was_rotated_away(seed: int) -> None:
    log = messages(seed)
    times = [time for time, stream, _ in log if stream == OUT]
    assert len(set(times)) < len(times), "some have the same time"
    assert [time for time, _, _ in log] != sorted(time for time, _, _ in log)
    whole = [text.decode().rstrip("\n") for _, _, text in log]
    found = read_from(log, THE_START)
    assert [line.text for line in found] == whole
    chance = random.Random(seed)
    for index in chance.sample(range(len(found)), 40):
        cursor = found[index].cursor
        assert [line.text for line in read_from(log, cursor)] == whole[index + 1 :]
        # What was rotated away ends between two times: the messages of one time stay together.
        cuts = [cut for cut in range(len(log)) if is_between_times(log, cut)]
        for cut in chance.sample(cuts, 5):
            rest = [line.text for line in read_from(log[cut:], cursor)]
            assert rest == whole[max(index + 1, cut) :]


def is_between_times(log: list[Message], cut: int) -> bool:
    before = {message[:2] for message in log[:cut]}
    return not before & {message[:2] for message in log[cut:]}


def test_frames_cut_anywhere() -> None:
    log = messages(1)[:20]
    data = b"".join(map(frame, log))
    for size in (1, 3, 7, 1000):
        pieces = [data[start : start + size] for start in range(0, len(data), size)]
        assert list(read_messages(pieces)) == log


def test_long_lines_are_joined_and_none_is_held_for_ever() -> None:
    lines = LineReader(THE_START)
    assert lines.take([(STAMP, OUT, b"a" * 10)], 100) == []
    [line] = lines.take([(STAMP, OUT, b"b\n")], 100)
    assert line.text == "a" * 10 + "b"
    [part] = lines.take([(STAMP, OUT, b"c" * 60), (STAMP, OUT, b"c" * 60)], 100)
    assert part.text == "c" * 120


def test_a_part_of_a_long_line_can_be_gone_on_from() -> None:
    """The messages of one line have one time; a cursor counts them."""
    log = [(STAMP, OUT, bytes([letter]) * 10) for letter in b"abcdef"] + [(LATER, OUT, b"g\n")]
    parts = LineReader(THE_START).take(log, 20)
    assert [part.text for part in parts] == [
        "a" * 10 + "b" * 10,
        "c" * 10 + "d" * 10,
        "e" * 10 + "f" * 10,
        "g",
    ]
    rest = LineReader(parts[0].cursor).take(log, 20)
    assert [part.text for part in rest] == [part.text for part in parts[1:]]


@pytest.mark.parametrize("cut", range(1, 12))
def test_a_character_that_is_cut_between_messages_stays_one(cut: int) -> None:
    data = "aé😀éb".encode()
    log = [(STAMP, OUT, data[:cut]), (STAMP, OUT, data[cut:] + b"\n")]
    [line] = LineReader(THE_START).take(log, LIMIT)
    assert line.text == "aé😀éb"
    in_parts = LineReader(THE_START).take(log, 1)
    assert "".join(part.text for part in in_parts) == "aé😀éb"
    [first, error, rest] = LineReader(THE_START).take([log[0], (STAMP, ERR, b"!\n"), log[1]], LIMIT)
    assert (first.text + rest.text, error.text) == ("aé😀éb", "!")


def test_foreign_cursors_are_refused() -> None:
    for cursor in ("12,7", "2023-11-14T22:00:00/3", "-", f"{STAMP.decode()}/1"):
        with pytest.raises(ValidationError, match="does not belong"):
            LineReader(cursor)


def test_the_other_stream_cuts_in() -> None:
    lines = LineReader(THE_START)
    found = lines.take(
        [(STAMP, OUT, b"half"), (STAMP, ERR, b"error\n"), (STAMP, OUT, b" rest")], 100
    )
    found += lines.flush()
    assert [line.text for line in found] == ["half", "error", " rest"]


def test_what_the_daemon_says_about_a_damaged_log_is_shown_and_moves_no_cursor() -> None:
    log = [
        (STAMP, OUT, b"a\n"),
        (b"", TROUBLE, b"Error grabbing logs: broken\n"),
        (LATER, OUT, b"b\n"),
    ]
    assert list(read_messages([b"".join(map(frame, log))])) == log
    first, trouble, last = read_from(log, THE_START)
    assert [first.text, trouble.text, last.text] == ["a", "Error grabbing logs: broken", "b"]
    assert trouble.cursor == first.cursor
    assert [line.text for line in read_from(log, last.cursor)] == ["Error grabbing logs: broken"]


def test_a_reader_who_began_in_the_middle_takes_nothing_older_for_new() -> None:
    [line] = read_from([(LATER, OUT, b"b\n")], THE_START)
    known = knowing_all_before(LATER, line.cursor)
    log = [(STAMP, ERR, b"old\n"), (LATER, OUT, b"b\n"), (LATER, ERR, b"new\n")]
    assert [line.text for line in read_from(log, known)] == ["new"]


def test_the_daemon_is_asked_for_somewhat_more_than_is_new() -> None:
    position = Position(f"{STAMP.decode()}/1,-")
    assert position.window == "1699999199"
    assert position.lies_behind(b"2023-11-14T21:59:58.999999999Z")
    assert not position.lies_behind(b"2023-11-14T21:59:59.000000000Z")
    assert not position.lies_behind(b"")
    assert Position(THE_START).window == "0"
