"""Pieces of logs, split into lines."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tao_sdk.platforms.common.log_lines import lines_of, rank_prefix, whole_characters


@given(st.binary(max_size=200))
def test_lines_add_up(data: bytes) -> None:
    ended = list(lines_of(data, 7, 7 + len(data), flush=True))
    assert b"\n".join(line for line, _ in ended) == data.removesuffix(b"\n")
    whole = list(lines_of(data, 7, 7 + len(data), flush=False))
    assert ended[: len(whole)] == whole
    assert all(data[end - 8 : end - 7] == b"\n" for _, end in whole)


@given(st.text(max_size=80), st.integers(1, 8))
def test_reads_of_any_size_miss_nothing(text: str, size: int) -> None:
    """A line longer than a read comes in pieces, none of which cuts a character in two."""
    data = text.encode()
    size, position, found = size + 3, 0, b""
    while position < len(data):
        read = data[position : position + size]
        for line, end in lines_of(read, position, len(data), flush=True):
            line.decode()
            found += line + data[position + len(line) : end]
            position = end
    assert found == data


@pytest.mark.parametrize(
    ("cut", "left"),
    [(b"ab", b"ab"), ("aé".encode()[:-1], b"a"), ("a😀".encode()[:-1], b"a"), (b"a\x80", b"a\x80")],
)
def test_a_character_that_was_cut_in_two_is_left_for_later(cut: bytes, left: bytes) -> None:
    assert whole_characters(cut) == left


def test_ranks_are_named_where_there_are_several() -> None:
    assert (rank_prefix(0, 1), rank_prefix(3, 4)) == ("", "[rank 3] ")
