"""What can be wrong with a skill bank or with what is asked of it."""

from __future__ import annotations

from tao_sdk.errors import TaoError, ValidationError

__all__ = [
    "AmbiguousNameError",
    "BankNotFoundError",
    "MetadataError",
    "MissingNameError",
    "SpecError",
]


class BankNotFoundError(TaoError, FileNotFoundError):
    """There is no skill bank, or no such file in it."""


class MetadataError(ValidationError):
    """A file of the bank does not say what it must; the message names the file and the key."""


class MissingNameError(TaoError, KeyError):
    """The bank has no model, action, platform or spec key of that name."""


class AmbiguousNameError(MissingNameError):
    """A name that fits more than one; the message lists them."""


class SpecError(ValidationError):
    """A value that the action's schema does not allow."""
