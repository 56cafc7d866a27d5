"""The open questions as one text: what a person or an agent is shown before anything exists."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterator

from tao_sdk.launch.datasets import direct_examples, example_root
from tao_sdk.launch.facts import Facts
from tao_sdk.launch.intake import (
    LONG,
    SMOKE,
    askable_keys,
    example_platform,
    map_of,
    open_file_names,
    platform_examples,
    roots_to_ask,
)
from tao_sdk.launch.plan import LaunchPlan
from tao_sdk.launch.questions import Question

__all__ = ["credential_lines", "dataset_lines", "fitted", "prompt_text"]

_BEGIN = re.compile(r" *(?:\d+\. |[A-Z]\) |->? )?")
_LONG_PATH = re.compile(r"((?:=\w+:/)?/[^/]+(?:/[^/]+)?)/.+/([^/]+/[^/]+)$")
_PARTS = {
    "platform": "platform",
    "dataset": "dataset",
    "image": "image",
    "compute": "compute",
    "credentials": "credentials",
    "monitoring": "monitoring",
    "status_interval": "monitoring",
}


def prompt_text(plan: LaunchPlan, width: int = 90) -> str:
    """Six parts at most, numbered, with examples for the chosen model and platform."""
    by_part: dict[str, list[Question]] = {}
    for question in plan.missing():
        by_part.setdefault(_PARTS[question.id], []).append(question)
    if not by_part:
        return ""
    writers: dict[str, Callable[[Facts, list[Question]], Iterator[str]]] = {
        "platform": _platform,
        "dataset": _dataset,
        "image": _image,
        "compute": _compute,
        "credentials": _credentials,
        "monitoring": _monitoring,
    }
    blocks = ["I need these inputs before anything is created for the launch:"]
    for number, (part, questions) in enumerate(by_part.items(), start=1):
        lines = list(writers[part](plan.facts, questions))
        blocks.append(_numbered(number, lines, width))
    return "\n\n".join(blocks)


def _numbered(number: int, lines: list[str], width: int) -> str:
    shown = []
    for position, line in enumerate(lines):
        margin = f"{number}. " if position == 0 else "   "
        shown.append(fitted(margin + line, width) if line else "")
    return "\n".join(shown)


def fitted(line: str, width: int) -> str:
    """A line that fits: prose is broken below itself, a long path loses its middle."""
    begin = _BEGIN.match(line)
    hanging = begin.end() if begin else 0
    if " " not in line[hanging:]:
        return line if len(line) <= width else _LONG_PATH.sub(r"\1/.../\2", line)
    return textwrap.fill(
        line,
        width,
        subsequent_indent=" " * hanging,
        break_long_words=False,
        break_on_hyphens=False,
    )


# ---------------------------------------------------------------- the parts


def _platform(facts: Facts, _questions: list[Question]) -> Iterator[str]:
    names = [record["name"] for record in facts.manifest["platforms"]]
    yield f"Execution platform: {', '.join(names[:-1])}, or {names[-1]}."


def _dataset(facts: Facts, questions: list[Question]) -> Iterator[str]:
    needed = "" if questions[0].required else f" {facts.title} also runs without."
    yield f"Dataset inputs.{needed} Either mode will do:"
    yield from dataset_lines(facts)


def dataset_lines(facts: Facts) -> Iterator[str]:
    """Both modes with the model's own keys, and folders as the platform names them."""
    keys, shown = askable_keys(facts), example_platform(facts)
    roots = roots_to_ask(facts)
    if roots:
        names = " and ".join([", ".join(roots[:-1]), roots[-1]] if roots[1:] else roots)
        yield f"A) Root mode: give {names}, and the files below are found by the model's own map."
        for root in roots:
            yield f"   {root}={example_root(shown, facts.network, root)}"
            yield from (f"   -> {key}={value}" for key, value in map_of(facts, root).items())
        for token in open_file_names(facts):
            yield f"   <{token}> is a file's name: say which by {token}=NAME"
    else:
        yield f"A) Root mode: {facts.title} has no map from roots, so B is the way."
    yield "B) Direct spec mode: give the exact paths yourself; they are taken as they are."
    direct = direct_examples(keys, facts.data_sources, shown, facts.network, facts.data_format)
    yield from (f"   {example}" for example in direct)
    yield ""
    yield "Platform examples:"
    for platform, examples in platform_examples(facts).items():
        yield f"- {platform}: {' or '.join(examples)}"


def _image(facts: Facts, _questions: list[Question]) -> Iterator[str]:
    yield f"Container image for {facts.title}:"
    yield f"default={facts.default_image}"
    yield ""
    yield "Use this image, or provide image=<override>?"


def _compute(facts: Facts, questions: list[Question]) -> Iterator[str]:
    yield "Compute shape: GPUs per node and nodes, such as gpus=8 nodes=2."
    default = questions[0].default
    if default is not None:
        shape = f"gpus={default['gpus']} nodes={default['nodes']}"
        yield f"Suggested for {facts.platform_name}: {shape}"
    keys = facts.compute_keys
    if keys:
        yield f"The spec gets them in {' and '.join(keys)}."


def _credentials(facts: Facts, questions: list[Question]) -> Iterator[str]:
    if facts.platform is None:
        yield "Credentials: those of the platform once it is chosen, and of the model:"
    else:
        yield f"Credentials, set as variables of the environment ({facts.platform_name}):"
    lines = list(credential_lines(questions[0]))
    yield from lines or ["none of the model"]


def credential_lines(question: Question) -> Iterator[str]:
    """Each variable with what it is for and where it comes from."""
    for item in question.items:
        condition = f" ({item['only_when']})" if item["only_when"] else ""
        how = f" How to get it: {item['how_to_get']}" if item["how_to_get"] else ""
        yield f"- {item['name']}{condition}: {item['description']}{how}".rstrip(": ")


def _monitoring(facts: Facts, questions: list[Question]) -> Iterator[str]:
    minutes = f"{facts.status_interval_minutes:g}"
    if questions[0].id == "monitoring":
        default = "watch it here" if facts.monitor else "do not watch it"
        yield (
            f"Monitoring. Default: {default}, with a report every {minutes} minutes, until the job "
            "ends, fails, or you say stop, however long it is queued; without monitoring you get "
            "the job's id and the place of its log."
        )
    else:
        yield f"Time between two reports. Default: {minutes} minutes."
    yield f"Take {SMOKE}, {LONG}."
