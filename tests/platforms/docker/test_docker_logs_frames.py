"""Lines and cursors from the daemon's frames. Pure."""

from __future__ import annotations

import random

import pytest

from tao_sdk.errors import PlatformError, ValidationError
from tao_sdk.platforms.backend import LogLine
from tao_sdk.platforms.docker.log_frames import (
    THE_START,
    FrameParser,
    LineReader,
    Message,
    Position,
    Search,
    count_known,
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


def messages(seed: int, *, set_back: bool = False) -> list[Message]:
    """A log of a few seconds. Times of a stream never go back, those of the log sometimes do; but
    all may, where somebody sets the clock.
    """
    chance = random.Random(seed)
    moment, newest, made = 1_700_000_000_000_000_000, {OUT: 0, ERR: 0}, []
    for number in range(400):
        moment += chance.choice((0, 100, 10_000_000, 400_000_000))
        if set_back and number % 90 == 89:
            moment -= chance.randrange(10**8, 2 * 10**10) // 100 * 100 + number
            newest = {OUT: 0, ERR: 0}
        stream = chance.choice((OUT, OUT, OUT, ERR))
        newest[stream] = max(newest[stream], moment - chance.choice((0, 0, 3_000_000)))
        second, part = divmod(newest[stream], 10**9)
        stamp = f"2023-11-14T22:{second // 60 % 60:02d}:{second % 60:02d}.{part:09d}Z"
        made.append((stamp.encode(), stream, f"line {number}\n".encode()))
    return made


def read_from(log: list[Message], cursor: str, limit: int = LIMIT) -> list[LogLine]:
    """What a reader does who knows nothing but the cursor."""
    position = Position(cursor)
    if not position.at_start:
        search = Search(position, count_known(log, position), may_fail=False)
        log = search.behind(log, at_end=True)
    return LineReader(cursor).take(log, limit)


def texts(log: list[Message]) -> list[str]:
    return [text.decode().rstrip("\n") for _, _, text in log]


@pytest.mark.parametrize("set_back", [False, True])
@pytest.mark.parametrize("seed", range(10))
def test_a_log_can_be_gone_on_with_from_any_line_whatever_was_rotated_away(
    seed: int, set_back: bool
) -> None:
    log = messages(seed, set_back=set_back)
    times = [time for time, stream, _ in log if stream == OUT]
    assert len(set(times)) < len(times), "some have the same time"
    assert (times != sorted(times)) == set_back
    assert [time for time, _, _ in log] != sorted(time for time, _, _ in log)
    whole = texts(log)
    found = read_from(log, THE_START)
    assert [line.text for line in found] == whole
    chance = random.Random(seed)
    # What was rotated away ends between two times: the messages of one time stay together.
    cuts = [cut for cut in range(len(log)) if is_between_times(log, cut)]
    for index in chance.sample(range(len(found)), 40):
        cursor = found[index].cursor
        assert [line.text for line in read_from(log, cursor)] == whole[index + 1 :]
        for cut in chance.sample(cuts, 5):
            rest = [line.text for line in read_from(log[cut:], cursor)]
            assert rest == whole[max(index + 1, cut) :]


@pytest.mark.parametrize("set_back", [False, True])
@pytest.mark.parametrize("seed", range(10))
def test_near_the_end_nothing_is_skipped_and_nothing_comes_twice(seed: int, set_back: bool) -> None:
    """A search that goes by times finds the place or says that it has failed."""
    log = messages(seed, set_back=set_back)
    whole, found = texts(log), read_from(log, THE_START)
    failures = 0
    for index in range(0, len(found), 7):
        position = Position(found[index].cursor)
        for begin in range(0, len(log), 13):
            near_the_end = log[begin:]
            if not position.lies_behind(near_the_end[0][0]):
                continue
            search = Search(position, len(near_the_end), may_fail=True)
            rest = search.behind(near_the_end, at_end=False)
            rest += search.behind([], at_end=True)
            if search.failed:
                failures += 1
            else:
                assert texts(rest) == whole[index + 1 :]
    assert bool(failures) == set_back, "with a clock that only goes on it never fails"


def test_a_search_does_not_wait_for_the_clock() -> None:
    """After it was set back, messages may come for hours that look older than the last one."""
    position = Position(f"{OUT}:{LATER.decode()}/1,-")
    search = Search(position, 3, may_fail=True)
    assert search.behind([(STAMP, OUT, b"x\n")] * 2, at_end=False) == []
    assert not search.failed
    assert search.behind([(STAMP, OUT, b"x\n")], at_end=False) == []
    assert search.failed


def test_some_messages_of_the_same_time_were_rotated_away() -> None:
    log = [(STAMP, OUT, b"a\n"), (STAMP, OUT, b"b\n"), (STAMP, OUT, b"c\n"), (LATER, OUT, b"d\n")]
    cursor = read_from(log, THE_START)[2].cursor
    assert [line.text for line in read_from(log[1:], cursor)] == ["d"]


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
    rest = read_from(log, parts[0].cursor, limit=20)
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
    place = f"{STAMP.decode()}/1"
    for cursor in ("12,7", "-", "-,-", place, f"{place},-", f"3:{place},-", f"2:{place},-"):
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
    assert [line.text for line in read_from(log, first.cursor)] == [trouble.text, "b"]


def test_what_lies_behind_the_damage_of_a_log_does_not_come_twice() -> None:
    """Damaged since it was read: the daemon does not get to where the reader was."""
    log = [(STAMP, OUT, b"a\n"), (LATER, OUT, b"b\n")]
    cursor = read_from(log, THE_START)[-1].cursor
    damaged = [log[0], (b"", TROUBLE, b"Error grabbing logs: broken\n")]
    assert [line.text for line in read_from(damaged, cursor)] == ["Error grabbing logs: broken"]
    search = Search(Position(cursor), 9, may_fail=True)
    search.behind(damaged, at_end=False)
    assert search.failed, "it is left to who reads all of it"


def test_which_piece_of_a_log_is_worth_looking_at() -> None:
    position = Position(f"{OUT}:{STAMP.decode()}/1,-")
    assert position.lies_behind(b"2023-11-14T21:59:59.94Z")
    assert position.lies_behind(b"2023-11-14T21:59:59.949999999Z")
    assert not position.lies_behind(b"2023-11-14T21:59:59.950000000Z")
    assert not position.lies_behind(b"2023-11-14T22:00:00Z")
    assert not position.lies_behind(b"")


@pytest.mark.parametrize("moment", [b"2026-04-20T07:00:00\xff", "2026-04-20T07:00:00²".encode()])
def test_a_time_that_is_none_is_refused(moment: bytes) -> None:
    with pytest.raises(PlatformError, match="make no sense"):
        FrameParser().feed(frame((moment, 1, b"text\n")))
