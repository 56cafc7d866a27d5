"""Scalars whose text is the same in YAML and TOML."""

from __future__ import annotations

_SHORT_ESCAPES = {
    "\\": "\\\\",
    '"': '\\"',
    "\b": "\\b",
    "\t": "\\t",
    "\n": "\\n",
    "\f": "\\f",
    "\r": "\\r",
}


def quoted(text: str) -> str:
    """Text in double quotes on one line, with every unprintable character escaped."""
    return '"' + "".join(_escaped(character) for character in text) + '"'


def float_text(number: float) -> str:
    """The shortest text that reads back as the same float.

    YAML 1.1 takes `1e-05` for a string: it wants a dot before the exponent.
    """
    mantissa, exponent_mark, exponent = repr(number).partition("e")
    if "." not in mantissa:
        mantissa += ".0"
    return mantissa + exponent_mark + exponent


def _escaped(character: str) -> str:
    if character in _SHORT_ESCAPES:
        return _SHORT_ESCAPES[character]
    if character.isprintable():
        return character
    code = ord(character)
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"
