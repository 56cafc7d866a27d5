"""Archives that try to write outside, to take all memory, or to hang: each ends in a sentence."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import random
import resource
import shutil
import stat
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fuzzing import MEMORY, Findings, counts, fuzz_in, run_bounded

from tao_sdk.runner import archives
from tao_sdk.runner.archives import extract
from tao_sdk.runner.errors import RunnerError

__all__ = ["fuzz_in"]

USUAL = ["x", "y", "z", "u/v", "a/x", "a/y", "a/b/c/d", "./a//b", "a/./x", "dir/x", "dir/y"]
NAMES = [
    *(USUAL * 10 + ["a", "a/", ".", ""]),
    *("../outside", "a/../../outside", "..", "/outside", "//outside", "C:\\outside", "..\\outside"),
    *("\\outside", "c:/outside", "a/..", "link/x", "link", "hard", "a\nb", "a\x1b[2Jb", "\udcff"),
    *(
        "a" * 255,
        "a" * 256,
        "a/" * 40 + "x",
        "a/" * 300 + "x",
        "a/" * 3000 + "x",
        "é" * 100,
        "\x7f",
    ),
]
TARGETS = ["..", "../outside", "/etc", "link", "a/../..", "", ".", "a/" * 999, "./link/.."]
TARGETS += ["x", "y", "a/x"] * 5
TYPES = [tarfile.REGTYPE] * 6 + [tarfile.DIRTYPE] * 2 + [tarfile.SYMTYPE, tarfile.LNKTYPE] * 3
TYPES += [tarfile.FIFOTYPE, tarfile.CHRTYPE, tarfile.CONTTYPE, tarfile.GNUTYPE_SPARSE, b"Z"]
HEADERS = [
    *("path", "linkpath", "size", "mtime", "mode", "uid", "hdrcharset", "charset", "comment"),
    *("GNU.sparse.map", "GNU.sparse.size", "GNU.sparse.major", "GNU.sparse.minor"),
    *("GNU.sparse.realsize", "GNU.sparse.name", "SCHILY.xattr.user.x"),
]
VALUES = [
    *("", "0", "1", "-1", "nan", "1e999", "BINARY", "9" * 30, "../outside", "/outside", "0,1,2"),
    *("5,-3,5,9", "x" * 5000, "\0", "512", "1000000000000"),
]
COMPRESS: list[Callable[[bytes], bytes]] = [gzip.compress, bz2.compress, lzma.compress]


def tar(chance: random.Random) -> bytes:
    """An archive of a few members, each of which may be anything."""
    stream = io.BytesIO()
    kind = chance.choice([tarfile.GNU_FORMAT, tarfile.PAX_FORMAT, tarfile.USTAR_FORMAT])
    with tarfile.open(fileobj=stream, mode="w", format=kind) as archive:
        for _ in range(chance.randrange(1, 6)):
            info = tarfile.TarInfo(chance.choice(NAMES))
            info.type = chance.choice(TYPES)
            info.mode = chance.choice([0, 0o644, 0o755, 0o4777, 0o7777])
            info.mtime = chance.choice([0, 1, 2**33 - 1])
            info.linkname = chance.choice(TARGETS)
            content = bytes(chance.choice([0, 1, 600]))
            info.size = len(content) if info.isreg() else 0
            if chance.random() < 0.3:
                info.pax_headers = {chance.choice(HEADERS): chance.choice(VALUES)}
            try:
                archive.addfile(info, io.BytesIO(content))
            except (ValueError, UnicodeError):  # the format cannot say it
                continue
    return stream.getvalue()


def header(kind: bytes, size: int, name: str = "h") -> bytes:
    """The block before a member, which may lie about its size."""
    info = tarfile.TarInfo(name)
    info.type, info.size = kind, size
    return info.tobuf(tarfile.GNU_FORMAT)


def padded(content: bytes) -> bytes:
    return content + bytes(-len(content) % 512)


def headers(chance: random.Random) -> bytes:
    """Extended headers that lie, repeat themselves or never end."""
    blocks = b""
    for _ in range(chance.choice([1, 2, 5, 30])):
        kind = chance.choice([b"x", b"g", b"X", b"L", b"K"])
        text = chance.choice(
            [
                b"%d path=%s\n"
                % (chance.choice([0, 1, 9, 10**6]), chance.choice([b"", b"x" * 99])),
                b"9" * chance.choice([30, 3000]),
                b"2 " * chance.choice([30, 3000]) + b"=",
                f"30 {chance.choice(HEADERS)}={chance.choice(VALUES)}\n".encode(),
                chance.randbytes(chance.randrange(1000)),
            ]
        )
        lie = chance.choice([len(text)] * 8 + [0, len(text) + 700, 10**9, 8**11 - 1])
        blocks += header(kind, lie) + padded(text)
        if chance.random() < 0.3:
            blocks += header(b"0", 3, "x") + padded(b"abc")
    return blocks + tar(chance)


def zipped(chance: random.Random) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for _ in range(chance.randrange(1, 6)):
            info = zipfile.ZipInfo(chance.choice(NAMES) or "x")
            kinds = [stat.S_IFREG, stat.S_IFREG, stat.S_IFLNK, stat.S_IFDIR, stat.S_IFIFO, 0]
            info.external_attr = (chance.choice(kinds) | chance.choice([0, 0o644, 0o7777])) << 16
            info.compress_type = chance.choice([0, 8, 8, 12, 14])
            try:
                archive.writestr(info, chance.choice(TARGETS) * chance.choice([1, 99]))
            except (ValueError, UnicodeError):
                continue
    return stream.getvalue()


def damaged(data: bytes, chance: random.Random) -> bytes:
    content = bytearray(data)
    kind = chance.randrange(3)
    if kind == 0:
        return bytes(content[: chance.randrange(len(content) + 1)])
    for _ in range(chance.choice([1, 5, 50])):
        content[chance.randrange(len(content))] = chance.randrange(256)
    return bytes(content) + (bytes(content) if kind == 2 else b"")


def archive(chance: random.Random) -> bytes:
    data = chance.choice([tar, tar, headers, zipped])(chance)
    data = damaged(data, chance) if data and chance.random() < 0.3 else data
    data = chance.choice(COMPRESS)(data) if chance.random() < 0.3 else data
    return damaged(data, chance) if data and chance.random() < 0.2 else data


def nothing_outside(room: Path) -> None:
    """No file but what was there, below a folder, whatever a link says."""
    found = {entry.name for entry in room.iterdir()}
    assert found <= {"a.tar", "out", "outside"}, found
    assert [entry.name for entry in (room / "outside").iterdir()] == ["canary"]
    assert (room / "outside" / "canary").read_text() == "canary"
    for folder, folders, files in os.walk(room / "out"):
        for name in folders + files:
            path = Path(folder, name)
            if path.is_symlink():
                real = os.path.realpath(path)
                assert f"{real}/".startswith(f"{room}/out/"), f"{path} -> {real}"
            mode = path.lstat().st_mode
            assert stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISLNK(mode)
            assert path.is_symlink() or not mode & 0o7022


def fuzz(count: int) -> None:
    chance, found = random.Random(5), Findings("archives", timed=True)
    with tempfile.TemporaryDirectory() as top:
        room = Path(os.path.realpath(top), "room")
        for _ in range(count):
            data = archive(chance)
            room.mkdir()
            (room / "outside").mkdir()
            (room / "outside" / "canary").write_text("canary")
            (room / "a.tar").write_bytes(data)

            def act() -> None:
                try:
                    extract(str(room / "a.tar"), str(room / "out"), say=lambda _: None)
                finally:
                    nothing_outside(room)

            found.attempt(data, act, [RunnerError])
            shutil.rmtree(room)
    found.check()


@counts(150, 5_000)
def test_no_archive_leaves_its_folder_or_its_memory(count: int) -> None:
    run_bounded("test_hostile_archives", count)


def bomb(method: int) -> bytes:
    """A small zip of 600 MiB of zeros."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", method) as archive, archive.open("x", "w") as file:
        for _ in range(600):
            file.write(bytes(1 << 20))
    return stream.getvalue()


def packed(*pieces: bytes) -> bytes:
    return gzip.compress(b"".join(pieces) + header(b"0", 3, "x") + padded(b"abc") + bytes(1024), 1)


def sparse(map_bytes: int) -> bytes:
    records = b"".join(
        b"%d %s=%s\n" % (len(name) + len(value) + 5, name, value)
        for name, value in [
            (b"GNU.sparse.major", b"1"),
            (b"GNU.sparse.minor", b"0"),
            (b"GNU.sparse.realsize", b"9"),
        ]
    )
    count = b"99999999999\n"
    return packed(
        *(header(b"x", len(records)), padded(records)),
        *(header(b"0", map_bytes, "s"), count, b"0\n" * (map_bytes // 2)),
    )


LARGE = 600 << 20
SUFFIXES = (b"2 " * 200_000) + b"="
ATTACKS: dict[str, Callable[[], bytes]] = {
    "a pax header of 600 MiB": lambda: packed(header(b"x", LARGE), bytes(LARGE)),
    "a long name of 600 MiB": lambda: packed(header(b"L", LARGE), b"a" * LARGE),
    "headers of headers": lambda: packed((header(b"x", 12) + padded(b"12 path=abc\n")) * 5000),
    "keys within keys": lambda: packed(header(b"x", len(SUFFIXES)), padded(SUFFIXES)),
    "digits without end": lambda: packed(header(b"x", 1 << 20), b"9" * (1 << 20)),
    "digits in a record": lambda: packed(
        header(b"x", 900_000), b"900000 comment=" + b"9" * 899_984 + b"\n" + bytes(96)
    ),
    "a map of 600 MiB": lambda: sparse(LARGE),
    "bzip2 in a zip": lambda: bomb(zipfile.ZIP_BZIP2),
    "LZMA in a zip": lambda: bomb(zipfile.ZIP_LZMA),
}


@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS.keys())
def test_memory_and_time_are_bounded(tmp_path: Path, attack: Callable[[], bytes]) -> None:
    path = tmp_path / "a.tar"
    path.write_bytes(attack())
    program = (
        "import resource, sys\n"
        "from tao_sdk.runner.archives import extract\n"
        "from tao_sdk.runner.errors import RunnerError\n"
        "try: extract(*sys.argv[1:], say=print)\n"
        "except RunnerError as error: print(error)\n"
    )

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))

    done = subprocess.run(
        [sys.executable, "-c", program, str(path), str(tmp_path / "out")],
        capture_output=True,
        text=True,
        timeout=60,
        preexec_fn=limited,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "archive" in done.stdout


@pytest.mark.parametrize(
    ("kind", "steps"),
    # A zip has no room for a longer name.
    [("tar", 251), ("tar", 1_500), ("tar", 100_000), ("zip", 251), ("zip", 1_500)],
)
def test_a_path_of_many_folders_is_refused(tmp_path: Path, steps: int, kind: str) -> None:
    name, path = "a/" * steps + "x", tmp_path / f"a.{kind}"
    if kind == "zip":
        with zipfile.ZipFile(path, "w") as zip_file:
            zip_file.writestr(name, "x")
    else:
        with tarfile.open(path, "w") as tar_file:
            tar_file.addfile(tarfile.TarInfo(name))
    with pytest.raises(RunnerError, match=r"more than 250 folders deep|a header has more than"):
        extract(str(path), str(tmp_path / "out"), say=print)


@pytest.mark.parametrize("make", [tarfile.TarInfo, zipfile.ZipInfo])
def test_a_deep_path_is_unpacked(tmp_path: Path, make: Any) -> None:
    name, path = "a/" * 200 + "x", tmp_path / "b.tar"
    if make is zipfile.ZipInfo:
        with zipfile.ZipFile(path, "w") as zip_file:
            zip_file.writestr(name, "x")
    else:
        with tarfile.open(path, "w") as tar_file:
            tar_file.addfile(tarfile.TarInfo(name))
    extract(str(path), str(tmp_path / "out"), say=print)
    assert (tmp_path / "out" / name).is_file()


def test_global_headers_do_not_pile_up(tmp_path: Path) -> None:
    text = b"60012 k%03d=" + b"v" * 60_000 + b"\n"
    members = (header(b"g", 60_013) + padded(text % n) + header(b"0", 0, "x") for n in range(99))
    path = tmp_path / "a.tar"
    path.write_bytes(b"".join(members) + bytes(1024))
    with pytest.raises(RunnerError, match="its global headers have more than"):
        extract(str(path), str(tmp_path / "out"), say=print)


def test_links_of_a_million_characters_do_not_pile_up(tmp_path: Path) -> None:
    """They are made last of all: until then, their targets are kept."""
    path = tmp_path / "a.tar"
    with tarfile.open(path, "w") as archive:
        link = tarfile.TarInfo("link")
        link.type, link.linkname = tarfile.SYMTYPE, "x/" * 500_000
        archive.addfile(link)
    with pytest.raises(RunnerError, match="is a link of 1,000,000 characters; nothing was"):
        extract(str(path), str(tmp_path / "out"), say=print)


@pytest.mark.parametrize("kind", ["link", "hard link", "folder", "deep folder"])
def test_links_and_folders_without_end_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Files are not counted: they are not kept."""
    monkeypatch.setattr(archives, "_MOST_KEPT_BYTES", 1 << 20)

    def one(number: int, of: str) -> tarfile.TarInfo:
        info = tarfile.TarInfo(f"x{number}" + "/y" * 200 * (of == "deep folder"))
        info.type = tarfile.DIRTYPE if "folder" in of else tarfile.SYMTYPE
        if of == "hard link" and number:
            info.type = tarfile.LNKTYPE
        info.linkname = "x0" if number else "here"
        return info

    def pack(count: int, of: str) -> str:
        path = tmp_path / f"{count}.tar"
        with tarfile.open(path, "w") as tar_file:
            for number in range(count):
                tar_file.addfile(one(number, of) if of else tarfile.TarInfo(f"x{number}"))
        return str(path)

    extract(pack(3, kind), str(tmp_path / "few"), say=print)
    extract(pack(6_000, ""), str(tmp_path / "files"), say=print)
    with pytest.raises(RunnerError, match="its folders and links take more than 1 MiB"):
        extract(pack(5_999, kind), str(tmp_path / "out"), say=print)
    assert not (tmp_path / "out").exists()
