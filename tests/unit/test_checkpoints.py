"""Finding checkpoints, reading their position, choosing one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tao_sdk.checkpoints import (
    CHECKPOINT_FILE_EXTENSIONS,
    CheckpointCandidate,
    build_checkpoint_candidate,
    checkpoint_epoch,
    checkpoint_step,
    get_checkpoint_path,
    is_checkpoint_file_name,
    iter_local_checkpoint_candidates,
    remote_checkpoints,
    select_checkpoint_path,
)


def save(root: Path, *names: str, content: bytes = b"weights") -> Path:
    """Write files below `root`, each a second newer than the one before."""
    for number, name in enumerate(names):
        target = root / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
        os.utime(target, (1_000 + number, 1_000 + number))
    return root


def found(root: Path, *, include_dirs: bool = True) -> set[str]:
    candidates = iter_local_checkpoint_candidates(root, include_dirs=include_dirs)
    return {os.path.relpath(candidate.path, root) for candidate in candidates}


class TestPosition:
    @pytest.mark.parametrize(
        ("path", "epoch"),
        [
            ("model_epoch_012.pth", 12),
            ("model-epoch-7.pth", 7),
            ("checkpoint_epoch_3.pt", 3),
            ("model_best_12.pth", 12),
            ("dino_ep5.pth.tar", 5),
            ("EPOCH-4.ckpt", 4),
            ("epoch=3-step=100.ckpt", 3),
            ("0042.pth", 42),
            ("s3://bucket/run/model_epoch_9.safetensors", 9),
            ("run/epoch_6/model.safetensors", 6),
            ("run/epoch_6/", 6),
            ("deep_3.pth", None),
            ("step_8.pth", None),
            ("model.pth", None),
            ("2024/model.pth", None),
            ("", None),
        ],
    )
    def test_epoch(self, path: str, epoch: int | None) -> None:
        assert checkpoint_epoch(path) == epoch

    @pytest.mark.parametrize(
        ("path", "step"),
        [
            ("iter_0001000.pth", 1000),
            ("model-iteration-20.ckpt", 20),
            ("epoch=3-step=100.ckpt", 100),
            ("global_step1200", 1200),
            ("run/checkpoint-500", 500),
            ("run/checkpoint-500/model.safetensors", 500),
            ("checkpoint_500.pth", None),
            ("my-checkpoint-500x", None),
            ("stepwise.pth", None),
        ],
    )
    def test_step(self, path: str, step: int | None) -> None:
        assert checkpoint_step(path) == step

    def test_the_file_name_wins_over_its_parents(self) -> None:
        """Lesson F7: the epoch is not the largest number anywhere in the path."""
        assert checkpoint_epoch("/epoch_100_sweep/run/model_epoch_003.pth") == 3
        assert checkpoint_epoch(Path("/epoch_100/epoch_2/weights.pth")) == 2

    def test_parents_count_only_inside_the_experiment(self) -> None:
        """Lesson F7: the folder a run was put into says nothing about its checkpoints."""
        path = "/epoch_100_sweep/run/model.pth"
        assert checkpoint_epoch(path, within="/epoch_100_sweep") is None
        assert checkpoint_epoch("/sweep/epoch_4/model.pth", within=Path("/sweep")) == 4
        assert checkpoint_step("/step_9/a/model.pth", within="/step_9/") is None

    @given(
        parents=st.lists(st.integers(0, 10**6), max_size=4),
        own=st.integers(0, 10**6),
        extension=st.sampled_from(CHECKPOINT_FILE_EXTENSIONS),
    )
    def test_any_parents_never_change_a_named_epoch(
        self, parents: list[int], own: int, extension: str
    ) -> None:
        folders = "".join(f"/epoch_{number}" for number in parents)
        assert checkpoint_epoch(f"{folders}/model_epoch_{own:03d}{extension}") == own


class TestNames:
    @pytest.mark.parametrize("extension", CHECKPOINT_FILE_EXTENSIONS)
    def test_every_extension_is_known(self, extension: str) -> None:
        """Lesson F7: also .safetensors, .bin and .pth.tar."""
        assert is_checkpoint_file_name(f"model{extension}")
        assert is_checkpoint_file_name(f"s3://bucket/run/MODEL{extension.upper()}")

    @pytest.mark.parametrize(
        "name",
        [
            "model-00001-of-00003.safetensors",
            "mp_rank_00_model_states.pt",
            "bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt",
            "model_rank_0.pth",
            "model_world_size_8_rank_3.pt",
            "optimizer.pt",
            "scheduler.bin",
            "rng_state_0.pth",
            "training_args.bin",
            "cal.bin",
            "model.yaml",
            "model.tar",
            "pth",
        ],
    )
    def test_parts_and_companions_are_no_checkpoints(self, name: str) -> None:
        assert not is_checkpoint_file_name(name)

    def test_a_lora_rank_is_not_a_process_rank(self) -> None:
        assert is_checkpoint_file_name("adapter_rank_16.safetensors")

    def test_best_and_latest_are_judged_on_the_own_name(self) -> None:
        """Lesson F7: a parent called "best" or "latest" does not make a checkpoint so."""
        inside = build_checkpoint_candidate("/best_runs/latest/model_epoch_1.pth")
        assert (inside.is_best, inside.is_latest) == (False, False)
        assert build_checkpoint_candidate("/run/model_best.pth").is_best
        assert build_checkpoint_candidate("/run/best/", is_dir=True).is_best
        assert build_checkpoint_candidate("/run/model_latest.pth").is_latest
        assert build_checkpoint_candidate("/run/last.ckpt").is_latest
        assert not build_checkpoint_candidate("/run/plastic.ckpt").is_latest

    def test_what_is_not_given_is_asked_of_the_file_system(self, tmp_path: Path) -> None:
        save(tmp_path, "epoch_2/model.pth")
        folder = build_checkpoint_candidate(tmp_path / "epoch_2")
        weights = build_checkpoint_candidate(tmp_path / "epoch_2/model.pth")
        assert folder.is_dir
        assert not weights.is_dir
        assert weights.mtime == 1_000
        assert build_checkpoint_candidate("s3://bucket/run/epoch_2/").is_dir
        remote = build_checkpoint_candidate("s3://bucket/model_epoch_2.pth")
        assert (remote.is_dir, remote.mtime, remote.epoch) == (False, 0.0, 2)


class TestDiscovery:
    def test_files_of_every_kind_below_the_folder(self, tmp_path: Path) -> None:
        """Lesson F7: .safetensors, .bin and .pth.tar are found."""
        names = ["a/model.safetensors", "pytorch_model.bin", "b/c/model.pth.tar", "m.onnx"]
        save(tmp_path, *names, "notes.txt", "inputs/x.pth", "ptm/y.pth", "a/__pycache__/z.pt")
        assert found(tmp_path) == set(names)

    def test_an_empty_file_is_no_checkpoint(self, tmp_path: Path) -> None:
        save(tmp_path, "model_epoch_1.pth", "epoch_2/model.pth", content=b"")
        assert found(tmp_path) == set()

    def test_a_dangling_link_is_no_checkpoint(self, tmp_path: Path) -> None:
        (tmp_path / "latest.pth").symlink_to(tmp_path / "gone.pth")
        assert found(tmp_path) == set()

    def test_a_missing_folder_has_no_checkpoints(self, tmp_path: Path) -> None:
        assert found(tmp_path / "nowhere") == set()

    @pytest.mark.parametrize(
        "name",
        ["epoch_3", "step-40", "checkpoint-500", "global_step100", "iter_0001", "epoch=1.ckpt"],
    )
    def test_folders_named_for_a_position(self, tmp_path: Path, name: str) -> None:
        """Lesson F7: directory checkpoints are candidates, wherever their data lies inside."""
        save(tmp_path, f"{name}/shards/part.data")
        (tmp_path / "epoch_9").mkdir()
        assert found(tmp_path) == {name}
        assert found(tmp_path, include_dirs=False) == set()

    def test_a_grouping_folder_is_no_checkpoint(self, tmp_path: Path) -> None:
        save(tmp_path, "epoch_100_sweep/run/model_epoch_003.pth")
        (candidate,) = iter_local_checkpoint_candidates(tmp_path)
        assert (candidate.epoch, candidate.is_dir) == (3, False)

    def test_a_model_with_its_configuration_is_one_checkpoint(self, tmp_path: Path) -> None:
        save(tmp_path, "final/config.json", "final/model-00001-of-00002.safetensors")
        save(tmp_path, "adapter/adapter_config.json", "adapter/adapter_model.safetensors")
        save(tmp_path, "settings/config.json", "settings/training_args.bin")
        assert found(tmp_path) == {"final", "adapter", "adapter/adapter_model.safetensors"}

    def test_the_folder_itself_can_be_the_checkpoint(self, tmp_path: Path) -> None:
        save(tmp_path, "config.json", "model-00001-of-00001.safetensors", "best/config.json")
        save(tmp_path, "best/model.safetensors")
        assert found(tmp_path) == {".", "best", "best/model.safetensors"}

    def test_parts_of_a_directory_checkpoint_are_not_offered(self, tmp_path: Path) -> None:
        save(
            tmp_path,
            "checkpoint-100/global_step100/mp_rank_00_model_states.pt",
            "checkpoint-100/optimizer.pt",
            "step_7/policy/model_rank_0.pth",
            "step_8/__0_0.distcp",
        )
        assert found(tmp_path) == {"checkpoint-100", "step_7", "step_8"}

    def test_positions_do_not_leak_in_from_above(self, tmp_path: Path) -> None:
        """Lesson F7: the experiment's own folder may carry a number too."""
        save(tmp_path / "epoch_100", "model.pth")
        (candidate,) = iter_local_checkpoint_candidates(tmp_path / "epoch_100")
        assert candidate.epoch is None

    def test_the_order_is_fixed(self, tmp_path: Path) -> None:
        save(tmp_path, "b/model.pth", "a/model.pth", "z.pth", "y.pth")
        order = [candidate.path for candidate in iter_local_checkpoint_candidates(tmp_path)]
        expected = ["y.pth", "z.pth", "a/model.pth", "b/model.pth"]
        assert order == [str(tmp_path / name) for name in expected]


class TestSelection:
    def test_the_furthest_wins_and_latest_is_a_last_resort(self, tmp_path: Path) -> None:
        save(tmp_path, "model_epoch_009.pth", "model_epoch_010.pth", "model_latest.pth")
        chosen = get_checkpoint_path(model_name="dino", experiment_dir=tmp_path)
        assert chosen == str(tmp_path / "model_epoch_010.pth")

    def test_without_positions_the_newest_wins(self, tmp_path: Path) -> None:
        save(tmp_path, "b.pth", "a.pth")
        chosen = get_checkpoint_path(model_name=None, experiment_dir=tmp_path)
        assert chosen == str(tmp_path / "a.pth")

    def test_nothing_to_choose(self, tmp_path: Path) -> None:
        assert get_checkpoint_path(model_name=None, experiment_dir=tmp_path) is None

    def test_a_requested_epoch_accepts_counting_from_zero(self) -> None:
        candidates = [build_checkpoint_candidate(f"/x/model_epoch_{n}.pth") for n in range(8)]
        assert select_checkpoint_path(candidates, epoch=5) == "/x/model_epoch_5.pth"
        assert select_checkpoint_path(candidates[:5], epoch=5) == "/x/model_epoch_4.pth"
        assert select_checkpoint_path(candidates, epoch=20) is None

    def test_a_requested_step_must_match(self) -> None:
        candidates = [build_checkpoint_candidate(f"/x/iter_{n}.pth") for n in (10, 20)]
        assert select_checkpoint_path(candidates, step=10) == "/x/iter_10.pth"
        assert select_checkpoint_path(candidates, step=11) is None

    def test_latest_may_stand_in_for_a_requested_position(self) -> None:
        candidates = [
            build_checkpoint_candidate("/x/model_epoch_2.pth"),
            build_checkpoint_candidate("/x/model_latest.pth"),
        ]
        assert select_checkpoint_path(candidates, epoch=9) is None
        latest = select_checkpoint_path(candidates, epoch=9, allow_latest=True)
        assert latest == "/x/model_latest.pth"
        exact = select_checkpoint_path(candidates, epoch=2, allow_latest=True)
        assert exact == "/x/model_epoch_2.pth"

    @pytest.mark.parametrize("action", ["evaluate", "inference", "export", "Best"])
    def test_evaluation_prefers_the_best(self, action: str) -> None:
        candidates = [
            build_checkpoint_candidate("/x/model_epoch_99.pth"),
            build_checkpoint_candidate("/x/model_best.pth"),
        ]
        assert select_checkpoint_path(candidates, action=action) == "/x/model_best.pth"
        assert select_checkpoint_path(candidates, action="resume") == "/x/model_epoch_99.pth"

    def test_training_does_not_resume_from_an_exported_program(self) -> None:
        candidates = [
            build_checkpoint_candidate("/x/model_epoch_9.onnx", mtime=9.0),
            build_checkpoint_candidate("/x/model_epoch_8.pth", mtime=8.0),
        ]
        assert select_checkpoint_path(candidates) == "/x/model_epoch_8.pth"

    def test_files_or_folders_first(self, tmp_path: Path) -> None:
        save(tmp_path, "epoch_4/model.safetensors")

        def choose(prefer_directory: bool) -> str | None:
            return get_checkpoint_path(
                model_name=None, experiment_dir=tmp_path, prefer_directory=prefer_directory
            )

        assert choose(False) == str(tmp_path / "epoch_4/model.safetensors")
        assert choose(True) == str(tmp_path / "epoch_4")

    def test_the_checkpoints_folder_comes_first(self) -> None:
        paths = ["/x/other/iter_3.pt", "/x/safetensors/iter_2.pt", "/x/checkpoints/iter_1.pt"]
        candidates = [build_checkpoint_candidate(path) for path in paths]
        assert select_checkpoint_path(candidates) == paths[2]
        assert select_checkpoint_path(candidates[:2]) == paths[1]

    def test_self_distillation_trains_on_the_pair_and_uses_the_student(self) -> None:
        names = ["teacher_epoch_5.pth", "student_epoch_5.pth", "model_epoch_4.pth"]
        candidates = [build_checkpoint_candidate(f"/x/{name}") for name in names]

        def choose(action: str) -> str | None:
            return select_checkpoint_path(candidates, model_name="nvdinov2", action=action)

        assert choose("resume") == "/x/model_epoch_4.pth"
        assert choose("evaluate") == "/x/student_epoch_5.pth"

    @given(
        st.lists(
            st.builds(
                CheckpointCandidate,
                path=st.text("abc/_", min_size=1),
                epoch=st.none() | st.integers(0, 9),
                step=st.none() | st.integers(0, 9),
                is_dir=st.booleans(),
                is_latest=st.booleans(),
                is_best=st.booleans(),
                mtime=st.floats(0, 1e9),
            )
        ),
        st.none() | st.integers(0, 9),
    )
    def test_the_choice_does_not_depend_on_the_order(
        self, candidates: list[CheckpointCandidate], epoch: int | None
    ) -> None:
        chosen = select_checkpoint_path(candidates, epoch=epoch)
        assert chosen == select_checkpoint_path(candidates[::-1], epoch=epoch)
        if chosen is None:
            assert epoch is not None or not candidates


def test_checkpoints_of_a_store_are_found_at_any_depth_with_their_whole_address() -> None:
    """Lesson F13: one level deep, and bare names."""
    stored = {
        "train/epoch_002/model_epoch_002.pth": 10,
        "train/model_epoch_001.pth": 10,
        "train/cut_short_epoch_003.pth": 0,
        "inputs/pretrained.pth": 10,
        "status.json": 5,
    }
    assert remote_checkpoints("s3://bucket/results/job/", stored) == [
        "s3://bucket/results/job/train/model_epoch_001.pth",
        "s3://bucket/results/job/train/epoch_002",
        "s3://bucket/results/job/train/epoch_002/model_epoch_002.pth",
    ]
