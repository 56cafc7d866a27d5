"""The questions of a launch at a terminal: only what is missing, in the order of the intake."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tao_sdk import settings
from tao_sdk.cli.asking import (
    ask,
    ask_yes,
    entry,
    heading,
    number,
    numbered,
    tell,
    tell_exactly,
    whole_number,
)
from tao_sdk.cli.launch_flags import command_line, with_absolute_places
from tao_sdk.cli.session import Session
from tao_sdk.errors import ValidationError
from tao_sdk.launch import LaunchPlan, Question
from tao_sdk.launch.intake import (
    askable_keys,
    map_of,
    open_file_names,
    roots_to_ask,
)
from tao_sdk.launch.prompt import credential_lines, dataset_lines
from tao_sdk.skills import SkillBank

_TITLES = {
    "platform": "Platform",
    "dataset": "Data",
    "image": "Image",
    "compute": "Compute shape",
    "credentials": "Credentials",
    "monitoring": "Monitoring",
    "status_interval": "Monitoring",
}
_ACCEPT = "use it"
_FIELDS = ("train_root", "eval_root", "calibration_root")


def choose_model(bank: Path | None) -> str:
    """Which model, from those of the bank."""
    found = SkillBank(bank)
    names = found.list_models()
    heading("Model")
    for position, name in enumerate(names, start=1):
        skill = found.model(name)
        entry(position, skill.network_arch, _first_sentence(str(skill.info.get("description"))))
    pick = numbered(names)
    return ask("Number or name", lambda answer: found.find_model(pick(answer)))


class Wizard:
    """Asks until nothing is missing."""

    def __init__(self, session: Session, plan: LaunchPlan) -> None:
        self._session = session
        self._plan = plan
        self._passed: set[str] = set()
        self._parts = list(dict.fromkeys(_TITLES[question.id] for question in plan.missing()))

    def complete(self) -> LaunchPlan | None:
        """The whole plan; None when something is missing that cannot be typed here."""
        askers: dict[str, Callable[[Question], None]] = {
            "platform": self._platform,
            "dataset": self._dataset,
            "image": self._image,
            "compute": self._compute,
            "monitoring": self._monitoring,
            "status_interval": self._interval,
        }
        self._say_hello()
        shown = ""
        while (question := self._next()) is not None:
            if _TITLES[question.id] != shown:
                shown = _TITLES[question.id]
                if shown == _TITLES["monitoring"]:
                    self._credentials_are_there()
                heading(shown, self._step(shown))
            if question.id == "credentials":
                self._explain_credentials(question)
                return None
            askers[question.id](question)
            self._passed.add(question.id)
        return self._plan

    def _next(self) -> Question | None:
        """The first question that is open and was not passed over."""
        for question in self._plan.missing():
            if question.required or question.id not in self._passed:
                return question
        return None

    def _step(self, title: str) -> str:
        if title not in self._parts:  # the platform that was chosen wants credentials
            self._parts.insert(len(self._parts) - 1, title)
        return f"{self._parts.index(title) + 1} of {len(self._parts)}"

    def _say_hello(self) -> None:
        facts = self._plan.facts
        if self._parts:
            tell(
                f"{facts.skill.folder} {self._plan.action}: nothing is created before you have "
                "seen the review. Enter takes what is in [brackets], Ctrl-C stops."
            )
        if facts.automl.notice:
            tell(facts.automl.notice)

    # ---------------------------------------------------------------- the questions

    def _platform(self, question: Question) -> None:
        for position, item in enumerate(question.items, start=1):
            entry(position, str(item["name"]), str(item["description"]))
        pick = numbered(question.choices)

        def accept(answer: str) -> None:
            wanted = self._plan.set(platform=pick(answer)).facts
            if wanted.no_way_there:
                raise ValidationError(wanted.no_way_there)
            self._set(platform=wanted.plan.platform)

        ask("Number or name", accept, question.default)

    def _dataset(self, question: Question) -> None:
        for line in dataset_lines(self._plan.facts):
            tell(f"  {line}" if line else "")
        tell()
        mode = self._mode(question) if roots_to_ask(self._plan.facts) else "B"
        if mode == "A":
            for root in roots_to_ask(self._plan.facts):
                self._root(root, required=question.required)
            for token in open_file_names(self._plan.facts):
                ask(token, lambda answer, token=token: self._set(file_names={token: answer}))  # type: ignore[misc]  # bound now
        elif mode == "B":
            for key in askable_keys(self._plan.facts):
                self._key(key, required=question.required)

    def _mode(self, question: Question) -> str:
        choices = ("A", "B") if question.required else ("A", "B", "none")

        def accept(answer: str) -> str:
            for choice in choices:
                if choice.casefold().startswith(answer.casefold()):
                    return choice
            raise ValidationError(f"please answer {' or '.join(choices)}")

        labels = "A (roots) or B (exact paths)" + ("" if question.required else ", or none")
        return ask(labels, accept, "A" if question.required else "none")

    def _root(self, root: str, *, required: bool) -> None:
        ask(
            root if required else f"{root} (Enter for none)",
            lambda answer: self._set_root(root, answer),
            *_empty(required),
        )
        for key in map_of(self._plan.facts, root):
            if key in self._plan.facts.paths:
                tell_exactly(f"  -> {key}={self._plan.facts.paths[key]}")

    def _set_root(self, root: str, answer: str) -> None:
        if answer:
            self._set(**({root: answer} if root in _FIELDS else {"roots": {root: answer}}))

    def _key(self, key: str, *, required: bool) -> None:
        def accept(answer: str) -> None:
            if answer:
                self._set(specs={key: answer})

        ask(key if required else f"{key} (Enter for none)", accept, *_empty(required))

    def _image(self, question: Question) -> None:
        for line in question.question.splitlines():
            tell(f"  {line}" if line else "")

        def accept(answer: str) -> None:
            if answer in (_ACCEPT, "y", "yes"):
                self._set(image_confirmed=True)
            else:
                self._set(image=answer.removeprefix("image="))

        ask("Enter, or image=<override>", accept, _ACCEPT)

    def _compute(self, question: Question) -> None:
        tell(f"  {question.why}")
        default = question.default or {"gpus": 1, "nodes": 1}
        shape = self._plan.facts.compute
        ask(
            "GPUs per node (0 is none)",
            lambda answer: self._set(gpus=whole_number(answer)),
            str(default["gpus"]),
        )
        if shape.nodes is None:
            ask(
                "Nodes",
                lambda answer: self._set(nodes=whole_number(answer)),
                str(default["nodes"]),
            )

    def _explain_credentials(self, question: Question) -> None:
        tell("  These are not set in your environment:")
        for line in credential_lines(question):
            tell(f"  {line}")
        tell()
        tell("Nothing was created. Set them in your shell, and go on where you are:")
        for item in question.items:
            tell(f"  {_setting(str(item['name']))}")
        # Not wrapped, because it is there to be copied.
        tell_exactly(f"  {command_line(self._session, self._plan)}")

    def _credentials_are_there(self) -> None:
        """A part that was announced and needs no answer."""
        title = _TITLES["credentials"]
        if title in self._parts:
            heading(title, self._step(title))
            names = [credential.name for credential in self._plan.facts.credentials]
            tell(f"  set: {', '.join(names)}" if names else "  none are needed")

    def _monitoring(self, question: Question) -> None:
        tell(f"  {question.why}")
        watch = ask_yes("Watch the run here until it ends?", default=bool(question.default))
        self._set(monitor=watch)

    def _interval(self, question: Question) -> None:
        tell(f"  {question.why}")
        ask(
            "Minutes between two reports",
            lambda answer: self._set(status_interval_minutes=number(answer)),
            f"{question.default:g}",
        )

    def _set(self, **answers: Any) -> None:
        """Keep an answer, unless something is wrong with it."""
        plan = with_absolute_places(self._plan.set(**answers))
        plan.missing()
        self._plan = plan


def _empty(required: bool) -> tuple[str | None]:
    return (None if required else "",)


def _setting(name: str) -> str:
    """How to set a variable; a secret is not to be seen on the screen or in the history."""
    is_secret = name in settings.SETTINGS and settings.SETTINGS[name].secret
    return f"read -rs {name} && export {name}" if is_secret else f"export {name}=…"


def _first_sentence(text: str) -> str:
    return text.partition(". ")[0].rstrip(".")
