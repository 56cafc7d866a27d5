"""Errors of the `brev` program, and what its messages mean."""

from __future__ import annotations

import re

from tao_sdk.errors import BackendUnreachableError, PlatformError


class NotLoggedInError(BackendUnreachableError):
    """No valid login or API key."""


class RefusedError(PlatformError):
    """The program ran and refused."""


# "EOF" is what the program prints when its question "would you like to log in?" finds no input.
_NO_LOGIN = re.compile(
    r"\b401\b|unauthori[sz]ed|logged out|not logged in|log in\?|\bErrorForbidden\b|\b403\b|"
    r"(?m:^|: )EOF\b|refresh token",
    re.IGNORECASE,
)
_NO_CAPACITY = re.compile(
    r"capacity|insufficient|out of stock|not available|unavailable|quota|no instances? (types? )?"
    r"(match|available)",
    re.IGNORECASE,
)
_NO_SUCH = re.compile(
    r"not found|no (such )?(workspace|instance|dev environment)|does not exist|could not find",
    re.IGNORECASE,
)
_TAKEN = re.compile(r"already (exists|in use|taken)|duplicate", re.IGNORECASE)
# The last line of a failed `create` is always the same. The cause is in its progress output, after
# the source position of the program's own trace.
_WHY_NOT_MADE = re.compile(
    r"\bFailed: (?P<why>.*?)\s*(?=^Type \S+ had failures|^Warning: Only created|\Z)",
    re.DOTALL | re.MULTILINE,
)


def why_not_made(said: str) -> str:
    """The cause in the output of a failed `create`; "" if there is none."""
    found = list(_WHY_NOT_MADE.finditer(said))
    lines = [line.strip(" :") for line in found[-1]["why"].splitlines()] if found else []
    return next((line for line in reversed(lines) if line), "")


def says_no_login(complaint: str) -> bool:
    return bool(_NO_LOGIN.search(complaint))


def says_no_capacity(complaint: str) -> bool:
    return bool(_NO_CAPACITY.search(complaint))


def says_no_such_instance(complaint: str) -> bool:
    return bool(_NO_SUCH.search(complaint))


def says_name_taken(complaint: str) -> bool:
    return bool(_TAKEN.search(complaint))
