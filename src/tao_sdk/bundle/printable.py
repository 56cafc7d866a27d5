"""Bytes as text that survives shells and JSON: 93 printable characters, no blank among them.

Nor is an apostrophe, which takes five characters wherever a command is quoted for another shell.
Blocks of 49 bytes are numbers, and 60 digits to the base of 93 are just enough for one: 1.224
characters for a byte, where base85 has 1.25.
"""

from __future__ import annotations

_BASE = 93
_BLOCK_BYTES, _BLOCK_DIGITS = 49, 60
_LINE = 1000

_CODES = bytes(code for code in range(ord("!"), ord("~") + 1) if code != ord("'"))
_PAIRS = [bytes((first, second)) for first in _CODES for second in _CODES]
_DIGITS = {code: digit for digit, code in enumerate(_CODES)}

DECODER = f"""\
with open(3,"rb")as f:t=f.read().replace(b"\\n",b"")
d=b""
for i in range(0,len(t),{_BLOCK_DIGITS}):
 n,b=0,t[i:i+{_BLOCK_DIGITS}]
 for c in b:n=n*{_BASE}+c-33-(c>39)
 d+=n.to_bytes(len(b)*{_BLOCK_BYTES}//{_BLOCK_DIGITS},"big")"""
"""A program for the container that reads `d` from file descriptor 3."""


def encode(data: bytes) -> str:
    """Lines of text."""
    starts = range(0, len(data), _BLOCK_BYTES)
    text = b"".join(_encode_block(data[at : at + _BLOCK_BYTES]) for at in starts).decode("ascii")
    return "\n".join(text[at : at + _LINE] for at in range(0, len(text), _LINE))


def decode(text: str) -> bytes:
    """What was encoded."""
    digits = bytes(_DIGITS[code] for code in text.replace("\n", "").encode("ascii"))
    starts = range(0, len(digits), _BLOCK_DIGITS)
    return b"".join(_decode_block(digits[at : at + _BLOCK_DIGITS]) for at in starts)


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
