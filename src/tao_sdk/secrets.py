"""Secret values: kept out of everything that is printed, pickled or stored.

A `Secret` yields its value only to `reveal()`, which a reader can search for. Every value of
`env_vars` becomes one. Text that a user wrote and that other people can read (a command, a plan)
is checked with `find_exposed` and refused rather than silently altered, because what we print
must be what runs; text that we wrote ourselves (log lines, error messages) passes `redact`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import NoReturn

PLACEHOLDER = "[secret]"

# Shorter values ("1", "true", "eth0") appear everywhere and hide nothing.
SHORTEST_SECRET = 8

# Each pattern reads a text once, whatever the text is: a job may have written it.
_ADDRESS = re.compile(r"[a-z][a-z0-9+.-]{0,30}://[^\s'\"<>]+", re.IGNORECASE)
# A presigned URL is a credential of its own: every reader can use it until it expires.
_SIGNATURE = re.compile(
    r"(?:[?&;]|\\u0026)(?:X-Amz-Signature|X-Goog-Signature|Signature|sig|X-Amz-Security-Token)=[^&]",
    re.IGNORECASE,
)
# Refused only where it is one for certain: not a variable, which is filled in inside the job.
_PASSWORD = re.compile(r"://(?:\$\{[^}/]*\}|(?!\$\{)[^/:@])*:(?!\$)[^/@]+@")
_TOKEN = re.compile(r"(\bhttps?://)(?![${%]|git@)[^/:@?#]+@", re.IGNORECASE)
# Hidden wherever a password may follow: it may hold anything, up to the last @.
_USER = re.compile(r"://[^/:@]*:(?=.)")

_PRESIGNED = "a presigned URL"
_URL_PASSWORD = "a password in a URL"  # noqa: S105 - a name for it
_URL_TOKEN = "a token in a URL"  # noqa: S105 - a name for it
ADDRESS_SECRETS = (_PRESIGNED, _URL_PASSWORD, _URL_TOKEN)


class Secret:
    """A value that shows itself only to `reveal()`."""

    __slots__ = ("_spellings", "_value")

    def __init__(self, value: str) -> None:
        self._value = value
        self._spellings: frozenset[str] | None = None

    def reveal(self) -> str:
        """The value itself. Every call is a place to check in a review."""
        return self._value

    def spellings(self) -> frozenset[str]:
        """Every form in which a program may print the value, or a line of it; as secret as it."""
        if self._spellings is None:
            lines = (line.strip() for line in self._value.splitlines())
            parts = {part for part in (self._value, *lines) if len(part) >= SHORTEST_SECRET}
            self._spellings = frozenset(form for part in parts for form in _forms(part))
        return self._spellings

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
        if _TOKEN.search(address):
            return _URL_TOKEN
    return None


def redact(text: str, known: Iterable[Secret] = ()) -> str:
    """Replace known secret values, presigned URLs and credentials in URLs in text of our own."""
    # Longest first, so that a value containing another one is replaced whole.
    forms = {form for secret in known for form in secret.spellings()}
    for form in sorted(forms, key=len, reverse=True):
        text = text.replace(form, PLACEHOLDER)
    return _ADDRESS.sub(_redact_address, text)


def _redact_address(match: re.Match[str]) -> str:
    address = match.group()
    if _SIGNATURE.search(address):
        return PLACEHOLDER
    before, at, host = address.rpartition("@")
    if found := _USER.search(before):
        return before[: found.end()] + PLACEHOLDER + at + host
    return _TOKEN.sub(rf"\1{PLACEHOLDER}@", address)


def _forms(value: str) -> Iterator[str]:
    """The value as it is, escaped as in JSON and Python, quoted as in a URL, and in base64."""
    import base64
    from urllib.parse import quote  # both here, because most processes redact nothing

    yield value
    yield repr(value)[1:-1]
    for ascii_only in (True, False):
        escaped = json.dumps(value, ensure_ascii=ascii_only)[1:-1]
        yield escaped
        yield json.dumps(escaped, ensure_ascii=ascii_only)[1:-1]  # JSON quoted in JSON
    data = value.encode(errors="surrogatepass")
    for safe in ("", "/"):
        quoted = quote(data, safe)
        yield quoted
        yield re.sub("%..", lambda code: code.group().lower(), quoted)
        yield quoted.replace("%20", "+")
    # Other bytes may stand before the value ("user:value"): only whole characters of it count.
    for others in range(3):
        encoded = base64.b64encode(bytes(others) + data).decode()
        whole = encoded[-(-others * 4 // 3) : (others + len(data)) * 4 // 3]
        yield whole
        yield whole.replace("+", "-").replace("/", "_")
