"""A question that a launch still has, for people and for programs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["Question"]


@dataclass(frozen=True)
class Question:
    """One thing that is not known yet."""

    id: str
    """platform, dataset, image, compute, credentials, monitoring or status_interval."""
    question: str
    why: str
    choices: tuple[str, ...] = ()
    default: Any = None
    """What holds when the person accepts the suggestion; None where there is none."""
    examples: tuple[str, ...] = ()
    required: bool = True
    """False: the default is used when nobody answers."""
    answer_with: tuple[str, ...] = ()
    """Flags of `tao-sdk launch` or variables of the environment that answer it."""
    items: tuple[Mapping[str, Any], ...] = ()
    """The parts of the answer: platforms, spec keys, credentials."""

    def as_json(self) -> dict[str, Any]:
        """The same under keys that stay."""
        return {
            "id": self.id,
            "question": self.question,
            "choices": list(self.choices),
            "default": self.default,
            "examples": list(self.examples),
            "why": self.why,
            "required": self.required,
            "answer_with": list(self.answer_with),
            "items": [dict(item) for item in self.items],
        }
