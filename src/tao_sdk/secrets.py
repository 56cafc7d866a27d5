"""Secret values: kept out of everything that is printed, pickled or stored.

A `Secret` yields its value only to `reveal()`, which a reader can search for. Every value of
`env_vars` becomes one. Text that a user wrote and that other people can read (a command, a plan)
is checked with `find_exposed` and refused rather than silently altered, because what we print
must be what runs; text that we wrote ourselves (log lines, error messages) passes `redact`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import NoReturn

PLACEHOLDER = "[secret]"

# Shorter values ("1", "true", "eth0") appear everywhere and hide nothing.
SHORTEST_SECRET = 8

# First whole addresses are found, then each is looked at once: linear in the text, whatever it is.
_ADDRESS = re.compile(r"[a-z][a-z0-9+.-]{0,30}://[^\s'\"<>]+", re.IGNORECASE)
# A presigned URL is a credential of its own: whoever reads it can use it until it expires.
_SIGNATURE = re.compile(
    r"[?&](?:X-Amz-Signature|X-Goog-Signature|Signature|sig|X-Amz-Security-Token)=[^&]",
    re.IGNORECASE,
)
# Refused only where it is one for certain: not a variable, which is filled in inside the job.
_PASSWORD = re.compile(r"://(?:\$\{[^}]*\}|(?!\$\{)[^/:@])*:(?!\$)[^/@]+@")
# Hidden wherever it may be one: a password may hold anything, up to the last @.
_PERHAPS_PASSWORD = re.compile(r"://([^/:@]*):.+@")

_PRESIGNED = "a presigned URL"
_URL_PASSWORD = "a password in a URL"  # noqa: S105 - a name for it
ADDRESS_SECRETS = (_PRESIGNED, _URL_PASSWORD)


class Secret:
    """A value that shows itself only to `reveal()`."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        """The value itself. Every call is a place to check in a review."""
        return self._value

    def __bool__(self) -> bool:
        return bool(self._value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._value == self._value

    def __hash__(self) -> int:
        return hash((Secret, self._value))

    def __repr__(self) -> str:
        return "Secret(…)"

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        return repr(self)

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Secret cannot be pickled or copied into stored state")


def seal(values: Mapping[str, str]) -> dict[str, Secret]:
    """Wrap every value of an environment mapping."""
    return {name: Secret(value) for name, value in values.items()}


def reveal_all(values: Mapping[str, Secret]) -> dict[str, str]:
    """Unwrap an environment at the moment it is handed to the platform."""
    return {name: secret.reveal() for name, secret in values.items()}


def find_exposed(text: str, known: Mapping[str, Secret]) -> str | None:
    """Name the first secret that `text` would expose, or None.

    The answer is the variable's name, or one of `ADDRESS_SECRETS`; never the value.
    """
    for name, secret in known.items():
        value = secret.reveal()
        if len(value) >= SHORTEST_SECRET and value in text:
            return name
    for address in _ADDRESS.findall(text):
        if _SIGNATURE.search(address):
            return _PRESIGNED
        if _PASSWORD.search(address):
            return _URL_PASSWORD
    return None


def redact(text: str, known: Iterable[Secret] = ()) -> str:
    """Replace known secret values, presigned URLs and URL passwords in text of our own."""
    # Longest first, so that a value containing another one is replaced whole.
    for value in sorted((secret.reveal() for secret in known), key=len, reverse=True):
        if len(value) >= SHORTEST_SECRET:
            text = text.replace(value, PLACEHOLDER)
    return _ADDRESS.sub(_redact_address, text)


def _redact_address(match: re.Match[str]) -> str:
    address = match.group()
    if _SIGNATURE.search(address):
        return PLACEHOLDER
    return _PERHAPS_PASSWORD.sub(rf"://\1:{PLACEHOLDER}@", address, count=1)
