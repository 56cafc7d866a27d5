"""The intake: which questions are asked, in which order, what the gate says, which exit code.

Every platform, both dataset modes, each piece that may be missing.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from launch_situations import (
    BANK,
    COSMOS,
    EVAL_KEYS,
    IMAGE,
    KEYS,
    PLACES,
    forget_everything,
    preflight,
    report,
    set_credentials,
    whole,
)

from tao_sdk.cli import main
from tao_sdk.cli.launch_wizard import Wizard
from tao_sdk.cli.session import Session
from tao_sdk.errors import SecretExposureError, ValidationError
from tao_sdk.launch import GateClosedError, LaunchPlan, examine, inputs_gate, launch
from tao_sdk.launch.facts import Facts
from tao_sdk.launch.gate import CONDITIONS, preflight_request
from tao_sdk.platforms import registry
from tao_sdk.preflight import PreflightReport, PreflightRequest
from tao_sdk.preflight.checks import failed as bad
from tao_sdk.preflight.checks import skipped

ORDER = ["platform", "dataset", "image", "compute", "credentials", "monitoring", "status_interval"]
VALUE = "the-value-of-"


@pytest.fixture(autouse=True)
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    forget_everything(monkeypatch)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("TAO_SDK_STATE_DIR", str(tmp_path / "state"))


def without_data(mode: str, keys: tuple[str, ...]) -> dict[str, Any]:
    folder = "/elsewhere"
    if mode == "root":
        kept = {} if keys == KEYS else {"train_root": f"{folder}/train"}
        return {"train_root": "", "eval_root": "", **kept}
    return {"specs": {key: f"{folder}/{key}" for key in KEYS if key not in keys}}


Missing = Callable[[str, str], LaunchPlan]
PIECES: dict[str, tuple[Missing, list[str], dict[str, str]]] = {
    "nothing": (whole, [], {}),
    "platform": (
        lambda platform, mode: whole(platform, mode, platform=""),
        ["platform", "credentials"],
        {"platform": "missing", "platform_credentials": "missing"},
    ),
    "data": (
        lambda platform, mode: whole(platform, mode, **without_data(mode, KEYS)),
        ["dataset"],
        {"datasets": "missing"},
    ),
    "half of the data": (
        lambda platform, mode: whole(platform, mode, **without_data(mode, EVAL_KEYS)),
        ["dataset"],
        {"datasets": "missing"},
    ),
    "image": (
        lambda platform, mode: whole(platform, mode, image_confirmed=False),
        ["image"],
        {"image": "missing"},
    ),
    "compute": (
        lambda platform, mode: whole(platform, mode, gpus=None, nodes=None),
        ["compute"],
        {"compute": "missing"},
    ),
    "platform credentials": (whole, ["credentials"], {"platform_credentials": "missing"}),
    "model credentials": (whole, ["credentials"], {"model_credentials": "missing"}),
    "monitoring": (
        lambda platform, mode: whole(platform, mode, monitor=None, status_interval_minutes=None),
        ["monitoring", "status_interval"],
        {},
    ),
    "everything": (
        lambda platform, mode: LaunchPlan(COSMOS, automl="off", bank=BANK),
        ORDER,
        {
            "platform": "missing",
            "platform_credentials": "missing",
            "model_credentials": "missing",
            "image": "missing",
            "datasets": "missing",
            "compute": "missing",
        },
    ),
}
SCENARIOS = [
    pytest.param(platform, mode, piece, id=f"{platform}-{mode}-{piece}".replace(" ", "_"))
    for platform in PLACES
    for mode in ("root", "direct")
    for piece in PIECES
    if (piece != "platform credentials" or PLACES[platform].credentials)
    and (piece != "everything" or mode == "root")
]


def test_there_are_enough_scenarios() -> None:
    assert len(SCENARIOS) >= 60


def set_what_the_piece_leaves(monkeypatch: pytest.MonkeyPatch, platform: str, piece: str) -> None:
    if piece in ("everything",):
        return
    if piece != "model credentials":
        set_credentials(monkeypatch, "HF_TOKEN")
    if piece != "platform credentials":
        set_credentials(monkeypatch, *PLACES[platform].credentials)


@pytest.mark.seed("001.1")
@pytest.mark.seed("001.2")
@pytest.mark.seed("001.4")
@pytest.mark.parametrize(("platform", "mode", "piece"), SCENARIOS)
def test_scenario(
    platform: str,
    mode: str,
    piece: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    set_what_the_piece_leaves(monkeypatch, platform, piece)
    make, asked, closed = PIECES[piece]
    plan = make(platform, mode)

    questions = plan.missing()
    assert [question.id for question in questions] == asked
    assert [name for name in ORDER if name in asked] == asked
    check_question_shapes([question.as_json() for question in questions])
    if "credentials" in asked and plan.platform:
        named = [item["name"] for item in questions[0].items]
        wanted = PLACES[platform].credentials if piece == "platform credentials" else ("HF_TOKEN",)
        assert named == list(wanted)

    gate = inputs_gate(plan)
    runs_here = registry.canonical(platform) in registry.names()
    refused = {} if runs_here or not plan.platform else {"platform": "failed"}
    states = {condition.id: condition.state for condition in gate.conditions}
    assert list(states) == list(CONDITIONS)
    open_ = dict.fromkeys(("access", "datasets"), "unchecked")
    assert states == {**dict.fromkeys(CONDITIONS, "holds"), **open_, **closed, **refused}
    assert all(condition.reason for condition in gate.conditions)
    assert not gate.is_open

    # The same as a program gets it: nothing is asked, and the exit code tells.
    is_complete = not any(question.required for question in questions)
    monkeypatch.setattr("tao_sdk.cli.preflight_view.run_preflight", preflight("access"))
    code = main(["--json", *words(plan)])
    document = json.loads(capsys.readouterr().out)
    assert code == (1 if is_complete else 2)
    assert document["kind"] == "gate"
    assert document["open"] is False
    assert [question["id"] for question in document["missing"]] == asked
    assert {one["id"]: one["state"] for one in document["conditions"]}.items() >= closed.items()
    assert (document["prompt"] == "") == (asked == [])
    assert VALUE not in json.dumps(document)

    # And in a pipe: the questions as text.
    code = main(words(plan))
    text = capsys.readouterr().out
    assert code == (1 if is_complete else 2)
    assert text.startswith("I need these inputs") == (not is_complete)
    assert VALUE not in text
    assert not list(Path.home().parent.glob("*"))


def words(plan: LaunchPlan) -> list[str]:
    """The command line of a plan."""
    import shlex

    from tao_sdk.cli.launch_flags import command_line

    return shlex.split(command_line(Session(), plan))[1:]


def check_question_shapes(questions: list[dict[str, Any]]) -> None:
    keys = {"id", "question", "choices", "default", "examples", "why"}
    for question in questions:
        assert set(question) == keys | {"required", "answer_with", "items"}
        assert question["question"]
        assert question["why"]
        assert json.loads(json.dumps(question)) == question


@pytest.mark.parametrize("platform", PLACES)
def test_a_platform_is_known_by_its_aliases(platform: str) -> None:
    for name in (platform, *PLACES[platform].aliases):
        assert whole(platform, platform=name).facts.platform_name == platform


@pytest.mark.parametrize("platform", PLACES)
def test_an_unknown_platform_is_refused_with_the_list(platform: str) -> None:
    with pytest.raises(KeyError, match=f"supported: .*{platform}"):
        LaunchPlan("dino", platform="nowhere", bank=BANK).missing()


def test_no_gpu_is_suggested_where_the_spec_does_without(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAO_LOCAL_GPUS", "")
    monkeypatch.setenv("PATH", "/nowhere")
    for model, gpus in (("tiny-trainer", 0), ("tao-train-dino", 1)):
        plan = LaunchPlan(model, platform="local", bank=BANK)
        assert plan.facts.default_gpus == gpus
        assert plan.with_defaults().gpus == gpus


@pytest.mark.parametrize(
    ("action", "key"), [("train", "train.num_gpus"), ("evaluate", "evaluate.num_gpus")]
)
def test_the_keys_of_the_shape_are_those_of_the_action(action: str, key: str) -> None:
    plan = LaunchPlan("tao-train-dino", action, platform="slurm", bank=BANK)
    [question] = [one for one in plan.missing() if one.id == "compute"]
    assert question.why == f"The job asks the platform for them, and the spec has them in {key}."
    assert f"The spec gets them in {key}." in plan.prompt()
    section, _, name = key.partition(".")
    assert plan.set(gpus=3).facts.made.specs[section][name] == 3


def test_a_file_that_is_given_by_its_key_is_a_place_too() -> None:
    plan = LaunchPlan("tao-train-dino", "evaluate", platform="local", bank=BANK)
    with pytest.raises(ValidationError, match=r"evaluate\.checkpoint: 'm\.pth' is relative"):
        plan.set(specs={"evaluate.checkpoint": "m.pth"}).missing()
    assert plan.set(specs={"evaluate.checkpoint": "s3://b/m.pth"}).facts.paths
    named = {"model.model_name": "nvidia/Cosmos-Reason1-7B"}
    LaunchPlan(COSMOS, "evaluate", platform="local", bank=BANK, specs=named).missing()


def test_compute_is_suggested_by_the_platform() -> None:
    for platform, place in PLACES.items():
        plan = whole(platform, gpus=None, nodes=None)
        [question] = [one for one in plan.missing() if one.id == "compute"]
        assert question.default == {"gpus": place.suggested_gpus, "nodes": 1}
        accepted = plan.with_defaults()
        assert (accepted.gpus, accepted.nodes) == (place.suggested_gpus, 1)


def test_compute_said_by_the_spec_is_known() -> None:
    plan = whole("local", gpus=None, specs={"dp_shard_size": 4})
    assert "compute" not in [question.id for question in plan.missing()]
    assert plan.facts.compute.gpus == 4
    both = plan.set(gpus=2).facts.compute
    assert both.gpus == 2
    assert both.conflicts == (
        "policy.parallelism.dp_shard_size is 4 in the spec, but the job gets 2 GPUs per node",
    )


@pytest.mark.seed("001.2")
def test_monitoring_is_on_every_five_minutes_unless_said_otherwise() -> None:
    plan = LaunchPlan("dino", bank=BANK)
    questions = {question.id: question for question in plan.missing()}
    assert questions["monitoring"].default is True
    assert questions["status_interval"].default == 5
    assert (plan.facts.monitor, plan.facts.status_interval_minutes) == (True, 5)
    text = " ".join(question.why for question in questions.values())
    for part in ("hours or days", "id and the place of its log", "1-2", "5 for", "10-15"):
        assert part in text
    ids = [question.id for question in plan.set(monitor=False).missing()]
    assert "status_interval" not in ids


# ---------------------------------------------------------------- the texts of the seed


@pytest.mark.seed("001.4")
@pytest.mark.seed("001.7")
def test_the_seeds_example_comes_out() -> None:
    text = LaunchPlan("cosmos-rl", bank=BANK).prompt(120)
    parts = [line.split(". ")[0] for line in text.splitlines() if line[:1].isdigit()]
    assert parts == ["1", "2", "3", "4", "5", "6"]
    for line in (
        "local, local-docker, remote-docker, slurm, kubernetes, brev, or lepton.",
        "A) Root mode",
        "-> custom.train_dataset.annotation_path=train_root/annotations.json",
        "-> custom.train_dataset.media_path=train_root",
        "-> custom.val_dataset.annotation_path=eval_root/annotations.json",
        "B) Direct spec mode",
        "- slurm: /lustre/fsw/portfolios/<team>/<your-dir>/data/cosmos-rl/train or",
        "lustre:///lustre/fsw/portfolios/<team>/<your-dir>/data/cosmos-rl/eval",
        "- kubernetes: s3://my-bucket/tao/cosmos-rl/train or",
        "- local-docker: /data/tao/cosmos-rl/train or file:///data/tao/cosmos-rl/eval",
        f"default={IMAGE}",
        "Use this image, or provide image=<override>?",
        "gpus=8 nodes=2",
        "HF_TOKEN",
        "every 5 minutes",
        "1-2 minutes for a smoke test",
        "10-15 for long runs",
    ):
        assert line in text, line


@pytest.mark.seed("001.5")
def test_the_words_that_confirm_an_image() -> None:
    [question] = [
        one for one in whole("slurm", image_confirmed=False).missing() if one.id == "image"
    ]
    assert question.question == (
        f"Container image for cosmos-rl/train:\ndefault={IMAGE}\n\n"
        "Use this image, or provide image=<override>?"
    )
    assert question.default == IMAGE
    assert question.required


@pytest.mark.seed("001.5")
@pytest.mark.parametrize("override", ["", "  ", "\t"])
def test_an_empty_override_is_refused(override: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ValueError, match="override is empty"):
        whole("local", image=override)
    assert main(["launch", "dino", "train", "--image", override]) == 2
    assert "override is empty" in capsys.readouterr().err


@pytest.mark.seed("001.5")
def test_an_override_replaces_the_default_and_needs_no_confirmation() -> None:
    plan = whole("slurm", image_confirmed=False, image="registry/own:1")
    assert "image" not in [question.id for question in plan.missing()]
    assert plan.facts.made.image == plan.facts.image == "registry/own:1"


@pytest.mark.seed("001.8")
@pytest.mark.parametrize("platform", PLACES)
def test_examples_fit_the_platform_and_the_model(platform: str) -> None:
    plan = LaunchPlan("cosmos-rl", platform=platform, bank=BANK)
    [question] = [one for one in plan.missing() if one.id == "dataset"]
    folder = PLACES[platform].folder
    assert f"train_root={folder}/train" in question.examples
    assert (
        f"custom.train_dataset.annotation_path={folder}/train/annotations.json" in question.examples
    )
    shown = [line for line in plan.prompt().splitlines() if line.strip().startswith("- ")]
    names = {line.split(":")[0].strip(" -") for line in shown}
    assert platform in names
    assert names.isdisjoint(set(PLACES) - {platform})


@pytest.mark.seed("001.8")
def test_every_platform_has_its_example_before_one_is_chosen() -> None:
    text = LaunchPlan("dino", bank=BANK).prompt(200)
    for platform, place in PLACES.items():
        folder = place.folder.replace("cosmos-rl", "dino")
        assert f"- {platform}: {folder}/train" in text


# ---------------------------------------------------------------- data


@pytest.mark.seed("001.7")
def test_roots_become_spec_keys_by_the_models_map() -> None:
    assert whole("slurm", train_root="/lustre/a", eval_root="lustre:///b").facts.paths == {
        "custom.train_dataset.annotation_path": "/lustre/a/annotations.json",
        "custom.train_dataset.media_path": "/lustre/a",
        "custom.val_dataset.annotation_path": "lustre:///b/annotations.json",
        "custom.val_dataset.media_path": "lustre:///b",
    }


@pytest.mark.seed("001.7")
def test_exact_paths_are_kept_as_they_are() -> None:
    given = {
        "custom.train_dataset.annotation_path": "/lustre/train_annotations.json",
        "custom.train_dataset.media_path": "/lustre/videos_train.tar.gz",
        "custom.val_dataset.annotation_path": "/lustre/eval_annotations.json",
        "custom.val_dataset.media_path": "/lustre/eval_videos/",
    }
    plan = whole("slurm", "direct", specs=given)
    assert plan.facts.paths == given
    seen: list[Any] = []

    def look(request: Any, bank: Any, on_check: Any) -> Any:
        seen.append(request)
        return report()

    examine_with_everything_set(plan, look)
    assert seen[0].paths == given


def examine_with_everything_set(plan: LaunchPlan, look: Any) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        set_credentials(patch, "HF_TOKEN", *PLACES["slurm"].credentials)
        return examine(plan, preflight=look)


def test_calibration_and_other_roots() -> None:
    plan = LaunchPlan(
        "dino",
        "quantize",
        train_root="/d/t",
        eval_root="/d/e",
        calibration_root="/d/c",
        parent="/m/model.pth",
        bank=BANK,
    )
    assert plan.facts.open_keys == {}
    assert plan.facts.paths["quantize.model_path"] == "/m/model.pth"
    key = "dataset.quant_calibration_data_sources.json_file"
    assert plan.facts.paths[key] == "/d/c/annotations.json"
    inference = LaunchPlan("dino", "inference", roots={"inference_root": "/d/i"}, bank=BANK)
    assert inference.facts.paths["dataset.infer_data_sources.image_dir[0]"] == "/d/i/images"


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"calibration_root": "/c"}, "takes no calibration_root"),
        ({"train_root": "data/train"}, "is relative"),
        ({"resume": "model.pth"}, "resume: 'model.pth' is relative"),
        ({"specs": {KEYS[0]: "annotations.json"}}, f"{KEYS[0]}: .* is relative"),
        ({"specs": {"train.nonsense": 1}}, "no key 'train.nonsense'"),
        ({"gpus": -2}, "gpus"),
        ({"nodes": 0}, "nodes"),
        ({"status_interval_minutes": 0}, "minutes"),
        ({"status_interval_minutes": "5"}, "minutes"),
        ({"image": "registry/own:2 --privileged"}, "has a space"),
        ({"results": "out"}, "results: 'out' is relative"),
        ({"automl": "maybe"}, "automl"),
    ],
)
def test_what_cannot_be_right_is_refused(changes: dict[str, Any], complaint: str) -> None:
    with pytest.raises(Exception, match=complaint) as caught:
        whole("local", **changes).missing()
    assert isinstance(caught.value, (ValueError, KeyError))


@pytest.mark.parametrize(
    "changes",
    [
        {"specs": {"custom.train_dataset.media_path": "/d?token=the-value-of-HF_TOKEN"}},
        {"results": "s3://the-value-of-HF_TOKEN/x"},
        {"train_root": ["/a", "/b/the-value-of-HF_TOKEN"]},
        {"options": {"comment": "the-value-of-HF_TOKEN"}},
        {"results": "the-value-of-mine", "env_vars": {"MY_KEY": "the-value-of-mine"}},
    ],
)
def test_a_secret_in_a_plan_is_refused(
    changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    set_credentials(monkeypatch, "HF_TOKEN")
    with pytest.raises(SecretExposureError) as caught:
        whole("local", gpus=1, **changes).missing()
    assert VALUE not in str(caught.value)


def test_a_path_may_be_a_path() -> None:
    plan = whole(
        "local", train_root=Path("/data/train"), specs={EVAL_KEYS[0]: Path("/data/e.json")}
    )
    assert (plan.train_root, plan.specs[EVAL_KEYS[0]]) == ("/data/train", "/data/e.json")
    assert plan.facts.paths[EVAL_KEYS[0]] == "/data/e.json"


def test_steps_add_up() -> None:
    plan = LaunchPlan("cosmos-rl", bank=BANK)
    for answer in (
        {"platform": "local"},
        {"train_root": "/t", "eval_root": "/e"},
        {"image_confirmed": True},
        {"gpus": 1},
        {"monitor": False},
        {"specs": {"num_epochs": 2}},
        {"specs": {"batch_size": 1}},
    ):
        plan = plan.set(**answer)
    assert [question.id for question in plan.missing()] == ["credentials"]
    assert plan.specs == {"num_epochs": 2, "batch_size": 1}
    with pytest.raises(TypeError, match="no 'colour'"):
        plan.set(colour="red")


# ---------------------------------------------------------------- the gate


@pytest.mark.parametrize(
    ("failed", "closed"),
    [
        ((), []),
        (("ssh",), ["access"]),
        (("path:custom.train_dataset.media_path",), ["datasets"]),
        (("fields:custom.train_dataset.annotation_path",), ["datasets"]),
        (("batch:custom.train_dataset.annotation_path",), ["datasets"]),
        (("gpu.count", "path:x"), ["access", "datasets"]),
    ],
)
@pytest.mark.seed("001.1")
def test_what_the_preflight_finds_closes_the_gate(
    failed: tuple[str, ...], closed: list[str]
) -> None:
    gate = examine_with_everything_set(whole("slurm"), preflight(*failed))
    assert [condition.id for condition in gate.closed()] == closed
    assert gate.is_open == (not closed)
    for condition in gate.closed():
        assert condition.state == "failed"
        assert "is bad" in condition.reason


@pytest.mark.seed("001.1")
def test_paths_that_were_not_looked_at_are_not_called_seen() -> None:
    def no_host(request: PreflightRequest, *_: object) -> PreflightReport:
        paths = (skipped(f"path:{label}", "no login host answered") for label in request.paths)
        return PreflightReport((bad("ssh", "nobody answers"), *paths))

    gate = examine_with_everything_set(whole("slurm"), no_host)
    states = {condition.id: condition.state for condition in gate.conditions}
    assert (states["access"], states["datasets"]) == ("failed", "unchecked")
    assert not gate.is_open


@pytest.mark.seed("001.1")
def test_what_the_job_is_told_is_what_the_preflight_looks_at() -> None:
    own = {"partition": "big", "time_hours": 12}
    assert preflight_request(whole("slurm").set(options=own)).options == own


def test_who_chooses_a_platform_in_vain_is_told_at_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Facts, "can_run_here", False)
    assert main(["launch", "dino", "-p", "slurm"]) == 2
    told = capsys.readouterr().err
    assert "this SDK cannot run jobs there" in told
    assert "Answer with: --train-root PATH" in told

    # The wizard does not take it for an answer.
    answer = lambda _label, accept, _default=None: accept("slurm")  # noqa: E731 - named where it is used
    monkeypatch.setattr("tao_sdk.cli.launch_wizard.ask", answer)
    with pytest.raises(ValidationError, match="cannot run jobs there"):
        Wizard(Session(), LaunchPlan("dino", bank=BANK)).complete()


@pytest.mark.seed("001.1")
def test_the_platform_is_not_asked_before_everything_is_known() -> None:
    def never(*_: object) -> Any:
        raise AssertionError("asked")

    gate = examine(LaunchPlan("dino", bank=BANK), preflight=never)
    assert not gate.is_open
    with pytest.raises(GateClosedError, match="nothing was created") as caught:
        launch(LaunchPlan("dino", bank=BANK), preflight=never)
    assert caught.value.gate.closed()
