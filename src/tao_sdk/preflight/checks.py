"""What a preflight finds: one `Check` for each thing that was looked at."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from tao_sdk.secrets import Secret, redact
from tao_sdk.visible_text import one_line, visible

PASSED, FAILED, WARNING, SKIPPED = "passed", "failed", "warning", "skipped"


@dataclass(frozen=True)
class Check:
    """One finding."""

    name: str
    """A stable id, such as `credentials`, `ssh`, `path:train_annotation` or `docker.daemon`."""
    status: str
    """passed, failed, warning or skipped."""
    message: str
    """One line: what was found."""
    remedy: str = ""
    """What to do about it; may be several lines."""
    details: Mapping[str, Any] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "status": self.status,
            "message": self.message,
            "remedy": self.remedy,
            "details": dict(self.details),
        }


class Task(NamedTuple):
    """Checks that belong together, made one after the other; tasks run side by side."""

    name: str
    """For the finding that says that the task itself failed."""
    run: Callable[[], Iterable[Check]]


def passed(name: str, message: str, **details: Any) -> Check:
    return Check(name, PASSED, message, details=details)


def failed(name: str, message: str, remedy: str = "", **details: Any) -> Check:
    return Check(name, FAILED, message, remedy, details)


def warning(name: str, message: str, remedy: str = "", **details: Any) -> Check:
    return Check(name, WARNING, message, remedy, details)


def skipped(name: str, message: str, **details: Any) -> Check:
    return Check(name, SKIPPED, message, details=details)


def presentable(check: Check, secrets: Iterable[Secret]) -> Check:
    """The same finding with nothing secret in it, its message on one line of plain text."""
    known = list(secrets)
    return replace(
        check,
        name=one_line(redact(check.name, known)),  # a path may be its own label
        message=one_line(redact(check.message, known)),
        remedy=visible(redact(check.remedy, known)),
        details={name: _redacted(value, known) for name, value in check.details.items()},
    )


def _redacted(value: Any, known: list[Secret]) -> Any:
    if isinstance(value, str):
        return redact(value, known)
    if isinstance(value, Mapping):
        return {key: _redacted(inner, known) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_redacted(inner, known) for inner in value]
    return value
