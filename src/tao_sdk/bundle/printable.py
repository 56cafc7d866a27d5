"""Bytes as text that survives shells and JSON: 93 printable characters, no blank among them.

Nor is an apostrophe, which takes five characters wherever a command is quoted for another shell.
Blocks of 49 bytes are numbers, and 60 digits to the base of 93 are just enough for one: 1.224
characters for a byte, where base85 has 1.25.
"""

from __future__ import annotations

from typing import TypeVar

T = TypeVar("T", bytes, str)

_BASE = 93
_BLOCK_BYTES, _BLOCK_DIGITS = 49, 60
_LINE = 4000  # terminals take 4,095

_CODES = bytes(code for code in range(ord("!"), ord("~") + 1) if code != ord("'"))
_PAIRS = [bytes((first, second)) for first in _CODES for second in _CODES]
_DIGITS = {code: digit for digit, code in enumerate(_CODES)}

DECODER = f"""\
with open(3,"rb")as f:t=bytes(c-33-(c>39)for c in f.read()if c>32)
k=len(t)*{_BLOCK_BYTES}//{_BLOCK_DIGITS}
t=bytes(-len(t)%{_BLOCK_DIGITS})+t
n,m=0,len(t)//{_BLOCK_DIGITS}*{_BLOCK_BYTES}
for i in range({_BLOCK_DIGITS}):b=bytearray(m);b[{_BLOCK_BYTES - 1}::{_BLOCK_BYTES}]=t[i::{_BLOCK_DIGITS}];n=n*{_BASE}+int.from_bytes(b,"big")
d=n.to_bytes(m,"big")[m-k:]"""  # noqa: E501 - so it travels
"""A program for the container that reads `d` from file descriptor 3.

It goes through the digits of all blocks at once, as one number in which every block has its own
bytes: a loop over single digits would take longer than Python's own start.
"""


def encode(data: bytes) -> str:
    """Lines of text. The first block is the short one, as zeros before a number change nothing."""
    first = len(data) % _BLOCK_BYTES
    blocks = [data[:first], *_cut(data[first:], _BLOCK_BYTES)]
    return "\n".join(_cut(b"".join(map(_encode_block, blocks)).decode("ascii"), _LINE))


def decode(text: str) -> bytes:
    """What was encoded."""
    digits = bytes(_DIGITS[code] for code in text.replace("\n", "").encode("ascii"))
    first = len(digits) % _BLOCK_DIGITS
    return b"".join(map(_decode_block, [digits[:first], *_cut(digits[first:], _BLOCK_DIGITS)]))


def _cut(data: T, length: int) -> list[T]:
    return [data[at : at + length] for at in range(0, len(data), length)]


def _encode_block(block: bytes) -> bytes:
    number, pairs = int.from_bytes(block, "big"), []
    count = -(-len(block) * _BLOCK_DIGITS // _BLOCK_BYTES)
    for _ in range(0, count, 2):
        number, pair = divmod(number, _BASE * _BASE)
        pairs.append(_PAIRS[pair])
    return b"".join(reversed(pairs))[-count:]


def _decode_block(digits: bytes) -> bytes:
    number = 0
    for digit in digits:
        number = number * _BASE + digit
    return number.to_bytes(len(digits) * _BLOCK_BYTES // _BLOCK_DIGITS, "big")
