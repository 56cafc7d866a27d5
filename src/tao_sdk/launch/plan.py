"""`LaunchPlan`: everything that is decided about a launch, bit by bit or at once."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

from tao_sdk.errors import UnknownOptionError, ValidationError
from tao_sdk.launch.automl import POLICIES
from tao_sdk.launch.plan_types import check_fields
from tao_sdk.launch.questions import Question
from tao_sdk.skills import SkillBank

if TYPE_CHECKING:
    from tao_sdk.launch.facts import Facts

__all__ = ["LaunchPlan"]

_PLACES = (
    "train_root", "eval_root", "calibration_root", "parent", "resume", "pretrained", "results"
)  # fmt: skip
_SPACE = re.compile(r"\s")


@dataclass(frozen=True)
class LaunchPlan:
    """What shall run where. Making one looks at nothing and creates nothing.

        plan = LaunchPlan("dino", "train")
        for question in plan.missing():
            print(question.question)
        plan = plan.set(platform="slurm", train_root="/lustre/you/coco/train")

    Values of credentials are no part of it: they stay in the environment.
    """

    model: str
    action: str = "train"
    platform: str = ""
    train_root: str | Sequence[str] = ""
    """Root mode: the folder of a dataset, below which the model's own map finds the files."""
    eval_root: str | Sequence[str] = ""
    calibration_root: str | Sequence[str] = ""
    roots: Mapping[str, str | Sequence[str]] = field(default_factory=dict)
    """Other roots that an action has, such as `inference_root`."""
    specs: Mapping[str, Any] = field(default_factory=dict)
    """Direct spec mode, and every other value of the spec: by dotted key or short name."""
    file_names: Mapping[str, str] = field(default_factory=dict)
    parent: str = ""
    """The checkpoint that is evaluated, exported, pruned, ..."""
    resume: str = ""
    pretrained: str = ""
    image: str | None = None
    """An image instead of the default one."""
    image_confirmed: bool = False
    """The default image was shown and accepted."""
    gpus: int | None = None
    nodes: int | None = None
    monitor: bool | None = None
    status_interval_minutes: float | None = None
    automl: str = "auto"
    results: str = ""
    """A folder or an address for results, where the platform's own place is not wanted."""
    env_vars: Mapping[str, str] = field(default_factory=dict, repr=False)
    options: Mapping[str, Any] = field(default_factory=dict)
    """Keywords of the platform's `create_job`."""
    required_fields: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Fields that every record of an annotation file must have, by the file's spec key."""
    confirmed_mounts: bool = False
    """Somebody vouches that paths of a remote platform are mounted into its jobs."""
    deploy: bool = False
    variant: str | None = None
    bank: SkillBank | str | Path | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        self._take_paths_as_texts()
        fields = dataclasses.fields(self)
        check_fields({entry.name: getattr(self, entry.name) for entry in fields})
        if self.image is not None and not self.image.strip():
            raise ValidationError(
                "image: the override is empty: give an image reference, or confirm the default"
            )
        if self.image is not None and not self.image.startswith("/") and _SPACE.search(self.image):
            raise ValidationError(f"image: {self.image!r} has a space in it: no image has")
        if self.automl not in POLICIES:
            raise ValidationError(f"automl: {self.automl!r} is not one of {', '.join(POLICIES)}")

    def _take_paths_as_texts(self) -> None:
        for name in _PLACES:
            value = getattr(self, name)
            if isinstance(value, (list, tuple)):
                object.__setattr__(self, name, tuple(_text(item) for item in value))
            else:
                object.__setattr__(self, name, _text(value))
        for name in ("roots", "specs"):
            value = getattr(self, name)
            if isinstance(value, Mapping):
                object.__setattr__(self, name, {key: _text(item) for key, item in value.items()})

    def set(self, **answers: Any) -> LaunchPlan:
        """The same plan with these answers; mappings are added to what was there."""
        known = {entry.name: entry for entry in dataclasses.fields(self)}
        for name, value in answers.items():
            if name not in known:
                raise UnknownOptionError(f"a launch has no {name!r}; it has: {', '.join(known)}")
            before = getattr(self, name)
            if isinstance(before, Mapping) and isinstance(value, Mapping):
                answers[name] = {**before, **value}
        return dataclasses.replace(self, **answers)

    @cached_property
    def facts(self) -> Facts:
        """What the bank says about these decisions."""
        from tao_sdk.launch.facts import Facts

        return Facts(self)

    def missing(self) -> list[Question]:
        """What is still to be asked, in the order in which it is asked. Empty: all is known."""
        from tao_sdk.launch.intake import open_questions

        return open_questions(self)

    def prompt(self, width: int = 90) -> str:
        """The open questions as one text for a person; "" when there is none."""
        from tao_sdk.launch.prompt import prompt_text

        return prompt_text(self, width)

    def with_defaults(self) -> LaunchPlan:
        """The same plan with every suggestion accepted: image, GPUs, nodes, monitoring."""
        facts = self.facts
        return self.set(
            image_confirmed=True,
            gpus=facts.compute.gpus if facts.compute.gpus is not None else facts.default_gpus,
            nodes=facts.nodes,
            monitor=facts.monitor,
            status_interval_minutes=facts.status_interval_minutes,
        )

    def given_roots(self) -> dict[str, str | Sequence[str]]:
        """The roots that were given, by name."""
        named = {
            "train_root": self.train_root,
            "eval_root": self.eval_root,
            "calibration_root": self.calibration_root,
            **self.roots,
        }
        return {name: value for name, value in named.items() if value}


def _text(value: Any) -> Any:
    """People hand over paths as `Path`, too."""
    return str(value) if isinstance(value, PurePath) else value
