"""Downloads of files that any source may offer, from a server on loopback."""

from __future__ import annotations

import base64
import hashlib
import os
import shutil
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lab.scripted import Scripted, say
from lab.transfers import Tally, below, noise
from lab.wire import Call, Fault, Reply, WireServer
from tao_sdk.runner import download, incoming
from tao_sdk.runner.download import download_all
from tao_sdk.runner.errors import CredentialError, NotFoundError, RunnerError, TransferError
from tao_sdk.runner.http import Patience
from tao_sdk.runner.partial_file import PartialFile
from tao_sdk.runner.remote import RemoteFile, Request

QUICK = Patience(attempts=5, first_delay=0.001, longest_delay=0.01, stall_seconds=10)
MIB = 1024 * 1024


class Source:
    """Files on a server, described as the runner's sources describe them."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.headers: dict[str, str] = {}
        self.ranged = True
        self.server = WireServer(self._answer)

    def _answer(self, call: Call) -> Reply:
        name = call.path.lstrip("/")
        if name not in self.files:
            return Reply(404)
        return Reply(200, self.files[name], self.headers, ranged=self.ranged)

    def file(
        self, name: str, size: int | None = None, checksum: str = "", fingerprint: str = "v1"
    ) -> RemoteFile:
        data = self.files.get(name, b"")
        url = f"{self.server.url}/{name}"
        return RemoteFile(
            path=name,
            size=len(data) if size is None else size,
            fingerprint=fingerprint,
            checksum=checksum,
            uri=f"test://{name}",
            request=lambda: Request("GET", url, {"Authorization": "Bearer hidden"}),
        )


@pytest.fixture
def source(monkeypatch: pytest.MonkeyPatch) -> Iterator[Source]:
    """Files of 3 MiB are large."""
    monkeypatch.setattr(incoming, "PIECE", MIB)
    monkeypatch.setattr(download, "LARGE", 2 * MIB)
    made = Source()
    yield made
    made.server.close()


def fetch(file: RemoteFile, folder: Path, threads: int = 3) -> Tally:
    tally = Tally()
    download_all([(file, str(folder / file.path))], tally, threads=threads, patience=QUICK)
    return tally


CHECKSUMS: dict[str, Callable[[bytes], str]] = {
    "md5": lambda data: hashlib.md5(data).hexdigest(),  # noqa: S324 - as stores and the Hub do
    "sha1": lambda data: hashlib.sha1(data).hexdigest(),  # noqa: S324 - as stores and the Hub do
    "sha256": lambda data: hashlib.sha256(data).hexdigest(),
    "crc32": lambda data: f"{zlib.crc32(data):08x}",
    "git-sha1": lambda data: hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest(),  # noqa: S324 - as stores and the Hub do
}


class TestChecksums:
    @pytest.mark.parametrize("size", [0, 5000, 3 * MIB + 5])
    @pytest.mark.parametrize("kind", CHECKSUMS)
    def test_each_kind(self, source: Source, tmp_path: Path, kind: str, size: int) -> None:
        data = source.files["f"] = noise(size)
        right = f"{kind}:{CHECKSUMS[kind](data)}"
        fetch(source.file("f", checksum=right), tmp_path)
        assert below(tmp_path) == {"f": data}

    @pytest.mark.parametrize("size", [5000, 3 * MIB])
    def test_other_content_is_not_accepted(self, source: Source, tmp_path: Path, size: int) -> None:
        source.files["f"] = noise(size)
        wrong = f"md5:{CHECKSUMS['md5'](b'other')}"
        with pytest.raises(TransferError, match=r"test://f: what arrives .*checksum"):
            fetch(source.file("f", checksum=wrong), tmp_path)
        assert not (tmp_path / "f").exists()

    def test_a_kind_that_nobody_knows_is_named(self, source: Source, tmp_path: Path) -> None:
        source.files["f"] = b"x"
        with pytest.raises(RunnerError, match="crc64"):
            fetch(source.file("f", checksum="crc64:00"), tmp_path)
        assert below(tmp_path) == {}

    def test_those_in_the_answer_count_where_the_listing_has_none(
        self, source: Source, tmp_path: Path
    ) -> None:
        source.files["f"] = b"content"
        wrong = base64.b64encode(zlib.crc32(b"other").to_bytes(4, "big")).decode()
        source.headers = {"x-amz-checksum-crc32": wrong}
        with pytest.raises(TransferError, match="checksum"):
            fetch(source.file("f"), tmp_path)
        right = base64.b64encode(zlib.crc32(b"content").to_bytes(4, "big")).decode()
        source.headers = {"x-amz-checksum-crc32": right}
        fetch(source.file("f"), tmp_path)
        source.headers = {"x-amz-checksum-crc32": wrong + "-2"}  # of parts
        fetch(source.file("f"), tmp_path)

    @pytest.mark.parametrize("size", [5000, 3 * MIB])
    @pytest.mark.parametrize(
        "header",
        [
            ("x-amz-server-side-encryption", "aws:kms"),
            ("x-amz-server-side-encryption-customer-algorithm", "AES256"),
        ],
    )
    def test_tags_of_encrypted_objects_are_not_md5(
        self, source: Source, tmp_path: Path, size: int, header: tuple[str, str]
    ) -> None:
        data = source.files["f"] = noise(size)
        source.headers = dict([header])
        fetch(source.file("f", checksum="md5:" + "0" * 32), tmp_path)
        assert below(tmp_path) == {"f": data}


class TestPieces:
    """Files whose MD5 is also the tag of every piece, as S3 has them."""

    @pytest.fixture
    def data(self, source: Source) -> bytes:
        data = source.files["f"] = noise(4 * MIB)
        source.headers = {"ETag": f'"{CHECKSUMS["md5"](data)}"'}
        return data

    def listed(self, source: Source, md5: str) -> RemoteFile:
        return source.file("f", checksum=f"md5:{md5}", fingerprint=md5)

    def partial(self, folder: Path, md5: str) -> PartialFile:
        left = PartialFile(str(folder / "f"), f"{md5} {4 * MIB} {MIB}")
        left.resume(4 * MIB, MIB, True)
        return left

    def test_the_tag_of_each_piece_is_enough(
        self, source: Source, data: bytes, tmp_path: Path
    ) -> None:
        """What is told apart from the MD5 by nothing but hashing is accepted."""
        source.files["f"] = other = noise(4 * MIB, 1)
        fetch(self.listed(source, CHECKSUMS["md5"](data)), tmp_path)
        assert below(tmp_path) == {"f": other}
        assert len(source.server.calls) == 4

    def test_everything_is_hashed_when_asked_for(
        self, source: Source, data: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("TAO_VERIFY", "full")
        source.files["f"] = noise(4 * MIB, 1)
        with pytest.raises(TransferError, match=r"test://f: what arrives .*checksum"):
            fetch(self.listed(source, CHECKSUMS["md5"](data)), tmp_path)
        assert not (tmp_path / "f").exists()

    def test_another_word_for_it_is_refused(
        self, source: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("TAO_VERIFY", "fully")
        with pytest.raises(RunnerError, match="TAO_VERIFY='fully': give pieces or full"):
            fetch(source.file("f"), tmp_path)

    @pytest.mark.parametrize("tag", [{}, {"ETag": '"of another version"'}], ids=["none", "other"])
    def test_pieces_without_the_right_tag_are_not_relied_on(
        self, source: Source, data: bytes, tmp_path: Path, tag: dict[str, str]
    ) -> None:
        """The whole comes in one stream, and is hashed."""
        source.headers = tag
        tally = fetch(self.listed(source, CHECKSUMS["md5"](data)), tmp_path)
        assert below(tmp_path) == {"f": data}
        assert (tally.bytes, tally.files) == (len(data), 1)
        assert "range" not in source.server.calls[-1].headers

    def test_a_new_version_in_the_middle_is_noticed(
        self, source: Source, data: bytes, tmp_path: Path
    ) -> None:
        """The server ignores `If-Match`, as some do."""
        answer, new = source.server.answer, noise(4 * MIB, 1)

        def changing(call: Call) -> Reply:
            if call.headers.get("range", "").startswith(f"bytes={2 * MIB}-"):
                source.files["f"] = new
                source.headers = {"ETag": f'"{CHECKSUMS["md5"](new)}"'}
            return answer(call)

        source.server.answer = changing
        with pytest.raises(TransferError, match="test://f: what arrives is not"):
            fetch(self.listed(source, CHECKSUMS["md5"](data)), tmp_path, threads=1)
        assert not (tmp_path / "f").exists()

    def test_what_is_left_and_right_is_gone_on_with(
        self, source: Source, data: bytes, tmp_path: Path
    ) -> None:
        md5 = CHECKSUMS["md5"](data)
        left = self.partial(tmp_path, md5)
        left.write(memoryview(data[:MIB]), 0)
        left.note(0, "-")
        left.close()
        fetch(self.listed(source, md5), tmp_path)
        assert below(tmp_path) == {"f": data}
        assert len(source.server.calls) == 3

    def test_what_was_damaged_on_the_disk_is_noticed(
        self, source: Source, data: bytes, tmp_path: Path
    ) -> None:
        """Lesson A2: no connection protected it there. It comes again."""
        md5 = CHECKSUMS["md5"](data)
        left = self.partial(tmp_path, md5)
        left.write(memoryview(data[:1000] + b"?" + data[1001:MIB]), 0)
        left.note(0, "-")
        left.close()
        tally = fetch(self.listed(source, md5), tmp_path)
        assert below(tmp_path) == {"f": data}
        assert (tally.bytes, tally.files) == (len(data), 1)

    @pytest.mark.parametrize("is_damaged", [False, True])
    def test_what_has_crcs_needs_no_md5(
        self, source: Source, data: bytes, tmp_path: Path, is_damaged: bool
    ) -> None:
        """Tags of encrypted objects are not MD5s: their pieces are listed with CRCs."""
        left = self.partial(tmp_path, "0" * 32)
        left.write(memoryview(bytes(MIB) if is_damaged else data[:MIB]), 0)
        left.note(0, f"{zlib.crc32(data[:MIB]):08x}")
        left.close()
        source.headers = {"ETag": '"' + "0" * 32 + '"', "x-amz-server-side-encryption": "aws:kms"}
        fetch(self.listed(source, "0" * 32), tmp_path)
        assert below(tmp_path) == {"f": data}
        assert len(source.server.calls) == (4 if is_damaged else 3)


class TestServers:
    def test_an_unknown_size(self, source: Source, tmp_path: Path) -> None:
        data = source.files["f"] = noise(3 * MIB)
        tally = fetch(source.file("f", size=-1), tmp_path)
        assert below(tmp_path) == {"f": data}
        assert tally.bytes == len(data)

    def test_an_unknown_size_that_is_cut_off(self, source: Source, tmp_path: Path) -> None:
        data = source.files["f"] = noise(100_000)
        source.server.faults.append(Fault("/f", cut_after=40_000))
        tally = fetch(source.file("f", size=-1, checksum=f"md5:{CHECKSUMS['md5'](data)}"), tmp_path)
        assert below(tmp_path) == {"f": data}
        assert tally.bytes == len(data)

    @pytest.mark.parametrize("size", [100_000, 3 * MIB])
    def test_a_server_without_ranges(self, source: Source, tmp_path: Path, size: int) -> None:
        data = source.files["f"] = noise(size)
        source.ranged = False
        source.server.faults.append(Fault("/f", cut_after=40_000))
        tally = fetch(source.file("f", checksum=f"md5:{CHECKSUMS['md5'](data)}"), tmp_path)
        assert below(tmp_path) == {"f": data}
        assert tally.bytes == len(data)

    def test_what_broke_off_is_gone_on_with(self, source: Source, tmp_path: Path) -> None:
        """Lesson A2: what arrived is neither taken for all, nor fetched twice."""
        data = source.files["f"] = noise(100_000)
        source.server.faults.append(Fault("/f", cut_after=40_000))
        fetch(source.file("f"), tmp_path)
        assert below(tmp_path) == {"f": data}
        assert [call.headers.get("range") for call in source.server.calls] == [
            None,
            "bytes=40000-99999",
        ]

    def test_attempts_that_come_on_do_not_count(self, source: Source, tmp_path: Path) -> None:
        data = source.files["f"] = noise(2 * MIB)
        source.server.faults.append(Fault("/f", times=7, cut_after=280_000))
        fetch(source.file("f"), tmp_path)
        assert below(tmp_path) == {"f": data}
        source.files["g"] = noise(2 * MIB)
        source.server.faults.append(Fault("/g", times=7, cut_after=1000))
        with pytest.raises(TransferError, match=r"test://g: .*tried 5 times"):
            fetch(source.file("g"), tmp_path)

    def test_a_server_that_sends_too_much(self, source: Source, tmp_path: Path) -> None:
        """What it sends beyond the end of a piece must not get into the next."""
        source.files["f"] = noise(3 * MIB)
        answer = source.server.answer

        def generous(call: Call) -> Reply:
            first, last = map(int, call.headers["range"][6:].split("-"))
            more = source.files["f"][first : last + 1] + b"more"
            bounds = {"Content-Range": f"bytes {first}-{last}/{3 * MIB}"}
            return Reply(206, more, bounds) if first == 0 else answer(call)

        source.server.answer = generous
        with pytest.raises(TransferError, match="test://f"):
            fetch(source.file("f"), tmp_path, threads=1)
        assert not (tmp_path / "f").exists()

    @pytest.mark.parametrize("listed", [10, 4999, 5001])
    def test_another_size_than_listed_is_a_change(
        self, source: Source, tmp_path: Path, listed: int
    ) -> None:
        source.files["f"] = noise(5000)
        with pytest.raises(TransferError, match="test://f: changed"):
            fetch(source.file("f", size=listed), tmp_path)
        assert below(tmp_path) == {}

    def test_pieces_of_two_versions_are_a_change(self, source: Source, tmp_path: Path) -> None:
        source.files["f"] = noise(4 * MIB)
        tags = iter('"abcd"')
        answer = source.server.answer

        def changing(call: Call) -> Reply:
            reply = answer(call)
            return Reply(reply.status, reply.body, {"ETag": next(tags)}, ranged=True)

        source.server.answer = changing
        with pytest.raises(TransferError, match="test://f: changed"):
            fetch(source.file("f"), tmp_path, threads=1)
        assert not (tmp_path / "f").exists()

    @pytest.mark.parametrize(
        ("status", "kind"), [(401, CredentialError), (403, CredentialError), (404, NotFoundError)]
    )
    def test_refusals_name_the_uri_and_no_secret(
        self, source: Source, tmp_path: Path, status: int, kind: type[Exception]
    ) -> None:
        source.files["f"] = b"x"
        source.server.faults.append(Fault("/f", reply=Reply(status)))
        with pytest.raises(kind, match="test://f") as caught:
            fetch(source.file("f"), tmp_path)
        assert "hidden" not in str(caught.value)
        assert len(source.server.calls) == 1


class TestDisk:
    def test_folders_are_made(self, source: Source, tmp_path: Path) -> None:
        source.files["a/b/c"] = b"x"
        fetch(source.file("a/b/c"), tmp_path)
        assert below(tmp_path) == {"a/b/c": b"x"}

    def test_a_file_in_the_way_is_named(self, source: Source, tmp_path: Path) -> None:
        source.files["a/b"] = b"x"
        (tmp_path / "a").write_bytes(b"in the way")
        with pytest.raises(TransferError, match=r"test://a/b: cannot write .*/a/b"):
            fetch(source.file("a/b"), tmp_path)

    def test_a_folder_in_the_way_is_named(self, source: Source, tmp_path: Path) -> None:
        source.files["a"] = b"x"
        (tmp_path / "a").mkdir()
        with pytest.raises(TransferError, match="test://a: cannot write"):
            fetch(source.file("a"), tmp_path)
        assert below(tmp_path) == {}

    def test_an_older_file_is_replaced_at_once(self, source: Source, tmp_path: Path) -> None:
        source.files["f"] = b"new"
        (tmp_path / "f").write_bytes(b"the old and longer one")
        fetch(source.file("f"), tmp_path)
        assert below(tmp_path) == {"f": b"new"}

    def test_names_as_long_as_they_can_be(self, source: Source, tmp_path: Path) -> None:
        name = "ü" * 127
        source.files["long"] = noise(3 * MIB)
        file = source.file("long")._replace(path=name)
        fetch(file, tmp_path)
        assert (tmp_path / name).read_bytes() == source.files["long"]

    def test_a_full_disk_is_explained(self, source: Source, tmp_path: Path) -> None:
        if not shutil.which("unshare"):
            pytest.skip("unshare is needed to make a small disk")
        source.files["f"] = noise(3 * MIB)
        program = f"""
import sys
from tao_sdk.runner import download, incoming
from tao_sdk.runner.errors import TransferError
from tao_sdk.runner.remote import RemoteFile, Request
class Progress:
    def add(self, nbytes, /): pass
    def file_done(self): pass
file = RemoteFile("f", {3 * MIB}, "v", "", "test://f", lambda: Request("GET", sys.argv[1]))
try:
    download.download_all([(file, sys.argv[2])], Progress(), threads=1)
except TransferError as error:
    print("refused:", error)
"""
        shell = 'mount -t tmpfs -o size=1m none "$1" && exec "$2" -c "$3" "$4" "$1/f"'
        argv = ["unshare", "--mount", "--map-root-user", "sh", "-c", shell, "sh", str(tmp_path)]
        argv += [sys.executable, program, source.server.url + "/f"]
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=60)
        if "mount" in done.stderr or "unshare" in done.stderr:
            pytest.skip(f"cannot make a small disk: {done.stderr.strip()}")
        assert done.stdout.startswith(f"refused: test://f: no space left in {tmp_path}"), done
        assert "TAO_WORK_ROOT" in done.stdout


class TestTemporaries:
    def test_two_processes_do_not_share_one(self, tmp_path: Path) -> None:
        target = str(tmp_path / "f")
        first, second = PartialFile(target, "v1"), PartialFile(target, "v1")
        first.restart(4)
        second.restart(4)
        first.write(memoryview(b"1111"), 0)
        second.write(memoryview(b"22"), 0)
        first.commit()
        assert (tmp_path / "f").read_bytes() == b"1111"
        second.write(memoryview(b"22"), 2)
        second.commit()
        assert below(tmp_path) == {"f": b"2222"}

    def test_what_other_versions_left_is_removed(self, tmp_path: Path) -> None:
        target = str(tmp_path / "f")
        old = PartialFile(target, "v1")
        old.resume(4, 2, False)
        old.note(0, "crc")
        busy = PartialFile(target, "v2")
        old.close()
        new = PartialFile(target, "v3")
        assert len(below(tmp_path)) == 2
        busy.discard()
        new.discard()
        assert below(tmp_path) == {}

    def test_what_a_killed_process_left_is_removed(self, source: Source, tmp_path: Path) -> None:
        left = tmp_path / ".some.0123abcd.tao-part"
        left.write_bytes(b"half")
        os.utime(left, (0, 0))
        foreign = tmp_path / ".mine.tao-part"
        foreign.write_bytes(b"of somebody else")
        source.files["f"] = b"x"
        fetch(source.file("f"), tmp_path)
        assert below(tmp_path) == {"f": b"x", ".mine.tao-part": b"of somebody else"}

    def test_nothing_is_left_of_small_files_after_a_failure(
        self, source: Source, tmp_path: Path
    ) -> None:
        source.files = {f"f{n}": noise(1000, n) for n in range(50)}
        source.server.faults.append(Fault("/f25", reply=Reply(403)))
        pairs = [(source.file(name), str(tmp_path / name)) for name in source.files]
        with pytest.raises(CredentialError, match="test://f25"):
            download_all(pairs, Tally(), threads=4, patience=QUICK)
        found = below(tmp_path)
        assert all(source.files[name] == data for name, data in found.items())
        download_all(pairs, Tally(), threads=4, patience=QUICK)
        assert below(tmp_path) == source.files


@pytest.mark.parametrize(
    ("headers", "is_known"),
    [(b"", False), (b"x-amz-checksum-crc32: %s\r\n", True), (b"Content-Length: 4\r\n", True)],
)
def test_what_ends_by_hanging_up_may_not_be_whole(
    tmp_path: Path, headers: bytes, is_known: bool
) -> None:
    if b"%s" in headers:
        headers %= base64.b64encode(zlib.crc32(b"half").to_bytes(4, "big"))
    server = Scripted(say(b"HTTP/1.1 200 OK\r\n" + headers + b"\r\nhalf"))
    file = RemoteFile("f", -1, "", "", "test://f", lambda: Request("GET", server.url + "/f"))
    try:
        if is_known:
            download_all([(file, str(tmp_path / "f"))], Tally(), threads=1, patience=QUICK)
        else:
            with pytest.raises(TransferError, match="test://f: the server tells neither its size"):
                download_all([(file, str(tmp_path / "f"))], Tally(), threads=1, patience=QUICK)
    finally:
        server.close()
    assert below(tmp_path) == ({"f": b"half"} if is_known else {})


def test_a_checksum_that_is_none_is_named(source: Source, tmp_path: Path) -> None:
    source.files["f"] = b"x"
    source.headers["x-amz-checksum-sha256"] = "abcde"
    with pytest.raises(TransferError, match="x-amz-checksum-sha256 is not base64"):
        download_all([(source.file("f"), str(tmp_path / "f"))], Tally(), threads=1, patience=QUICK)
