"""AutoML or a plain run."""

from __future__ import annotations

import pytest
from launch_situations import BANK, forget_everything, whole
from skill_banks import TINY, Bank

from tao_sdk.errors import UnsupportedError
from tao_sdk.launch import LaunchPlan, automl
from tao_sdk.launch.review import review_facts, review_json


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    forget_everything(monkeypatch)


def test_by_default_it_is_recommended_and_a_plain_run_is_made_with_a_word_about_it() -> None:
    plan = whole("local", automl="auto", gpus=1)
    route = plan.facts.automl
    assert route.recommended
    assert "recommended route" in route.notice
    assert "--automl off" in route.notice
    assert ("automl", route.notice) in list(review_facts(plan))
    assert review_json(plan)["automl"]["recommended"] is True


def test_off_is_a_plain_run_without_a_word() -> None:
    plan = whole("local", automl="off", gpus=1)
    route = plan.facts.automl
    assert (route.recommended, route.notice) == (False, "")
    assert review_json(plan)["automl"]["reason"] == "the policy is off"


def test_on_is_refused_while_there_is_no_engine() -> None:
    with pytest.raises(UnsupportedError, match="policy off"):
        whole("local", automl="on").missing()


@pytest.mark.parametrize(
    ("model", "action", "reason"),
    [
        ("tao-train-dino", "evaluate", "tunes train, not evaluate"),
        ("tiny-off", "train", "automl_enabled is false"),
        ("tiny-blocked", "train", "not this one"),
        ("tiny-without-schema", "train", "is not packaged"),
        ("tiny-half-a-schema", "train", "is invalid JSON"),
        ("tiny-list-of-schemas", "train", "is invalid JSON: not an object"),
    ],
)
def test_models_that_cannot_be_tuned(
    model: str, action: str, reason: str, tmp_path: object
) -> None:
    bank: object = BANK
    if model.startswith("tiny"):
        made = Bank(tmp_path / "bank")  # type: ignore[operator]  # the fixture is a class
        made.add_model("tiny-off", automl_enabled=False)
        made.add_model("tiny-blocked", automl_blocked_reason="not this one")
        made.add_model("tiny-without-schema")
        for name, text in (("tiny-half-a-schema", '{"a":'), ("tiny-list-of-schemas", "[]")):
            schema = made.add_model(name) / "schemas" / "train.schema.json"
            schema.parent.mkdir()
            schema.write_text(text)
        bank = made.root
    plan = LaunchPlan(model, action, bank=bank)  # type: ignore[arg-type]
    assert plan.facts.automl.notice == ""
    assert not plan.facts.automl.recommended
    assert reason in plan.facts.automl.reason
    with pytest.raises(ValueError, match=reason):
        plan.set(automl="on").missing()


def test_one_switch_turns_it_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(automl, "engine_is_there", lambda: True)
    for policy in ("auto", "on"):
        route = whole("local", automl=policy, gpus=1).facts.automl
        assert route.recommended
        assert "tunes this training" in route.notice


def test_tiny_bank_model_takes_part(tmp_path: object) -> None:
    bank = Bank(tmp_path / "bank").root  # type: ignore[operator]  # the fixture is a class
    assert LaunchPlan(TINY, bank=bank).facts.automl.recommended
