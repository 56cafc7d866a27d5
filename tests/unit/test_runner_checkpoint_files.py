"""What a checkpoint is, and whether it is whole: real formats, cut short at random points."""

from __future__ import annotations

import json
import pickle
import struct
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from checkpoint_formats import Poison, plain_pickle, safetensors, torch_legacy, torch_zip
from hypothesis import given, settings
from hypothesis import strategies as st

from tao_sdk.runner.checkpoint_files import checkpoints_among, is_checkpoint_file_name
from tao_sdk.runner.checkpoint_integrity import is_whole

EXACT: dict[str, Callable[[], bytes]] = {
    "model.pth": torch_zip,
    "model.safetensors": safetensors,
    "legacy.pth": torch_legacy,
    "plain.ckpt": plain_pickle,
}


def saved(folder: Path, name: str, content: bytes) -> str:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return str(path)


class TestFiles:
    @pytest.mark.parametrize("name", EXACT)
    def test_a_whole_one_is_whole(self, tmp_path: Path, name: str) -> None:
        assert is_whole(saved(tmp_path, name, EXACT[name]()))

    @pytest.mark.parametrize("name", EXACT)
    @settings(max_examples=60, deadline=None)
    @given(data=st.data())
    def test_no_truncated_one_is_whole(self, name: str, data: st.DataObject) -> None:
        """Lesson A15: what the kill cut short is never resumed from."""
        content = EXACT[name]()
        end = data.draw(st.integers(0, len(content) - 1))
        with tempfile.TemporaryDirectory() as folder:
            assert not is_whole(saved(Path(folder), name, content[:end]))

    @pytest.mark.parametrize("name", EXACT)
    def test_not_even_by_one_byte_or_at_any_boundary(self, tmp_path: Path, name: str) -> None:
        content = EXACT[name]()
        for end in {len(content) - 1, *range(0, len(content), 7)}:
            assert not is_whole(saved(tmp_path, name, content[:end])), end

    @settings(max_examples=40, deadline=None)
    @given(st.binary(max_size=60), st.integers(0, 4), st.integers(1, 400))
    def test_a_zip_with_a_zip_inside_is_not_whole_where_the_inner_one_ends(
        self, prefix: bytes, tensors: int, cut: int
    ) -> None:
        """Files saved inside a checkpoint end as zips do, too."""
        content = torch_zip(2, payload=prefix + torch_zip(tensors))
        end = content.rindex(b"PK\5\6", 0, len(content) - 30) + 22
        with tempfile.TemporaryDirectory() as folder:
            assert is_whole(saved(Path(folder), "model.pt", content))
            assert not is_whole(saved(Path(folder), "model.pt", content[:end]))
            assert not is_whole(saved(Path(folder), "model.pt", content[:-cut]))

    def test_a_zip_with_holes_is_not_whole(self, tmp_path: Path) -> None:
        """A machine that crashed may leave the end of a file, and zeros where its start was."""
        content = torch_zip()
        at = content.index(b"PK\3\4", 100)
        holes = content[:at] + bytes(30) + content[at + 30 :]
        assert not is_whole(saved(tmp_path, "model.pth", holes))

    def test_a_zip_with_a_comment(self, tmp_path: Path) -> None:
        path = tmp_path / "model.pt"
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("data.pkl", "weights")
            archive.comment = b"a comment of some length"
        assert is_whole(str(path))
        path.write_bytes(path.read_bytes()[:-5])
        assert not is_whole(str(path))

    def test_a_zip_of_more_than_4_gib_is_judged_by_its_end(self, tmp_path: Path) -> None:
        path = tmp_path / "model.pth"
        with (
            zipfile.ZipFile(path, "w") as archive,
            archive.open("data", "w", force_zip64=True) as file,
        ):
            file.write(b"weights")
        with zipfile.ZipFile(path, "a") as archive:
            archive.start_dir += 5 << 30  # leaves a hole, where the disk holds nothing
            archive.writestr("more", "weights")
        assert path.stat().st_size > 5 << 30
        assert is_whole(str(path))
        with open(path, "r+b") as file:
            file.truncate(path.stat().st_size - 1)
        assert not is_whole(str(path))

    @pytest.mark.parametrize("content", [b"", b"P", b"PK", b"\x80\x02.", b"x" * 15])
    def test_what_is_too_small_is_not_whole(self, tmp_path: Path, content: bytes) -> None:
        assert not is_whole(saved(tmp_path, "model.pth", content))
        assert not is_whole(saved(tmp_path, "model.tlt", content))

    def test_bytes_after_the_end_do_not_belong_there(self, tmp_path: Path) -> None:
        for name in ("model.safetensors", "legacy.pth"):
            assert not is_whole(saved(tmp_path, name, EXACT[name]() + b"?"))

    @pytest.mark.parametrize(
        "header",
        [b"[]", b"{", b'{"a": 1}', b'{"a": {}}', b'{"a": {"data_offsets": []}}', b"\xff{}"],
    )
    def test_a_header_that_makes_no_sense(self, tmp_path: Path, header: bytes) -> None:
        content = struct.pack("<Q", len(header)) + header + bytes(100)
        assert not is_whole(saved(tmp_path, "model.safetensors", content))

    def test_an_unknown_format_has_to_be_there_only(self, tmp_path: Path) -> None:
        assert is_whole(saved(tmp_path, "model.tlt", b"an encrypted model, opaque"))
        assert not is_whole(str(tmp_path / "missing.tlt"))

    def test_a_temporary_name_is_not_whole(self, tmp_path: Path) -> None:
        assert not is_whole(saved(tmp_path, "tmp_model.pth", torch_zip()))
        assert is_whole(saved(tmp_path, "model_temp_0.7_attempt.pth", torch_zip()))

    def test_looking_runs_nothing(self, tmp_path: Path) -> None:
        assert is_whole(saved(tmp_path, "model.pth", torch_legacy()))
        assert is_whole(saved(tmp_path, "model.pth", pickle.dumps([Poison()] * 3, protocol=4)))

    @pytest.mark.parametrize("flavour", ["earliest", "latest"])
    def test_hdf5_knows_its_length(self, tmp_path: Path, flavour: str) -> None:
        h5py = pytest.importorskip("h5py")
        path = tmp_path / "model.hdf5"
        with h5py.File(path, "w", libver=flavour) as file:
            file["weights"] = list(range(5_000))
            file["more/deep"] = [1.0] * 500
        assert is_whole(str(path))
        content = path.read_bytes()
        for end in {len(content) - 1, len(content) // 2, 100, 63, 20}:
            assert not is_whole(saved(tmp_path, "cut.hdf5", content[:end]))

    def test_an_hdf5_file_whose_writer_was_killed(self, tmp_path: Path) -> None:
        h5py = pytest.importorskip("h5py")
        path = tmp_path / "model.hdf5"
        with h5py.File(path, "w", libver="latest") as file:
            file["weights"] = [1, 2, 3]
            file.flush()
            copied = path.read_bytes()
        assert is_whole(str(path))
        assert not is_whole(saved(tmp_path, "killed.hdf5", copied))

    @pytest.mark.parametrize("version", [0, 1, 2, 3, 9])
    def test_hdf5_superblocks(self, tmp_path: Path, version: int) -> None:
        """By hand, as h5py is not everywhere."""
        numbers = struct.pack("<QQQ", 0, 2**64 - 1, 200)
        starts = {
            0: bytes([0, 0, 0, 0, 0, 8, 8, 0]) + bytes(8) + numbers,
            1: bytes([1, 0, 0, 0, 0, 8, 8, 0]) + bytes(12) + numbers,
            2: bytes([2, 8, 8, 0]) + numbers,
            3: bytes([3, 8, 8, 0]) + numbers,
            9: bytes([9, 8, 8, 0]) + numbers,
        }
        content = (b"\x89HDF\r\n\x1a\n" + starts[version]).ljust(200, b"\0")
        assert is_whole(saved(tmp_path, "model.hdf5", content)) == (version != 9)
        assert not is_whole(saved(tmp_path, "model.hdf5", content[:-1]))


class TestFolders:
    def hugging_face(self, folder: Path) -> Path:
        shards = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
        for shard in shards:
            saved(folder, shard, safetensors())
        index = {"weight_map": {"layer0": shards[0], "layer1": shards[1]}}
        saved(folder, "model.safetensors.index.json", json.dumps(index).encode())
        saved(folder, "optimizer.pt", torch_zip())
        saved(folder, "training_args.bin", torch_zip())
        saved(folder, "trainer_state.json", b"{}")
        return folder

    def test_a_whole_one(self, tmp_path: Path) -> None:
        assert is_whole(str(self.hugging_face(tmp_path / "checkpoint-500")))

    @pytest.mark.parametrize("missing", ["model-00002-of-00002.safetensors", "trainer_state.json"])
    def test_a_part_is_missing(self, tmp_path: Path, missing: str) -> None:
        folder = self.hugging_face(tmp_path / "checkpoint-500")
        (folder / missing).unlink()
        assert not is_whole(str(folder))

    @pytest.mark.parametrize(
        "name", ["model-00001-of-00002.safetensors", "optimizer.pt", "model.safetensors.index.json"]
    )
    def test_a_part_is_cut_short(self, tmp_path: Path, name: str) -> None:
        folder = self.hugging_face(tmp_path / "checkpoint-500")
        (folder / name).write_bytes((folder / name).read_bytes()[:-1])
        assert not is_whole(str(folder))

    def test_shards_without_an_index_count_themselves(self, tmp_path: Path) -> None:
        for number in (1, 2, 3):
            saved(tmp_path, f"model-0000{number}-of-00003.safetensors", safetensors())
        assert is_whole(str(tmp_path))
        (tmp_path / "model-00002-of-00003.safetensors").unlink()
        assert not is_whole(str(tmp_path))

    def test_distributed_checkpoints_end_with_their_metadata(self, tmp_path: Path) -> None:
        saved(tmp_path, "step_3/__0_0.distcp", b"a rank's share of it all")
        assert not is_whole(str(tmp_path / "step_3"))
        saved(tmp_path, "step_3/.metadata.tmp", b"metadata")
        assert not is_whole(str(tmp_path / "step_3"))
        (tmp_path / "step_3/.metadata.tmp").rename(tmp_path / "step_3/.metadata")
        assert is_whole(str(tmp_path / "step_3"))
        saved(tmp_path, "step_3/__1_0.distcp", b"")
        assert not is_whole(str(tmp_path / "step_3"))

    def test_parts_further_down_count(self, tmp_path: Path) -> None:
        saved(tmp_path, "epoch=1.ckpt/checkpoint/mp_rank_00_model_states.pt", torch_zip())
        assert is_whole(str(tmp_path / "epoch=1.ckpt"))
        saved(tmp_path, "epoch=1.ckpt/checkpoint/mp_rank_01_model_states.pt", torch_zip()[:-1])
        assert not is_whole(str(tmp_path / "epoch=1.ckpt"))

    @pytest.mark.parametrize("name", ["tmp-checkpoint-500", "epoch_3.orbax-checkpoint-tmp-17"])
    def test_a_folder_being_written_is_not_whole(self, tmp_path: Path, name: str) -> None:
        saved(tmp_path, f"{name}/model.pth", torch_zip())
        assert not is_whole(str(tmp_path / name))
        saved(tmp_path, f"epoch_4/{name}/model.pth", torch_zip())
        assert not is_whole(str(tmp_path / "epoch_4"))

    def test_nothing_in_it(self, tmp_path: Path) -> None:
        (tmp_path / "epoch_1").mkdir()
        (tmp_path / "epoch_1/notes").touch()
        assert not is_whole(str(tmp_path / "epoch_1"))


class TestFinding:
    """What the walk over a folder finds is tested with `tao_sdk.checkpoints`."""

    def test_a_listing_serves_as_well_as_a_folder(self) -> None:
        sizes = {
            "train/model_epoch_1.pth": 7,
            "train/model_epoch_2.pth": 0,
            "train/checkpoint-5/model-00001-of-00001.safetensors": -1,
            "ptm/model.pth": 7,
            ".tao/model.pth": 7,
            "train/inputs/model.pth": 7,
            "inputs.pth": 7,
        }
        assert list(checkpoints_among(sizes)) == [
            ("inputs.pth", False),
            ("train/model_epoch_1.pth", False),
            ("train/checkpoint-5", True),
        ]

    @given(st.dictionaries(st.text("ab/._-0epochstnl", max_size=20), st.integers(-1, 9)))
    def test_every_file_found_is_one_that_was_given(self, sizes: dict[str, int]) -> None:
        for path, is_folder in checkpoints_among(sizes):
            if not is_folder:
                assert is_checkpoint_file_name(path)
