"""Going on from the newest whole checkpoint of an earlier attempt."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from checkpoint_formats import safetensors, torch_zip
from hypothesis import given
from hypothesis import strategies as st

from tao_sdk.runner.resume import (
    StoredFile,
    choose_remote,
    fill_checkpoint,
    find_resume_checkpoint,
    wants_checkpoint,
)

KEY = "resume_training_checkpoint_path"


def save(root: Path, *names: str, content: bytes | None = None) -> Path:
    """Write whole checkpoints below `root`, each a second newer than the one before."""
    for number, name in enumerate(names):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        whole = safetensors() if name.endswith(".safetensors") else torch_zip()
        path.write_bytes(whole if content is None else content)
        os.utime(path, (1_000 + number, 1_000 + number))
    return root


def found(*folders: Path, exclude: tuple[Path, ...] = ()) -> str | None:
    """The chosen path, relative to the first folder."""
    path = find_resume_checkpoint(map(str, folders), exclude=map(str, exclude))
    return path and os.path.relpath(path, folders[0])


class TestSpec:
    def test_every_empty_place_is_filled_and_nothing_else(self) -> None:
        """Lesson A15: places inside lists, too."""
        spec: dict[str, Any] = {
            "train": {KEY: None, "epochs": 3},
            "stages": [{KEY: ""}, {"deep": [[{KEY: None}]]}, {KEY: "/mine.pth"}],
            "mine": {KEY: "s3://bucket/mine.pth"},
            "other": {"resume_checkpoint": None, "note": KEY},
        }
        assert wants_checkpoint(spec, {})
        filled = fill_checkpoint(spec, "/x.pth")
        assert filled == [
            f"train.{KEY}",
            f"stages[0].{KEY}",
            f"stages[1].deep[0][0].{KEY}",
        ]
        assert spec == {
            "train": {KEY: "/x.pth", "epochs": 3},
            "stages": [{KEY: "/x.pth"}, {"deep": [[{KEY: "/x.pth"}]]}, {KEY: "/mine.pth"}],
            "mine": {KEY: "s3://bucket/mine.pth"},
            "other": {"resume_checkpoint": None, "note": KEY},
        }
        assert not wants_checkpoint(spec, {})

    @pytest.mark.parametrize("value", ["0", "false", "no", "False", " NO "])
    def test_it_can_be_switched_off(self, value: str) -> None:
        assert not wants_checkpoint({KEY: None}, {"TAO_AUTO_RESUME": value})

    @pytest.mark.parametrize("value", ["1", "true", "", "yes"])
    def test_it_is_on_otherwise(self, value: str) -> None:
        assert wants_checkpoint({KEY: None}, {"TAO_AUTO_RESUME": value})


class TestFind:
    def test_the_position_counts_and_not_the_time(self, tmp_path: Path) -> None:
        """Lesson A15: a copy of an old checkpoint is newer than a new one."""
        save(tmp_path, "model_epoch_010.pth", "model_epoch_9.pth", "model_epoch_008.pth")
        assert found(tmp_path) == "model_epoch_010.pth"

    @pytest.mark.parametrize("content", [torch_zip()[:-1], torch_zip()[:200], b""])
    def test_one_that_was_cut_short_is_passed_over(self, tmp_path: Path, content: bytes) -> None:
        """Lesson A15: the kill that ended the attempt often hit the newest checkpoint."""
        save(tmp_path, "model_epoch_1.pth", "model_epoch_2.pth")
        save(tmp_path, "model_epoch_3.pth", content=content)
        said: list[str] = []
        path = find_resume_checkpoint([str(tmp_path)], say=said.append)
        assert path == str(tmp_path / "model_epoch_2.pth")
        assert ["model_epoch_3.pth" in line for line in said] == [True] * bool(content)

    @pytest.mark.parametrize(
        "name", ["model_epoch_3.safetensors", "train/epoch_3/model.safetensors"]
    )
    def test_safetensors_and_folders(self, tmp_path: Path, name: str) -> None:
        """Lesson A15: both can be resumed from."""
        save(tmp_path, name, "model_epoch_2.pth")
        assert found(tmp_path) == name.replace("/model.safetensors", "")

    def test_a_file_alone_in_its_folder_is_what_is_loaded(self, tmp_path: Path) -> None:
        save(tmp_path, "epoch_3/model.pth", "epoch_2/model.pth")
        assert found(tmp_path) == "epoch_3/model.pth"

    def test_several_files_are_loaded_by_their_folder(self, tmp_path: Path) -> None:
        save(tmp_path, "step_3/model.pt", "step_3/optimizer.pt", "step_2/model.pt")
        assert found(tmp_path) == "step_3"

    def test_files_with_a_position_of_their_own_stand_for_themselves(self, tmp_path: Path) -> None:
        save(tmp_path, "epoch_3/iter_200.pth", "epoch_3/iter_100.pth")
        assert found(tmp_path) == "epoch_3/iter_200.pth"

    def test_an_incomplete_folder_is_passed_over(self, tmp_path: Path) -> None:
        save(tmp_path, "checkpoint-100/model.safetensors", "checkpoint-100/trainer_state.json")
        save(tmp_path, "checkpoint-200/model-00001-of-00002.safetensors")
        assert found(tmp_path) == "checkpoint-100"

    def test_programs_for_inference_are_never_resumed_from(self, tmp_path: Path) -> None:
        save(tmp_path, "model_epoch_9.onnx", "model_epoch_9.engine", "model_epoch_9.trt")
        assert found(tmp_path) is None
        save(tmp_path, "model_epoch_1.pth")
        assert found(tmp_path) == "model_epoch_1.pth"

    def test_inputs_and_private_state_are_not_searched(self, tmp_path: Path) -> None:
        save(tmp_path, "ptm/a/model_epoch_9.pth", "inputs/model.pth", ".tao/model_epoch_9.pth")
        assert found(tmp_path) is None

    def test_nor_is_what_is_excluded(self, tmp_path: Path) -> None:
        save(tmp_path, "a/model_epoch_9.pth", "ab/model_epoch_8.pth", "c/model_epoch_7.pth")
        assert found(tmp_path, exclude=(tmp_path / "a",)) == "ab/model_epoch_8.pth"
        excluded = (tmp_path / "a", tmp_path / "ab/model_epoch_8.pth")
        assert found(tmp_path, exclude=excluded) == "c/model_epoch_7.pth"

    def test_the_furthest_of_several_folders(self, tmp_path: Path) -> None:
        save(tmp_path, "epoch_90/a/model_epoch_2.pth", "b/model_epoch_3.pth")
        folders = [tmp_path / "epoch_90/a", tmp_path / "b", tmp_path / "missing"]
        assert found(*folders) == "../../b/model_epoch_3.pth"

    def test_a_latest_one_counts_if_it_is_newer(self, tmp_path: Path) -> None:
        """Often only the best few are kept under their position, and the last one as such."""
        save(tmp_path, "epoch=2-best.ckpt", "last.ckpt")
        assert found(tmp_path) == "last.ckpt"
        (tmp_path / "last.ckpt").write_bytes(torch_zip()[:-9])
        assert found(tmp_path) == "epoch=2-best.ckpt"

    def test_an_old_latest_one_does_not(self, tmp_path: Path) -> None:
        save(tmp_path, "model_latest.pth", "model_epoch_2.pth", "model_epoch_1.pth")
        assert found(tmp_path) == "model_epoch_2.pth"

    def test_a_link_to_the_latest_is_as_good_as_that(self, tmp_path: Path) -> None:
        save(tmp_path, "model_epoch_1.pth", "model_epoch_2.pth")
        (tmp_path / "latest.pth").symlink_to("model_epoch_2.pth")
        assert found(tmp_path) == "model_epoch_2.pth"

    def test_epochs_and_steps_cannot_be_compared_so_the_time_decides(self, tmp_path: Path) -> None:
        save(tmp_path, "epoch_1.pth", "iter_500.pth", "iter_400.pth", "epoch_0.pth")
        os.utime(tmp_path / "iter_500.pth", (5_000, 5_000))
        assert found(tmp_path) == "iter_500.pth"
        os.utime(tmp_path / "epoch_1.pth", (6_000, 6_000))
        assert found(tmp_path) == "epoch_1.pth"

    def test_what_says_nothing_comes_last(self, tmp_path: Path) -> None:
        save(tmp_path, "model_epoch_1.pth", "b.pth", "a.pth")
        assert found(tmp_path) == "model_epoch_1.pth"
        (tmp_path / "model_epoch_1.pth").unlink()
        assert found(tmp_path) == "a.pth"

    def test_neither_teacher_nor_student_is_what_was_trained(self, tmp_path: Path) -> None:
        save(tmp_path, "model_epoch_4.pth", "student_epoch_5.pth", "teacher_epoch_5.pth")
        assert found(tmp_path) == "model_epoch_4.pth"

    def test_a_model_saved_with_its_configuration(self, tmp_path: Path) -> None:
        save(tmp_path, "final/config.json", "final/model.safetensors")
        assert found(tmp_path) == "final"

    @pytest.mark.usefixtures("permissions_apply")
    def test_an_unreadable_folder_is_said(self, tmp_path: Path) -> None:
        save(tmp_path, "locked/model_epoch_2.pth", "model_epoch_1.pth")
        (tmp_path / "locked").chmod(0)
        said: list[str] = []
        path = find_resume_checkpoint([str(tmp_path)], say=said.append)
        (tmp_path / "locked").chmod(0o700)
        assert path == str(tmp_path / "model_epoch_1.pth")
        assert "locked" in said[0]


class TestRemote:
    def test_newest_first_with_all_that_has_to_be_fetched(self) -> None:
        files = [
            StoredFile("train/checkpoint-100/model.safetensors", 10),
            StoredFile("train/checkpoint-100/optimizer.pt", 10),
            StoredFile("train/checkpoint-100/deep/state.json", 10),
            StoredFile("train/checkpoint-1000/model.pth", 10),
            StoredFile("train/status.json", 10),
            StoredFile("train/model.onnx", 10),
            StoredFile("train/checkpoint-2000/model.pth", 0),
            StoredFile("inputs/checkpoint-9000/model.pth", 10),
        ]
        assert [(each.path, each.is_dir, set(each.files)) for each in choose_remote(files)] == [
            ("train/checkpoint-1000/model.pth", False, {"train/checkpoint-1000/model.pth"}),
            ("train/checkpoint-100", True, {file.path for file in files[:3]}),
        ]

    def test_without_times_a_latest_one_stands_between_positions_and_the_best(self) -> None:
        files = [StoredFile(name, 9) for name in ("epoch=2-best.ckpt", "last.ckpt")]
        assert [each.path for each in choose_remote(files)] == ["last.ckpt", "epoch=2-best.ckpt"]
        files = [StoredFile(name, 9) for name in ("epoch=2.ckpt", "last.ckpt")]
        assert [each.path for each in choose_remote(files)] == ["epoch=2.ckpt", "last.ckpt"]

    def test_the_outermost_folder_is_not_fetched_with_all_that_is_below(self) -> None:
        names = ["config.json", "model.safetensors", "logs/huge.bin.log", "inputs/data"]
        (chosen,) = choose_remote([StoredFile(name, 9) for name in names])
        assert (chosen.path, chosen.files) == ("", ("config.json", "model.safetensors"))

    def test_nothing_to_fetch(self) -> None:
        assert choose_remote([StoredFile("status.json", 9)]) == []

    @given(
        st.lists(
            st.builds(
                StoredFile,
                st.lists(
                    st.sampled_from(["epoch_1", "epoch_2", "iter_3", "latest", "best", "a", "ptm"]),
                    min_size=1,
                    max_size=3,
                ).map(lambda parts: "/".join(parts) + ".pth"),
                st.integers(0, 2),
                st.floats(0, 10),
            ),
            unique_by=lambda file: file.path,
        )
    )
    def test_the_order_of_the_listing_does_not_matter(self, files: list[StoredFile]) -> None:
        chosen = choose_remote(files)
        assert chosen == choose_remote(files[::-1])
        known = {file.path for file in files if file.size}
        assert all(set(each.files) & known for each in chosen)
        epochs = [each.epoch for each in chosen if each.epoch is not None]
        assert epochs == sorted(epochs, reverse=True)
