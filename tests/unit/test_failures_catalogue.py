"""The catalogue as data: complete, well-formed, documented."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from tao_sdk.failures import ErrClass, Evidence
from tao_sdk.failures.catalogue import BY_ID, CATALOGUE
from tao_sdk.failures.cause import Cause, Standing, fill
from tao_sdk.failures.judge import diagnose

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "failures.md"

# How evidence reaches causes whose sample is no log line.
_SAMPLE_EXIT_CODE = {
    "host-oom-sigkill": 137,
    "terminated": 143,
    "timeout-command": 124,
    "killed-by-signal": 159,
    "bus-error": 135,
    "command-not-found": 127,
    "not-executable": 126,
    "arguments-wrong": 2,
    "runner-no-python": 127,
    "delivery-denied": 74,
    "delivery-failed": 74,
}

each_cause = pytest.mark.parametrize("cause", CATALOGUE, ids=[cause.id for cause in CATALOGUE])


def test_there_are_many_and_each_has_its_own_id() -> None:
    assert len(CATALOGUE) >= 60
    assert len(BY_ID) == len(CATALOGUE)
    assert {cause.err_class for cause in CATALOGUE} == set(ErrClass)


@pytest.mark.seed("000.19")
@each_cause
def test_every_cause_says_what_happened_and_what_to_do(cause: Cause) -> None:
    assert re.fullmatch(r"[a-z0-9]+(?:-[a-z0-9]+)*", cause.id)
    assert cause.cause
    assert cause.suggestion
    assert not cause.suggestion.endswith(".")


@each_cause
def test_patterns_compile_and_cannot_explode(cause: Cause) -> None:
    compiled = [*cause.log_patterns, *cause.reason_patterns]
    for pattern in compiled:
        assert not re.search(r"[+*]\??\)[+*{]", pattern.pattern), "nested repetition"
        assert not re.search(r"(?<![\\\w])\.[+*]", pattern.pattern), "unbounded repetition of ."
    assert compiled or cause.exit_codes or cause.id in _WITHOUT_PATTERNS


_WITHOUT_PATTERNS = {
    "python-exception",
    "killed-by-signal",
    "exit-code",
    "never-started",
    "killed-from-outside",
    "killed-not-for-memory",
    "vanished",
    "no-failure",
    "reported-failure",
}


@each_cause
def test_named_values_of_a_text_come_from_its_patterns(cause: Cause) -> None:
    """A text that always lacks a value would show a question mark."""
    patterns = [*cause.log_patterns, *cause.reason_patterns]
    offered = {name for pattern in patterns for name in pattern.groupindex}
    offered |= {"exception", "message", "frame", "code", "signal", "reason"}
    used = set(re.findall(r"\{(\w+)\}", cause.cause + cause.suggestion))
    assert used <= offered


@pytest.mark.parametrize(
    "cause", [cause for cause in CATALOGUE if cause.sample], ids=lambda cause: cause.id
)
def test_every_sample_is_recognised(cause: Cause) -> None:
    code = _SAMPLE_EXIT_CODE.get(cause.id, 1)
    found = diagnose(Evidence(exit_code=code, log_tail=cause.sample))
    if cause.reason and not cause.log:
        found = diagnose(Evidence(reason=cause.sample))
    if found.cause.id != cause.id:
        found = diagnose(Evidence(exit_code=code, reason=cause.sample))
    assert found.cause.id == cause.id
    needed = re.sub(r"\[[^\[\]]*\]", "", cause.cause + cause.suggestion)
    assert all(found.values[name] for name in re.findall(r"\{(\w+)\}", needed))


def test_only_preemption_and_infrastructure_are_retried() -> None:
    """Lessons F8 and W8: program errors and memory are never called infrastructure."""
    assert [one for one in ErrClass if one.retriable] == [ErrClass.PREEMPTED, ErrClass.INFRA]
    families = Counter(
        cause.id.partition("-")[0] for cause in CATALOGUE if cause.err_class.retriable
    )
    assert not {"spec", "module", "checkpoint", "annotations", "training"} & set(families)


def test_what_other_ranks_print_is_marked_as_a_consequence() -> None:
    """Lesson W8: an NCCL time-out counts, but only when no rank says more."""
    nccl = [cause for cause in CATALOGUE if cause.id.startswith(("nccl-", "gloo-", "rendezvous-"))]
    infra = [cause for cause in nccl if cause.err_class is ErrClass.INFRA]
    assert len(infra) >= 7
    assert all(cause.standing is Standing.COLLATERAL for cause in infra)


@pytest.mark.parametrize(
    ("template", "values", "text"),
    [
        ("no file[: {file}]", {"file": "/a"}, "no file: /a"),
        ("no file[: {file}]", {"file": None}, "no file"),
        ("no file[: {file}]", {}, "no file"),
        ("a[ {x}][ and {y}]", {"y": "2"}, "a and 2"),
        ("[{x} of {y}]", {"x": "1"}, ""),
        ("{x}", {"x": "a\n   b"}, "a b"),
    ],
)
def test_fill(template: str, values: dict[str, str | None], text: str) -> None:
    assert fill(template, values) == text


def test_long_values_are_cut() -> None:
    assert len(fill("{x}", {"x": "a" * 5000})) < 200


def test_the_documentation_shows_the_catalogue() -> None:
    """That it is up to date is tested with the other generated parts."""
    text = PAGE.read_text(encoding="utf-8")
    for cause in CATALOGUE:
        assert f"| `{cause.id}`: " in text
