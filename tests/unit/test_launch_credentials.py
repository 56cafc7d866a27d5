"""Which credentials a launch asks for: only the chosen platform's, only when they apply."""

from __future__ import annotations

import pytest
from launch_situations import (
    BANK,
    COSMOS,
    PLACES,
    forget_everything,
    set_credentials,
    whole,
)

from lab import skill_bank
from tao_sdk.launch import LaunchPlan, inputs_gate
from tao_sdk.launch.gate import preflight_request
from tao_sdk.skills import SkillBank

pytestmark = pytest.mark.seed("001.6")
DINO = "tao-train-dino"


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    forget_everything(monkeypatch)


def asked(plan: LaunchPlan) -> list[str]:
    """The names that are asked for."""
    found = [question for question in plan.missing() if question.id == "credentials"]
    return [str(item["name"]) for question in found for item in question.items]


def dino(platform: str, folder: str, **changes: object) -> LaunchPlan:
    roots = {"train_root": f"{folder}/t", "eval_root": f"{folder}/e"}
    return LaunchPlan(DINO, platform=platform, bank=BANK, gpus=1, **{**roots, **changes})  # type: ignore[arg-type]  # keywords of several types


@pytest.mark.parametrize("platform", PLACES)
def test_no_platform_asks_for_anothers(platform: str) -> None:
    names = asked(whole(platform))
    assert names == [*PLACES[platform].credentials, "HF_TOKEN"]
    for other, prefix in (("slurm", "SLURM"), ("lepton", "LEPTON"), ("brev", "BREV")):
        if other != platform:
            assert not any(name.startswith(prefix) for name in names)


def test_slurm_asks_for_the_key_first_and_never_mentions_the_agent() -> None:
    plan = whole("slurm")
    assert asked(plan)[0] == "SSH_KEY_PATH"
    assert "SSH_AUTH_SOCK" not in plan.prompt()


@pytest.mark.parametrize("member", ["SSH_KEY_PATH", "SSH_AUTH_SOCK"])
def test_one_of_a_group_is_enough(member: str, monkeypatch: pytest.MonkeyPatch) -> None:
    set_credentials(monkeypatch, member, "HF_TOKEN", "SLURM_USER", "SLURM_HOSTNAME")
    assert asked(whole("slurm")) == ["SLURM_PARTITION"]


@pytest.mark.parametrize(
    ("platform", "folder", "results", "wanted"),
    [
        ("local", "/d", "", []),
        ("local", "s3://b/d", "", ["ACCESS_KEY", "SECRET_KEY"]),
        ("local", "/d", "s3://b/results", ["ACCESS_KEY", "SECRET_KEY"]),
        ("local-docker", "s3://b/d", "", ["ACCESS_KEY", "SECRET_KEY"]),
        ("kubernetes", "/mounted", "", []),
        ("kubernetes", "s3://b/d", "", ["ACCESS_KEY", "SECRET_KEY"]),
        ("brev", "s3://b/d", "", ["ACCESS_KEY", "SECRET_KEY"]),
        # Lustre is what SLURM reads from: its record has no keys for S3.
        ("slurm", "s3://b/d", "", list(PLACES["slurm"].credentials)),
    ],
)
def test_keys_of_a_store_only_when_something_is_there(
    platform: str, folder: str, results: str, wanted: list[str]
) -> None:
    assert asked(dino(platform, folder, results=results)) == wanted


@pytest.mark.parametrize(
    ("platform", "image", "wanted"),
    [
        ("local-docker", None, []),
        ("local-docker", "nvcr.io/nvidia/pytorch:24.01-py3", []),
        ("local-docker", "nvcr.io/my-org/my-team/own:1", ["NGC_KEY"]),
        ("local-docker", "docker.io/me/own:1", []),
        ("kubernetes", "nvcr.io/my-org/own:1", ["NGC_KEY"]),
        # Nothing is pulled there.
        ("local", "nvcr.io/my-org/own:1", []),
    ],
)
def test_the_key_of_ngc_only_for_private_images(
    platform: str, image: str | None, wanted: list[str]
) -> None:
    assert asked(dino(platform, "/d", image=image)) == wanted


def test_data_at_ngc_need_the_key() -> None:
    plan = dino("local-docker", "/d", pretrained="ngc://nvidia/tao/dino:1")
    assert asked(plan) == ["NGC_KEY"]


def test_the_model_s_own_are_asked_for_once_and_explained() -> None:
    plan = whole("kubernetes")
    assert asked(plan).count("HF_TOKEN") == 1
    states = {condition.id: condition.state for condition in inputs_gate(plan).conditions}
    assert states["model_credentials"] == "missing"
    [question] = [one for one in plan.missing() if one.id == "credentials"]
    assert all(item["description"] and item["how_to_get"] for item in question.items)
    assert "How to get it:" in plan.prompt()
    assert asked(dino("local", "/d")) == []


def test_a_model_s_own_may_be_given_to_the_job_alone() -> None:
    plan = whole("local", env_vars={"HF_TOKEN": "a-token"})
    assert asked(plan) == []
    states = {condition.id: condition.state for condition in inputs_gate(plan).conditions}
    assert states["model_credentials"] == "holds"
    assert preflight_request(plan).model_credentials == ()
    assert asked(plan.set(env_vars={"HF_TOKEN": " "})) == ["HF_TOKEN"]
    keys = {"HF_TOKEN": "a-token", "ACCESS_KEY": "a", "SECRET_KEY": "s"}
    assert asked(whole("kubernetes", env_vars=keys)) == ["ACCESS_KEY", "SECRET_KEY"], (
        "the store is looked at from here"
    )


def test_before_a_platform_is_chosen_only_the_model_s_are_known() -> None:
    assert asked(LaunchPlan(COSMOS, bank=BANK)) == ["HF_TOKEN"]


@pytest.mark.seed("002.3")
def test_optional_ones_are_for_reference() -> None:
    platform = dino("slurm", "/d").facts.platform
    assert platform is not None
    names = [str(one["name"]) for one in platform["optional_credentials"]]
    assert names == [
        "SLURM_BASE_RESULTS_DIR",
        "SLURM_ACCOUNT",
        "SLURM_CONTAINER_MOUNTS",
        "NGC_KEY",
        "HF_TOKEN",
    ]
    assert not set(names) & set(asked(dino("slurm", "/d")))


def test_blank_is_not_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "  ")
    assert "DOCKER_HOST" in asked(dino("remote-docker", "/d"))


def test_no_value_is_ever_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    set_credentials(monkeypatch, "HF_TOKEN", "SLURM_USER", "ACCESS_KEY", "NGC_KEY")
    plan = whole("slurm")
    shown = f"{plan!r} {plan.prompt()} {[q.as_json() for q in plan.missing()]} {inputs_gate(plan)}"
    assert "the-value-of" not in shown
    secretive = plan.set(env_vars={"MY_TOKEN": "the-value-of-mine"})
    assert "the-value-of" not in repr(secretive)


def test_the_conditions_of_a_real_bank_are_understood() -> None:
    bank = SkillBank(skill_bank())
    for platform in ("lepton", "brev", "local-docker", "kubernetes"):
        for folder, wanted in (("/d", set()), ("s3://b/d", {"ACCESS_KEY", "SECRET_KEY"})):
            plan = LaunchPlan(DINO, platform=platform, bank=bank)
            plan = plan.set(specs=dict.fromkeys(plan.facts.open_keys, f"{folder}/x"))
            optional = set(asked(plan)) & {"ACCESS_KEY", "SECRET_KEY", "NGC_KEY", "HF_TOKEN"}
            assert optional == wanted, (platform, folder)
    private = LaunchPlan(DINO, platform="slurm", image="nvcr.io/my-org/own:1", bank=bank)
    assert "NGC_KEY" in asked(private)
    assert "HF_TOKEN" in asked(whole("slurm").set(bank=bank, train_root="", eval_root=""))
    assert "S3_ENDPOINT_URL" not in asked(private)
