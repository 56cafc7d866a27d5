"""The flags of `tao-sdk launch`: words become a plan, and a plan becomes the same words."""

from __future__ import annotations

import shlex
from pathlib import Path

import click
import pytest
from launch_situations import BANK, forget_everything, whole

from tao_sdk.cli.launch import command
from tao_sdk.cli.launch_flags import LaunchFlags, command_line, make_launch_plan
from tao_sdk.cli.session import Session
from tao_sdk.errors import ValidationError
from tao_sdk.launch import LaunchPlan
from tao_sdk.skills.layout import PACKAGED_BANK

OURS = ("yes", "dry_run", "no_watch")


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    forget_everything(monkeypatch)
    monkeypatch.setenv("MINE", "a value")


def parsed(words: list[str]) -> LaunchPlan:
    session = Session()
    context = command.make_context("launch", words, obj=session)
    given = {name: value for name, value in context.params.items() if name not in OURS}
    return make_launch_plan(session, LaunchFlags(**given))


WHOLE = LaunchPlan(
    "dino",
    "quantize",
    platform="local",
    train_root=("/d/a b", "/d/b"),
    eval_root="/d/e",
    calibration_root="s3://bucket/c",
    roots={"inference_root": "/d/i"},
    specs={"train.num_epochs": 3, "dataset.batch_size": 2, "quantize.model_path": "/m.pth"},
    file_names={"token": "name.json"},
    parent="/m/parent.pth",
    resume="/m/resume.pth",
    pretrained="hf_model://org/name",
    image="registry/own:1",
    gpus=2,
    nodes=3,
    monitor=False,
    status_interval_minutes=2.5,
    automl="off",
    results="s3://bucket/results",
    env_vars={"MINE": "a value"},
    options={"when_busy": "refuse"},
    required_fields={"some.key": ("fps", "id")},
    confirmed_mounts=True,
    deploy=True,
    variant="small",
    bank=PACKAGED_BANK,
)


@pytest.mark.parametrize(
    "plan",
    [WHOLE, whole("local"), whole("slurm", "direct"), LaunchPlan("dino", bank=BANK)],
    ids=["whole", "roots", "direct", "bare"],
)
def test_there_and_back(plan: LaunchPlan) -> None:
    line = command_line(Session(), plan)
    words = shlex.split(line)
    assert words[:2] == ["tao-sdk", "launch"]
    assert "a value" not in line
    assert parsed(words[2:]) == plan


def test_the_state_file_is_part_of_the_way_back(tmp_path: Path) -> None:
    session = Session()
    session.use_state_file(tmp_path / "runs.json")
    line = command_line(session, LaunchPlan("dino", bank=BANK))
    assert line.startswith(f"tao-sdk --state {tmp_path}/runs.json launch dino")


@pytest.mark.parametrize(
    ("text", "value"),
    [("3", 3), ("0.1", 0.1), ("true", True), ("[1, 2]", [1, 2]), ("abc", "abc"), ('"3"', "3")],
)
def test_values_of_the_spec_are_json_where_they_can_be(text: str, value: object) -> None:
    plan = parsed(["dino", "--set", f"some.key={text}"])
    assert plan.specs == {"some.key": value}


@pytest.mark.parametrize(
    "words",
    [
        ["--set", "train.num_epochs"],
        ["--set", "=3"],
        ["--set", "a=1", "--set", "a=2"],
        ["--root", "inference_root"],
        ["--option", "when_busy=refuse"],
        ["--platform", "local", "--option", "when_bizy=refuse"],
        ["--platform", "local", "--option", "when_busy=perhaps"],
        ["--automl", "sometimes"],
        ["--env", "NOT_SET_ANYWHERE"],
    ],
)
def test_words_that_say_nothing_are_refused(words: list[str]) -> None:
    with pytest.raises((click.UsageError, ValidationError)):
        parsed(["dino", *words])
