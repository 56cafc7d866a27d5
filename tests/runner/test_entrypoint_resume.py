"""Going on from an earlier attempt, as a whole."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest
from entrypoints import JOB, Container, Ended, container, entrypoint, names_in, until
from stores import Bucket

from lab.s3 import KINDS

KEY = "resume_training_checkpoint_path"
SPEC = {"train": {KEY: None}, "results_dir": ""}


def asked(spec: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "specs": spec,
        "outputs": {"results_dir": {"type": "folder"}},
        "config_format": "json",
        **more,
    }


def spec_of(box: Container, spec: dict[str, Any] = SPEC, **more: Any) -> tuple[Any, Ended]:
    ended = box.run("cat {config_path}", **asked(spec, **more))
    assert ended.code == 0, ended.err
    return json.loads(ended.out), ended


def whole_checkpoint(path: Path, content: str = "weights") -> bytes:
    """As torch writes it: a zip archive."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", content * 100)
        archive.writestr("archive/version", "3\n")
    return path.read_bytes()


def test_the_newest_whole_checkpoint_on_the_mount(box: Container) -> None:
    """Lesson A15: a truncated one is passed over, however new it is."""
    folder = box.work / "results_dir" / "train"
    whole_checkpoint(folder / "model_epoch_000.pth")
    whole_checkpoint(folder / "model_epoch_001.pth")
    torn = folder / "model_epoch_002.pth"
    torn.write_bytes(whole_checkpoint(torn)[:-40])
    (folder / "model_epoch_003.pth").write_bytes(b"")
    found, ended = spec_of(box, env={"TAO_RESULTS_ROOT": str(box.root), "TAO_ATTEMPT": "2"})
    assert found["train"][KEY] == str(folder / "model_epoch_001.pth")
    assert f"not resumed from {torn}: it is not whole" in ended.err
    assert box.record()["resumed_from"] == found["train"][KEY]


@pytest.mark.parametrize("bucket", KINDS, indirect=True)
def test_a_new_container_goes_on_from_the_bucket(tmp_path: Path, bucket: Bucket) -> None:
    """Lesson A6: the first one is killed after it delivered; the second one finds what is there."""
    made = tmp_path / "made.pth"
    whole_checkpoint(made)
    train = (
        "python3 -c \"import json,sys; print(json.load(open(sys.argv[1]))['results_dir'])\" "
        f"{{config_path}} > where; cp {made} $(cat where)/epoch_1.pth; "
        f"head -c 200 {made} > $(cat where)/epoch_2.pth; "
        "touch -d '1 minute ago' $(cat where)/*; sleep 600"
    )
    with container(tmp_path / "first", bucket.results) as first:
        process = first.start(
            entrypoint(command=train, **asked(SPEC)), {"TAO_SYNC_SECONDS": "0.05"}
        )
        until(lambda: len(bucket.below(f"results/{JOB}")) == 2, "both are delivered")
        process.kill()
        first.end(process)
    with container(tmp_path / "second", bucket.results) as second:
        found, ended = spec_of(second, env={"TAO_ATTEMPT": "2"})
        assert found["train"][KEY] == str(second.work / "results_dir" / "epoch_1.pth")
        assert Path(found["train"][KEY]).read_bytes() == made.read_bytes()
        assert "epoch_2.pth: it is not whole" in ended.err
        assert ended.progress("staging")["files_done"] == 1
        # What came from there is not sent back.
        assert second.record()["delivered"]["files"] <= 1
    assert bucket.below(f"results/{JOB}")["results_dir/epoch_1.pth"] == made.read_bytes()


def test_folders_and_safetensors_count(box: Container) -> None:
    """Lesson A15: a checkpoint may be a folder; one without its last part is none."""
    folder = box.work / "results_dir"
    header = json.dumps({"w": {"dtype": "U8", "shape": [4], "data_offsets": [0, 4]}}).encode()
    weights = len(header).to_bytes(8, "little") + header + b"1234"
    for step in (100, 200):
        (folder / f"checkpoint-{step}").mkdir(parents=True)
        (folder / f"checkpoint-{step}" / "model.safetensors").write_bytes(weights)
        (folder / f"checkpoint-{step}" / "trainer_state.json").write_text("{}")
    (folder / "checkpoint-200" / "model.safetensors").write_bytes(weights[:-2])
    found, _ = spec_of(box, env={"TAO_RESULTS_ROOT": str(box.root)})
    assert found["train"][KEY] == str(folder / "checkpoint-100")


def test_empty_places_inside_lists_are_filled(box: Container) -> None:
    """Lesson A15: wherever it stands; a value that is set is never touched."""
    path = box.work / "results_dir" / "epoch_1.pth"
    whole_checkpoint(path)
    spec = {"stages": [{KEY: ""}, {KEY: "/mine.pth"}], "results_dir": "", KEY: None}
    found, _ = spec_of(box, spec, env={"TAO_RESULTS_ROOT": str(box.root)})
    assert found["stages"] == [{KEY: str(path)}, {KEY: "/mine.pth"}]
    assert found[KEY] == str(path)


@pytest.mark.parametrize("word", ["0", "false", "no"])
def test_it_can_be_switched_off(box: Container, word: str) -> None:
    whole_checkpoint(box.work / "results_dir" / "epoch_1.pth")
    env = {"TAO_RESULTS_ROOT": str(box.root), "TAO_AUTO_RESUME": word}
    found, _ = spec_of(box, env=env)
    assert found["train"][KEY] is None


def test_a_first_attempt_has_nothing_to_go_on_from(box: Container, bucket: Bucket) -> None:
    found, ended = spec_of(box, env=bucket.results)
    assert found["train"][KEY] is None
    assert "resum" not in ended.err
    assert names_in(box.work / "results_dir") == []


def test_inputs_are_not_checkpoints(box: Container, bucket: Bucket, tmp_path: Path) -> None:
    """Lesson A15: a pretrained model below the job's folder is not an earlier attempt's."""
    model = whole_checkpoint(tmp_path / "m.pth")
    bucket.put({"models/epoch_99.pth": model})
    spec = {**SPEC, "model": "s3://bucket/models/epoch_99.pth", "results_dir": str(box.work)}
    found, _ = spec_of(box, spec, env=bucket.env, inputs=["model"])
    assert Path(found["model"]).exists()
    assert found["train"][KEY] is None
