"""Every model, action and platform of the banks can be asked about, in one shape."""

from __future__ import annotations

import json

import pytest
from launch_situations import BANK, forget_everything

from lab import skill_bank
from tao_sdk.launch import LaunchPlan, inputs_gate
from tao_sdk.launch.gate import CONDITIONS
from tao_sdk.skills import SkillBank
from tao_sdk.skills.platform_manifest import platform_manifest


@pytest.fixture(params=["packaged", "real"])
def bank(request: pytest.FixtureRequest) -> SkillBank:
    return BANK if request.param == "packaged" else SkillBank(skill_bank())


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    forget_everything(monkeypatch)


@pytest.mark.seed("001.4")
def test_every_action_can_be_asked_about(bank: SkillBank) -> None:
    platforms = ["", *(record["name"] for record in platform_manifest(bank)["platforms"])]
    for model in bank.list_models():
        skill = bank.model(model)
        for action, metadata in skill.actions().items():
            for number, variant in enumerate(skill.variants(metadata) or [None]):
                # One platform per action in turn: all of them meet every kind of action.
                platform = platforms[(len(action) + number + len(model)) % len(platforms)]
                plan = LaunchPlan(
                    model, action, platform=platform, variant=variant, automl="off", bank=bank
                )
                gate = inputs_gate(plan)
                assert [condition.id for condition in gate.conditions] == list(CONDITIONS)
                text = plan.prompt()
                assert plan.facts.default_image in text
                assert all(key in text for key in plan.facts.open_keys)
                json.dumps([question.as_json() for question in gate.questions])


def test_every_root_of_every_action_leads_to_its_keys(bank: SkillBank) -> None:
    """What root mode promises in the question is what it does."""
    for model in bank.list_models():
        skill = bank.model(model)
        for action, metadata in skill.actions().items():
            if skill.variants(metadata):
                continue
            plan = LaunchPlan(model, action, automl="off", bank=bank)
            [*asked] = [one for one in plan.missing() if one.id == "dataset"]
            for item in asked[0].items if asked else ():
                if item["root"] is None or "<" in item["below_root"]:
                    continue
                filled = plan.set(roots={item["root"]: f"/d/{item['root']}"})
                assert filled.facts.paths[item["key"]] == f"/d/{item['below_root']}"
