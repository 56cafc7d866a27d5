"""What stops the runner. Every message says what was wrong, where, and what to do."""

from __future__ import annotations


class RunnerError(Exception):
    """Something that whoever launched the job can act on."""


class CredentialError(RunnerError):
    """A credential is missing or was refused. Names the variable, never a value."""


class NotFoundError(RunnerError):
    """The store was asked and has no such thing."""


class TransferError(RunnerError):
    """Bytes could not be moved, or those that arrived are not the right ones."""
