"""Unpacking archives: everything that is in them, nothing outside, all or nothing."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import shutil
import stat
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tao_sdk.runner import archive_members
from tao_sdk.runner.archives import extract, extract_beside, extracted_folder
from tao_sdk.runner.errors import RunnerError
from tao_sdk.runner.uris import is_archive

ZSTD = shutil.which("zstd")


def quiet(_: str) -> None:
    """Nothing is worth saying here."""


def unpack(path: Path, *, keep: bool = True, into_parent: bool = False) -> Path:
    return Path(extract_beside(str(path), "d1", keep=keep, into_parent=into_parent, say=quiet))


def member(
    name: str, content: bytes = b"content", **fields: object
) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.size = len(content)
    info.mtime = 1_000_000_000
    for field, value in fields.items():
        setattr(info, field, value)
    if not info.isreg():
        info.size, content = 0, b""
    return info, content


def folder(name: str, **fields: object) -> tuple[tarfile.TarInfo, bytes]:
    return member(name, b"", type=tarfile.DIRTYPE, **{"mode": 0o755, **fields})


def link(name: str, target: str, kind: bytes = tarfile.SYMTYPE) -> tuple[tarfile.TarInfo, bytes]:
    return member(name, type=kind, linkname=target)


def hard_link(name: str, target: str) -> tuple[tarfile.TarInfo, bytes]:
    return link(name, target, tarfile.LNKTYPE)


def pack(path: Path, *members: tuple[tarfile.TarInfo, bytes], mode: str = "w") -> Path:
    with tarfile.open(path, mode) as archive:  # type: ignore[call-overload]  # a mode of the parameters
        for info, content in members:
            archive.addfile(info, io.BytesIO(content))
    return path


def pack_zip(path: Path, *names: str, kind: int = stat.S_IFREG, content: str = "content") -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name in names:
            info = zipfile.ZipInfo(name)
            info.external_attr = (kind | 0o644) << 16
            archive.writestr(info, content)
    return path


def tree(root: Path) -> dict[str, tuple[object, ...]]:
    """Everything below a folder: what it is, its permissions, its time, its content."""
    found: dict[str, tuple[object, ...]] = {}
    for path in sorted(root.rglob("*")):
        status = path.lstat()
        permissions = stat.S_IMODE(status.st_mode)
        if path.is_symlink():
            what: tuple[object, ...] = ("link", str(path.readlink()))
        elif path.is_dir():
            what = ("folder", permissions)
        else:
            what = ("file", permissions, int(status.st_mtime), path.read_bytes())
        found[str(path.relative_to(root))] = what
    return found


def names(root: Path) -> set[str]:
    return set(tree(root))


class TestNames:
    @pytest.mark.parametrize(
        "name",
        [
            *("a.tar", "a.tar.gz", "a.tgz", "a.tar.bz2", "a.tbz2", "a.tar.xz", "a.txz"),
            *("a.tar.zst", "a.zip", "A.TAR.GZ", "/data/a.b.tgz", "images.v2.zip"),
        ],
    )
    def test_archives(self, name: str) -> None:
        assert is_archive(name)

    @pytest.mark.parametrize(
        "name", ["a.gz", "tar", ".tar", "x/.zip", "a.tar.txt", "a.zipper", "model.pth.tar.json", ""]
    )
    def test_others(self, name: str) -> None:
        assert not is_archive(name)


class TestFolders:
    @pytest.mark.parametrize("name", ["set.tar", "set.tar.gz", "set.tgz", "set.tar.xz", "SET.zip"])
    def test_beside_the_archive_without_its_suffix(self, tmp_path: Path, name: str) -> None:
        """Lesson A20: zip, too."""
        path = tmp_path / name
        pack_zip(path, "a/x") if name.endswith("zip") else pack(path, member("a/x"))
        result = unpack(path)
        assert result == tmp_path / name.split(".")[0]
        assert (result / "a/x").read_text() == "content"

    def test_a_top_folder_of_the_same_name_is_left_out(self, tmp_path: Path) -> None:
        result = unpack(pack(tmp_path / "set.tar", folder("./set"), member("./set/a/x")))
        assert names(result) == {"a", "a/x"}

    @pytest.mark.parametrize(
        "other",
        [member("other"), link("other", "set"), folder("other")],
        ids=["file", "link", "folder"],
    )
    def test_but_only_if_it_holds_everything(
        self, tmp_path: Path, other: tuple[tarfile.TarInfo, bytes]
    ) -> None:
        result = unpack(pack(tmp_path / "set.tar", member("set/x"), other))
        assert names(result) == {"set", "set/x", "other"}

    def test_a_file_of_the_same_name_is_no_top_folder(self, tmp_path: Path) -> None:
        assert names(unpack(pack(tmp_path / "set.tar", member("set")))) == {"set"}

    def test_into_the_parent_beside_what_is_there(self, tmp_path: Path) -> None:
        (tmp_path / "set").mkdir()
        (tmp_path / "set/old").write_text("old")
        (tmp_path / "set/x").write_text("old")
        path = pack(tmp_path / "set.tar", member("set/x"), member("y"))
        assert unpack(path, into_parent=True, keep=False) == tmp_path
        assert (tmp_path / "set/x").read_text() == "content"
        shown = {name for name in names(tmp_path) if not name.startswith(".")}
        assert shown == {"set", "set/old", "set/x", "y"}

    def test_a_folder_that_was_there_keeps_what_it_has(self, tmp_path: Path) -> None:
        (tmp_path / "set").mkdir()
        (tmp_path / "set/other").touch()
        assert names(unpack(pack(tmp_path / "set.tar", member("x")))) == {"other", "x"}

    @pytest.mark.parametrize("into_parent", [False, True])
    def test_nothing_is_written_through_a_link_that_was_there(
        self, tmp_path: Path, into_parent: bool
    ) -> None:
        outside, inside = tmp_path / "outside", tmp_path / "inside"
        outside.mkdir()
        inside.mkdir()
        (inside / "set").symlink_to(outside)
        name = "set/x" if into_parent else "x"
        with pytest.raises(RunnerError, match="is in the way"):
            unpack(pack(inside / "set.tar", member(name)), into_parent=into_parent)
        assert names(outside) == set()

    def test_the_archive_does_not_replace_itself(self, tmp_path: Path) -> None:
        with pytest.raises(RunnerError, match="is in the way"):
            unpack(pack(tmp_path / "set.tar", member("set.tar")), into_parent=True)

    def test_extract_names_its_folder(self, tmp_path: Path) -> None:
        path = pack(tmp_path / "set.tar", member("set/x"))
        extract(str(path), str(tmp_path / "deep/er"), say=quiet)
        assert names(tmp_path / "deep/er") == {"x"}


class TestProof:
    """Lesson A2: that something is there does not prove that it is whole."""

    def test_what_was_unpacked_is_not_unpacked_again(self, tmp_path: Path) -> None:
        path = pack(tmp_path / "set.tar", member("x"))
        result = unpack(path)
        (result / "x").write_text("changed by us")
        assert unpack(path) == result
        assert (result / "x").read_text() == "changed by us"

    def test_the_archive_is_deleted_and_not_needed_again(self, tmp_path: Path) -> None:
        """Lesson A20: the data is not kept twice."""
        path = pack(tmp_path / "set.tar", member("x"))
        result = unpack(path, keep=False)
        assert not path.exists()
        assert extracted_folder(str(path), "d1") == str(result)
        assert extracted_folder(str(path), "d2") is None
        assert unpack(path, keep=False) == result

    def test_an_archive_that_outlived_its_extraction_is_deleted(self, tmp_path: Path) -> None:
        path = pack(tmp_path / "set.tar", member("x"))
        unpack(path, keep=True)
        unpack(path, keep=False)
        assert not path.exists()

    @pytest.mark.parametrize("emptied", [True, False])
    def test_a_marker_without_its_folder_proves_nothing(
        self, tmp_path: Path, emptied: bool
    ) -> None:
        path = pack(tmp_path / "set.tar", member("x"))
        result = unpack(path)
        shutil.rmtree(result)
        if emptied:
            result.mkdir()
        assert extracted_folder(str(path), "d1") is None
        assert names(unpack(path)) == {"x"}

    def test_a_folder_without_a_marker_proves_nothing(self, tmp_path: Path) -> None:
        path = pack(tmp_path / "set.tar", member("x"))
        (tmp_path / "set").mkdir()
        (tmp_path / "set/x").write_text("con")
        assert (unpack(path) / "x").read_text() == "content"

    def test_without_a_digest_nothing_is_proved(self, tmp_path: Path) -> None:
        path = pack(tmp_path / "set.tar", member("x"))
        extract_beside(str(path), "", keep=True, say=quiet)
        assert extracted_folder(str(path), "") is None

    def test_another_version_takes_the_place_of_the_old(self, tmp_path: Path) -> None:
        path = pack(tmp_path / "set.tar", member("x"), member("gone"))
        unpack(path)
        pack(path, member("x", b"second"))
        result = Path(extract_beside(str(path), "d2", keep=True, say=quiet))
        assert names(result) == {"x"}
        assert (result / "x").read_text() == "second"

    def test_but_not_of_what_came_from_elsewhere(self, tmp_path: Path) -> None:
        unpack(pack(tmp_path / "set.tar", member("x")))
        unpack(pack_zip(tmp_path / "set.zip", "y"))
        pack(tmp_path / "set.tar", member("z"))
        result = extract_beside(str(tmp_path / "set.tar"), "d2", keep=True, say=quiet)
        assert names(Path(result)) >= {"y", "z"}

    def test_what_a_killed_extraction_left_is_swept_away(self, tmp_path: Path) -> None:
        path = pack(tmp_path / "set.tar", member("a/x", b"x" * 3_000_000), member("y"))
        program = (
            "import os, signal, sys\n"
            "from tao_sdk.runner import archives\n"
            "def die(*_): os.kill(os.getpid(), signal.SIGKILL)\n"
            "archives._merge = die\n"
            "archives.extract_beside(sys.argv[1], 'd1', keep=False, say=print)\n"
        )
        killed = subprocess.run([sys.executable, "-c", program, str(path)], timeout=60, check=False)
        assert killed.returncode == -9
        assert len(list(tmp_path.iterdir())) == 2
        assert not (tmp_path / "set").exists()
        extract_beside(str(path), "d1", keep=False, shared=False, say=quiet)
        assert names(tmp_path / "set") == {"a", "a/x", "y"}
        assert {entry.name for entry in tmp_path.iterdir()} == {"set", ".set.tar.tao-extracted"}

    def test_in_a_shared_folder_only_what_is_old_is_swept_away(self, tmp_path: Path) -> None:
        path = pack(tmp_path / "set.tar", member("x"))
        young, old = (tmp_path / f".set.tar.{d * 8}.tao-extract" for d in "ab")
        young.mkdir()
        old.mkdir()
        os.utime(old, (0, 0))
        unpack(path)
        assert (young.exists(), old.exists()) == (True, False)


class TestAtTheSameTime:
    """Several processes, perhaps on several hosts, unpack the same archive in the same folder."""

    @pytest.mark.parametrize("into_parent", [False, True])
    def test_one_begins_and_ends_while_another_unpacks(
        self, tmp_path: Path, into_parent: bool
    ) -> None:
        device = member("dev", type=tarfile.CHRTYPE)
        path = pack(tmp_path / "set.tar", member("x"), device, member("y"))

        def meanwhile(_: str) -> None:  # said of the device, in the middle
            unpack(path, into_parent=into_parent)

        found = extract_beside(str(path), "d1", keep=True, into_parent=into_parent, say=meanwhile)
        own = {"set.tar", ".set.tar.tao-extracted"} if into_parent else set()
        assert names(Path(found)) == {"x", "y"} | own
        assert not list(tmp_path.glob("*.tao-extract"))

    def test_what_another_has_put_into_place_is_not_moved_again(self, tmp_path: Path) -> None:
        device = member("dev", type=tarfile.CHRTYPE)
        path = pack(tmp_path / "set.tar", member("x"))
        extract_beside(str(path), "d0", keep=True, say=quiet)
        pack(path, device, member("y"))
        seen: list[int] = []

        def meanwhile(_: str) -> None:
            seen.append(unpack(path).stat().st_ino)

        found = extract_beside(str(path), "d1", keep=True, say=meanwhile)
        assert names(Path(found)) == {"y"}
        assert Path(found).stat().st_ino == seen[0]

    def test_the_folder_appears_at_the_last_moment(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        path = pack(tmp_path / "set.tar", member("x"))
        lexists = os.path.lexists
        folder = tmp_path / "set"

        def too_early(looked_at: str) -> bool:
            found = lexists(looked_at)
            if looked_at == str(folder) and not found:
                folder.mkdir()
                (folder / "x").write_bytes(b"content")
            return found

        monkeypatch.setattr(os.path, "lexists", too_early)
        extract(str(path), str(folder), say=quiet)
        assert names(folder) == {"x"}


class TestWhatIsKept:
    def test_modes_times_and_links(self, tmp_path: Path) -> None:
        """Lesson A20: neither modes nor links are dropped."""
        path = pack(
            tmp_path / "set.tar",
            folder("bin", mode=0o750),
            member("bin/run", mode=0o755),
            member("notes", mode=0o444),
            link("bin/latest", "run"),
            link("top", "bin/../notes"),
            link("bin/up", "../notes"),
            hard_link("same", "bin/run"),
        )
        result = unpack(path)
        file = ("file", 0o755, 1_000_000_000, b"content")
        assert tree(result) == {
            "bin": ("folder", 0o750),
            "bin/run": file,
            "same": file,
            "notes": ("file", 0o444, 1_000_000_000, b"content"),
            "bin/latest": ("link", "run"),
            "top": ("link", "notes"),
            "bin/up": ("link", "../notes"),
        }
        assert (result / "same").samefile(result / "bin/run")
        assert int((result / "bin").stat().st_mtime) == 1_000_000_000

    def test_modes_are_made_safe(self, tmp_path: Path) -> None:
        path = pack(
            tmp_path / "set.tar",
            folder("locked", mode=0o000),
            member("locked/x", mode=0o000),
            member("setuid", mode=0o6777),
            folder("shared", mode=0o3777),
        )
        assert {name: what[1] for name, what in tree(unpack(path)).items()} == {
            "locked": 0o700,
            "locked/x": 0o400,
            "setuid": 0o755,
            "shared": 0o755,
        }

    def test_the_last_of_several_members_of_one_name_counts(self, tmp_path: Path) -> None:
        path = pack(
            tmp_path / "set.tar",
            *(member("x"), link("x", "y"), member("x", b"last")),
            *(member("y"), link("y", "x")),
            *(folder("z"), folder("z", mode=0o700)),
        )
        result = unpack(path)
        assert (result / "x").read_text() == "last"
        assert (result / "y").readlink() == Path("x")
        assert tree(result)["z"] == ("folder", 0o700)

    def test_a_hard_link_to_a_symbolic_link_is_one(self, tmp_path: Path) -> None:
        path = pack(tmp_path / "set.tar", member("x"), link("a", "x"), hard_link("b", "a"))
        assert tree(unpack(path))["b"] == ("link", "x")

    def test_devices_and_pipes_are_left_out_and_said(self, tmp_path: Path) -> None:
        said: list[str] = []
        kinds = (tarfile.FIFOTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE)
        members = [member(f"dev/{number}", type=kind) for number, kind in enumerate(kinds)]
        path = pack(tmp_path / "set.tar", *members, member("x"))
        result = extract_beside(str(path), "d1", keep=True, say=said.append)
        assert names(Path(result)) == {"dev", "x"}
        assert len(said) == 3
        assert "dev/0" in said[0]

    def test_zip_modes_links_and_times(self, tmp_path: Path) -> None:
        source = tmp_path / "source"
        source.mkdir()
        (source / "run").write_text("#!")
        (source / "run").chmod(0o755)
        os.utime(source / "run", (1_000_000_001, 1_000_000_001))
        (source / "link").symlink_to("run")
        subprocess.run(
            ["zip", "-q", "-r", "-y", "../set.zip", "."],
            cwd=source,
            timeout=60,
            check=True,
            env={**os.environ, "TZ": "Asia/Tokyo"},
        )
        assert tree(unpack(tmp_path / "set.zip")) == {
            "run": ("file", 0o755, 1_000_000_001, b"#!"),
            "link": ("link", "run"),
        }

    def test_zip_from_windows(self, tmp_path: Path) -> None:
        path = tmp_path / "set.zip"
        with zipfile.ZipFile(path, "w") as archive:
            info = zipfile.ZipInfo("a\\b.txt", (2020, 1, 2, 3, 4, 6))
            info.create_system = 0
            info.external_attr = 0x20
            archive.writestr(info, "text")
        assert (unpack(path) / "a/b.txt").read_text() == "text"
        assert tree(tmp_path / "set")["a/b.txt"][1] == 0o644

    def test_zip64(self, tmp_path: Path) -> None:
        path = tmp_path / "set.zip"
        with (
            zipfile.ZipFile(path, "w") as archive,
            archive.open("x", "w", force_zip64=True) as file,
        ):
            file.write(b"content")
        assert (unpack(path) / "x").read_text() == "content"

    def test_sparse_files(self, tmp_path: Path) -> None:
        with open(tmp_path / "holes", "wb") as file:
            file.seek(5_000_000)
            file.write(b"end")
        subprocess.run(
            ["tar", "--sparse", "-cf", "set.tar", "holes"], cwd=tmp_path, timeout=60, check=True
        )
        assert (tmp_path / "set.tar").stat().st_size < 100_000
        content = (unpack(tmp_path / "set.tar") / "holes").read_bytes()
        assert content == bytes(5_000_000) + b"end"

    def test_an_empty_archive_is_an_empty_folder(self, tmp_path: Path) -> None:
        assert names(unpack(pack(tmp_path / "set.tar"))) == set()
        assert names(unpack(pack_zip(tmp_path / "other.zip"))) == set()


HOSTILE: dict[str, list[tuple[tarfile.TarInfo, bytes]]] = {
    "absolute": [member("/tmp/tao-escaped")],
    "parent": [member("../escaped")],
    "parent inside": [member("a/../../escaped")],
    "parent that comes back": [member("a/../x")],
    "parent as folder": [folder("..")],
    "windows drive": [member("C:\\escaped")],
    "windows share": [member("\\\\host\\escaped")],
    "windows parent": [member("..\\escaped")],
    "link then write": [link("a", "/tmp"), member("a/tao-escaped")],
    "link inside then write": [folder("b"), link("a", "b"), member("a/x")],
    "write then link": [member("a/x"), link("a", "/tmp")],
    "absolute link": [link("a", "/etc/passwd")],
    "link to parent": [link("a", "..")],
    "link to parent, below": [folder("b"), link("b/a", "../../x")],
    "link through itself": [link("a", "a/../..")],
    "empty link": [link("a", "")],
    "hard link outside": [hard_link("a", "../outside")],
    "absolute hard link": [hard_link("a", "/etc/passwd")],
    "hard link to nothing": [hard_link("a", "b")],
    "hard link to a folder": [folder("b"), hard_link("a", "b")],
    "hard link through a link": [link("b", "/etc"), hard_link("a", "b/passwd")],
    "file as folder": [member("a"), member("a/b")],
    "folder as file": [member("a/b"), member("a")],
    "link over folder": [folder("a"), link("a", "b")],
    # Leaving out the top folder must not open a way out.
    "link out of the collapsed folder": [member("set/x"), link("set/a", "../b")],
}


class TestHostile:
    @pytest.mark.parametrize("kind", HOSTILE)
    def test_nothing_gets_out_and_nothing_is_left(self, tmp_path: Path, kind: str) -> None:
        (tmp_path / "outside").write_text("secret")
        inside = tmp_path / "inside"
        inside.mkdir()
        path = pack(inside / "set.tar", member("first"), *HOSTILE[kind])
        if "collapsed" in kind:
            pack(path, *HOSTILE[kind])
        with pytest.raises(RunnerError) as refusal:
            unpack(path, keep=False)
        assert str(path) in str(refusal.value)
        assert repr(HOSTILE[kind][-1][0].name) in str(refusal.value)
        assert names(tmp_path) == {"outside", "inside", "inside/set.tar"}
        assert not Path("/tmp/tao-escaped").exists()

    def test_links_that_go_up_step_by_step_stay_inside(self, tmp_path: Path) -> None:
        """`y` would lead out, were it not normalised: `up` is the top, and above it is outside."""
        path = pack(
            tmp_path / "set.tar",
            *(folder("a"), folder("a/b"), link("a/b/up", "../.."), link("y", "a/b/up/..")),
        )
        result = unpack(path)
        assert (result / "y").resolve() == result / "a/b"
        assert (result / "a/b/up").resolve() == result

    @settings(max_examples=60, deadline=None)
    @given(
        st.lists(
            st.tuples(
                st.sampled_from(["file", "folder", "link", "hard link"]),
                st.lists(st.sampled_from(["a", "b", ".", ".."]), min_size=1, max_size=4),
                st.lists(st.sampled_from(["a", "b", ".", "..", ""]), max_size=5),
            ),
            max_size=8,
        ),
        st.booleans(),
    )
    def test_no_random_archive_gets_out(
        self, entries: list[tuple[str, list[str], list[str]]], into_parent: bool
    ) -> None:
        make: dict[str, Callable[[str, str], tuple[tarfile.TarInfo, bytes]]] = {
            "file": lambda name, _: member(name),
            "folder": lambda name, _: folder(name),
            "link": link,
            "hard link": hard_link,
        }
        with tempfile.TemporaryDirectory() as name:
            top = Path(name).resolve()
            inside = top / "x/y"
            inside.mkdir(parents=True)
            members = [make[kind]("/".join(at), "/".join(to)) for kind, at, to in entries]
            for number in (0, 1):
                path = pack(inside / f"set{number}.tar", *members[number::2])
                try:
                    unpack(path, into_parent=into_parent)
                except RunnerError:
                    assert not (inside / f"set{number}").exists()
            assert {path.name for path in top.iterdir()} == {"x"}
            assert {path.name for path in (top / "x").iterdir()} == {"y"}
            for path in inside.rglob("*"):
                if path.is_symlink():
                    try:
                        target = path.resolve()
                    except (OSError, RuntimeError):
                        continue  # links in a circle lead nowhere
                    assert target == inside or inside in target.parents

    @pytest.mark.parametrize("name", ["/tmp/tao-escaped", "../x", "a\\..\\..\\x", "C:\\x", "C:/x"])
    def test_hostile_zip_names(self, tmp_path: Path, name: str) -> None:
        with pytest.raises(RunnerError, match="member"):
            unpack(pack_zip(tmp_path / "set.zip", "ok", name))
        assert names(tmp_path) == {"set.zip"}

    @pytest.mark.parametrize("target", ["/etc/passwd", "../x", "a/../../x", ""])
    def test_hostile_zip_links(self, tmp_path: Path, target: str) -> None:
        path = pack_zip(tmp_path / "set.zip", "a", kind=stat.S_IFLNK, content=target)
        with pytest.raises(RunnerError, match="points outside"):
            unpack(path)

    def test_zip_pipes_are_left_out(self, tmp_path: Path) -> None:
        assert names(unpack(pack_zip(tmp_path / "set.zip", "a", kind=stat.S_IFIFO))) == set()

    def test_a_member_larger_than_the_disk_is_not_begun(self, tmp_path: Path) -> None:
        info, _ = member("bomb")
        info.size = 1 << 60
        path = tmp_path / "set.tar"
        path.write_bytes(info.tobuf(tarfile.GNU_FORMAT) + bytes(10240))
        with pytest.raises(RunnerError, match="more than the disk has free"):
            unpack(path)
        assert names(tmp_path) == {"set.tar"}

    @pytest.mark.parametrize("mtime", [-5, 1e300, float("nan"), float("inf")])
    def test_impossible_times_are_ignored(self, tmp_path: Path, mtime: float) -> None:
        info, content = member("x")
        info.mtime = 0
        info.pax_headers = {"mtime": str(mtime)}
        with tarfile.open(tmp_path / "set.tar", "w", format=tarfile.PAX_FORMAT) as archive:
            archive.addfile(info, io.BytesIO(content))
        assert names(unpack(tmp_path / "set.tar")) == {"x"}

    def test_an_encrypted_zip_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "x").write_text("content")
        subprocess.run(
            ["zip", "-q", "-P", "password", "set.zip", "x"], cwd=tmp_path, timeout=60, check=True
        )
        with pytest.raises(RunnerError, match="encrypted"):
            unpack(tmp_path / "set.zip")


def compress_none(data: bytes) -> bytes:
    return data


COMPRESSIONS: dict[str, Callable[[bytes], bytes]] = {
    "tar": compress_none,
    "tar.gz": gzip.compress,
    "tar.bz2": bz2.compress,
    "tar.xz": lzma.compress,
}


class TestDamage:
    def archive(self, tmp_path: Path, suffix: str) -> Path:
        path = tmp_path / f"set.{suffix}"
        noise = [os.urandom(3_000), b"text " * 2_000, os.urandom(20_000)]
        if suffix == "zip":
            with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
                for number, content in enumerate(noise):
                    archive.writestr(str(number), content)
        else:
            plain = tmp_path / "plain"
            pack(plain, *(member(str(number), content) for number, content in enumerate(noise)))
            path.write_bytes(COMPRESSIONS[suffix](plain.read_bytes()))
            plain.unlink()
        return path

    @pytest.mark.parametrize("suffix", [*COMPRESSIONS, "zip"])
    def test_no_truncated_archive_is_unpacked(self, tmp_path: Path, suffix: str) -> None:
        whole = self.archive(tmp_path, suffix).read_bytes()
        path = tmp_path / f"set.{suffix}"
        # A plain tar is whole once its end is marked; the padding after that says nothing.
        end = len(whole) - (10_240 if suffix == "tar" else 1)
        points = {0, 1, 100, 511, 512, 513, 4_096, end, *range(0, end, end // 40)}
        for point in sorted(points):
            path.write_bytes(whole[:point])
            with pytest.raises(RunnerError, match=f"archive {path} is damaged"):
                unpack(path)
            assert names(tmp_path) == {path.name}
        path.write_bytes(whole)
        assert names(unpack(path)) == {"0", "1", "2"}

    @pytest.mark.parametrize("suffix", ["tar.gz", "tar.bz2", "tar.xz", "zip"])
    def test_no_changed_byte_of_the_data_goes_unnoticed(self, tmp_path: Path, suffix: str) -> None:
        path = self.archive(tmp_path, suffix)
        whole = path.read_bytes()
        original = tree(unpack(path))
        shutil.rmtree(tmp_path / "set")
        (tmp_path / f".{path.name}.tao-extracted").unlink()
        for point in range(200, len(whole) - 400, len(whole) // 40):
            path.write_bytes(whole[:point] + bytes([whole[point] ^ 0x55]) + whole[point + 1 :])
            try:
                result = unpack(path)
            except RunnerError:
                assert names(tmp_path) == {path.name}
            else:
                # A zip says some things twice; where the copy is damaged, all is well.
                assert suffix == "zip"
                assert tree(result) == original
                shutil.rmtree(result)
                (tmp_path / ".set.zip.tao-extracted").unlink()

    def test_a_damaged_header_is_not_the_end(self, tmp_path: Path) -> None:
        """tarfile by itself would take it for one, and leave out the rest without a word."""
        path = pack(tmp_path / "set.tar", member("a"), member("b"), member("c"))
        data = bytearray(path.read_bytes())
        data[1024 + 100] ^= 1
        path.write_bytes(data)
        with pytest.raises(RunnerError, match="damaged"):
            unpack(path)

    @pytest.mark.parametrize("content", [b"", b"<html>Not found</html>", b"PK", b"\x1f\x8b"])
    def test_something_else_under_an_archives_name(self, tmp_path: Path, content: bytes) -> None:
        path = tmp_path / "set.tar.gz"
        path.write_bytes(content)
        with pytest.raises(RunnerError, match=f"archive {path} is damaged"):
            unpack(path)

    def test_a_missing_archive(self, tmp_path: Path) -> None:
        with pytest.raises(RunnerError, match=r"set\.tar"):
            unpack(tmp_path / "set.tar")

    def test_the_compression_is_seen_whatever_the_name_says(self, tmp_path: Path) -> None:
        path = pack(tmp_path / "set.tar", member("x"), mode="w:gz")
        assert names(unpack(path)) == {"x"}


@pytest.mark.skipif(ZSTD is None, reason="no zstd program to pack with")
class TestZstd:
    def packed(self, tmp_path: Path) -> Path:
        pack(tmp_path / "plain", member("x", os.urandom(100_000)), member("y"))
        path = tmp_path / "set.tar.zst"
        command = ["zstd", "-q", "--rm", "-o", str(path), str(tmp_path / "plain")]
        subprocess.run(command, timeout=60, check=True)
        return path

    @pytest.fixture(params=["program", "package"])
    def way(self, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
        if request.param == "package":
            pytest.importorskip("zstandard")
            monkeypatch.setattr(shutil, "which", lambda _: None)
        return str(request.param)

    def test_round_trip(self, tmp_path: Path, way: str) -> None:
        assert names(unpack(self.packed(tmp_path))) == {"x", "y"}

    def test_truncated(self, tmp_path: Path, way: str) -> None:
        path = self.packed(tmp_path)
        whole = path.read_bytes()
        for point in (5, 100, len(whole) // 2, len(whole) - 1_000):
            path.write_bytes(whole[:point])
            with pytest.raises(RunnerError, match="damaged"):
                unpack(path)

    def test_neither_program_nor_package(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        path = self.packed(tmp_path)
        monkeypatch.setattr(shutil, "which", lambda _: None)
        monkeypatch.setattr(archive_members, "importable", lambda _: None)
        with pytest.raises(RunnerError, match="add the program zstd"):
            unpack(path)


FILE_NAMES = st.text(
    st.characters(blacklist_categories=("Cs", "Cc"), blacklist_characters="/\\:"),
    min_size=1,
    max_size=20,
).filter(lambda name: name not in (".", "..") and len(name.encode()) < 60)
PLACES = st.lists(FILE_NAMES, min_size=1, max_size=4).map(tuple)
CONTENTS = st.tuples(st.binary(max_size=3_000), st.sampled_from([0o644, 0o755, 0o600, 0o400]))


def plant(root: Path, files: Iterable[tuple[tuple[str, ...], tuple[bytes, int]]]) -> None:
    for number, (place, (content, mode)) in enumerate(files):
        path = root.joinpath(*place)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        except OSError:
            continue  # a folder here and a file there
        path.chmod(mode)
        os.utime(path, (1_500_000_000 + number, 1_500_000_000 + number))
        beside = path.with_name(f"link{number}")
        if number % 3 == 0 and not beside.exists():
            beside.symlink_to(path.name)


@pytest.mark.parametrize(
    "command",
    [
        ["tar", "-cf", "../set.tar", "."],
        ["tar", "--format=pax", "-czf", "../set.tar.gz", "."],
        ["tar", "--format=gnu", "-cJf", "../set.tar.xz", "."],
        ["zip", "-q", "-r", "-y", "../set.zip", "."],
    ],
    ids=["tar", "tar.gz", "tar.xz", "zip"],
)
@settings(max_examples=15, deadline=None)
@given(files=st.dictionaries(PLACES, CONTENTS, min_size=1, max_size=8))
def test_any_tree_comes_out_as_the_programs_packed_it(
    command: list[str], files: dict[tuple[str, ...], tuple[bytes, int]]
) -> None:
    with tempfile.TemporaryDirectory() as name:
        source = Path(name) / "source"
        source.mkdir()
        plant(source, files.items())
        subprocess.run(command, cwd=source, timeout=60, check=True)
        archive = next(Path(name).glob("set.*"))
        assert tree(unpack(archive)) == tree(source)
