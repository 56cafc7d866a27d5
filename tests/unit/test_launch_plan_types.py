"""What a launch plan refuses before it is looked at any further."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from launch_situations import forget_everything, whole

from tao_sdk.errors import ValidationError
from tao_sdk.launch import LaunchPlan
from tao_sdk.launch.compute import compute_shape


@pytest.mark.parametrize(
    ("field", "value", "told"),
    [
        ("model", None, "model: expected text, got NoneType"),
        ("model", " ", "model: a name is needed"),
        ("action", 5, "action: expected text, got int"),
        ("platform", None, "platform: expected text"),
        ("image", 5, "image: expected text, got int"),
        ("train_root", 5, "train_root: expected text"),
        ("train_root", ["/a", 5], r"train_root\[1\]: expected text"),
        ("roots", ["/a"], "roots: expected a mapping, got list"),
        ("roots", {"inference_root": 5}, "roots.inference_root: expected text"),
        ("specs", None, "specs: expected a mapping"),
        ("specs", {5: 5}, "a key of specs: expected text"),
        ("file_names", {"a": 5}, "file_names.a: expected text"),
        ("parent", ["/a"], "parent: expected text"),
        ("image_confirmed", "yes", "image_confirmed: expected True or False"),
        ("gpus", "8", "gpus: expected a whole number"),
        ("gpus", 1.5, "gpus: expected a whole number"),
        ("gpus", True, "gpus: expected a whole number"),
        ("gpus", -2, "gpus: -2 makes no sense"),
        ("gpus", -1, "gpus: say how many"),
        ("gpus", 10**9, "gpus: 1000000000 GPUs are more than any platform has"),
        ("nodes", 0, "nodes: 0 is not at least 1"),
        ("nodes", -1, "nodes: -1 is not at least 1"),
        ("nodes", 10**9, "nodes: 1000000000 nodes are more than any platform has"),
        ("monitor", "no", "monitor: expected True or False"),
        ("status_interval_minutes", "5", "status_interval_minutes: '5' is not a number"),
        ("automl", None, "automl: expected text"),
        ("results", 5, "results: expected text"),
        ("env_vars", ["HF_TOKEN"], "env_vars: expected a mapping"),
        ("options", None, "options: expected a mapping"),
        ("options", {"num_nodes": 4}, r"options\.num_nodes: give the nodes of a launch as such"),
        ("options", {"action": "prune"}, r"options\.action: give the action"),
        ("required_fields", {"a": "fps"}, "required_fields.a: expected a list of names"),
        ("deploy", "yes", "deploy: expected True or False"),
        ("variant", 5, "variant: expected text"),
        ("bank", 5, "bank: expected text"),
    ],
)
def test_wrong_values_are_named(field: str, value: Any, told: str) -> None:
    given: dict[str, Any] = {"model": "dino", field: value}
    with pytest.raises(ValidationError, match=f"^{told}"):
        LaunchPlan(**given)
    with pytest.raises(ValidationError, match=f"^{told}"):
        LaunchPlan("dino").set(**{field: value})


def test_a_value_of_the_environment_is_not_repeated() -> None:
    with pytest.raises(ValidationError, match=r"env_vars\.HF_TOKEN: expected text") as caught:
        LaunchPlan("dino", env_vars={"HF_TOKEN": b"hf_secret"})  # type: ignore[dict-item]  # wrong on purpose
    assert "hf_secret" not in str(caught.value)


def test_a_spec_that_leaves_the_number_open_does_not_answer_the_question() -> None:
    metadata: Any = SimpleNamespace(name="train", info={"gpu_spec_key": "train.num_gpus"})
    shape = compute_shape(metadata, {}, None, None, {"train.num_gpus": -1})
    assert (shape.gpus, shape.conflicts) == (None, ())
    assert compute_shape(metadata, {}, None, None, {"train.num_gpus": 2}).gpus == 2


@pytest.mark.parametrize(
    ("key", "value", "told"),
    [
        ("policy.parallelism.dp_shard_size", 0.5, "expected a whole number, got 0.5"),
        ("policy.parallelism.dp_shard_size", -3, "-3 makes no sense"),
        ("policy.parallelism.dp_shard_size", 10**9, "more than any platform has"),
        ("policy.parallelism.dp_replicate_size", 0, "0 is not at least 1"),
    ],
)
def test_a_compute_shape_in_the_spec_is_judged_alike(
    monkeypatch: pytest.MonkeyPatch, key: str, value: Any, told: str
) -> None:
    forget_everything(monkeypatch)
    plan = whole("local", gpus=None, nodes=None).set(specs={key: value})
    with pytest.raises(ValidationError, match=f"{key}: .*{told}"):
        plan.missing()
