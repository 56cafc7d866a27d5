"""Bytes to and from two real servers, and through a proxy that spoils the way."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.faults import Fault, FaultProxy, random_faults
from lab.s3 import IMPATIENT, KINDS, Bucket, fresh_bucket
from lab.transfers import Tally, below, noise
from tao_sdk.runner import download, incoming
from tao_sdk.runner.download import download_all
from tao_sdk.runner.errors import NotFoundError, TransferError
from tao_sdk.runner.s3 import S3
from tao_sdk.runner.s3 import upload as uploads

MIB = 1024 * 1024


@pytest.fixture(params=KINDS)
def bucket(request: pytest.FixtureRequest) -> Iterator[Bucket]:
    with fresh_bucket(request.param) as made:
        yield made


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of 3 MiB are large."""
    monkeypatch.setattr(incoming, "PIECE", MIB)
    monkeypatch.setattr(download, "LARGE", 2 * MIB)


def fetch(s3: S3, uri: str, folder: Path, threads: int = 4) -> Tally:
    tally = Tally()
    files = s3.listing(uri).files
    pairs = [(file, str(folder / file.path)) for file in files]
    download_all(pairs, tally, threads=threads, patience=IMPATIENT)
    return tally


class TestDownload:
    def test_a_folder_arrives(self, bucket: Bucket, tmp_path: Path) -> None:
        """Lesson C1: files of a folder are fetched by several threads, each in one request."""
        content = {f"sub{n % 3}/file {n}+%.bin": noise(n * 1000, n) for n in range(40)}
        for path, data in content.items():
            bucket.put("data/" + path, data)
        with FaultProxy(bucket.url) as proxy:
            tally = fetch(bucket.s3(proxy.url), f"{bucket.uri}/data", tmp_path)
            assert proxy.count("GET", "file") == len(content)
        assert below(tmp_path) == content
        assert tally.files == 40
        assert tally.bytes == sum(map(len, content.values()))

    @pytest.mark.usefixtures("small_pieces")
    def test_a_large_file_arrives_in_pieces(self, bucket: Bucket, tmp_path: Path) -> None:
        """Lesson C3: a large object is fetched by several connections and checked."""
        data = noise(5 * MIB + 12345)
        bucket.put("big.bin", data)
        with FaultProxy(bucket.url) as proxy:
            tally = fetch(bucket.s3(proxy.url), f"{bucket.uri}/big.bin", tmp_path)
            assert proxy.count("GET") == 6
        assert below(tmp_path) == {"big.bin": data}
        assert (tally.bytes, tally.files) == (len(data), 1)

    def test_what_is_there_is_not_fetched_again(self, bucket: Bucket, tmp_path: Path) -> None:
        bucket.put("data/a", b"one")
        bucket.put("data/b", b"two")
        (tmp_path / "a").write_bytes(b"one")
        (tmp_path / "b").write_bytes(b"2!!")
        with FaultProxy(bucket.url) as proxy:
            fetch(bucket.s3(proxy.url), f"{bucket.uri}/data", tmp_path)
            assert (proxy.count("GET", "data/a"), proxy.count("GET", "data/b")) == (0, 1)
        assert below(tmp_path) == {"a": b"one", "b": b"two"}

    def test_a_vanished_object_is_named(self, bucket: Bucket, tmp_path: Path) -> None:
        bucket.put("gone", b"x")
        files = bucket.s3().listing(f"{bucket.uri}/gone").files
        bucket.client.delete_object(Bucket=bucket.name, Key="gone")
        with pytest.raises(NotFoundError, match=f"{bucket.uri}/gone"):
            download_all([(files[0], str(tmp_path / "gone"))], Tally(), threads=1)
        assert below(tmp_path) == {}

    @pytest.mark.usefixtures("small_pieces")
    @pytest.mark.parametrize("size", [700_000, 3 * MIB])
    def test_a_changed_object_is_no_mixture(
        self, bucket: Bucket, tmp_path: Path, size: int
    ) -> None:
        bucket.put("key", noise(size, 1))
        files = bucket.s3().listing(f"{bucket.uri}/key").files
        bucket.put("key", noise(size, 2))
        with pytest.raises(TransferError, match=f"{bucket.uri}/key"):
            download_all(
                [(files[0], str(tmp_path / "key"))], Tally(), threads=4, patience=IMPATIENT
            )
        assert "key" not in below(tmp_path)

    @pytest.mark.usefixtures("small_pieces")
    def test_an_object_replaced_in_the_middle_is_no_mixture(
        self, bucket: Bucket, tmp_path: Path
    ) -> None:
        """Of the same size, when two of its pieces are here."""
        bucket.put("key", noise(4 * MIB, 1))

        def script(number: int, method: str, target: str) -> None:
            if proxy.count("GET", "key") == 3:
                bucket.put("key", noise(4 * MIB, 2))

        with FaultProxy(bucket.url, script) as proxy:
            (file,) = bucket.s3(proxy.url).listing(f"{bucket.uri}/key").files
            with pytest.raises(TransferError, match=f"{bucket.uri}/key"):
                download_all(
                    [(file, str(tmp_path / "key"))], Tally(), threads=1, patience=IMPATIENT
                )
            assert proxy.count("GET", "key") >= 3
        assert "key" not in below(tmp_path)


class TestUpload:
    def test_files_arrive(self, bucket: Bucket, tmp_path: Path) -> None:
        """Lesson C2: one request for each file, several at a time."""
        content = {f"out {n}+.bin": noise(n * 997, n) for n in range(30)}
        for name, data in content.items():
            (tmp_path / name).write_bytes(data)
        pairs = [(str(tmp_path / name), f"{bucket.uri}/up/{name}") for name in content]
        tally = Tally()
        with FaultProxy(bucket.url) as proxy:
            assert bucket.s3(proxy.url).upload_all(pairs, tally, threads=4) == []
            assert proxy.count() == len(content)
        assert {key[3:]: bucket.read(key) for key in bucket.list_keys()} == content
        assert (tally.files, tally.bytes) == (30, sum(map(len, content.values())))

    def test_a_large_file_arrives_in_parts(self, bucket: Bucket, tmp_path: Path) -> None:
        data = noise(21 * MIB + 7)
        (tmp_path / "big").write_bytes(data)
        pairs = [(str(tmp_path / "big"), f"{bucket.uri}/big")]
        with FaultProxy(bucket.url) as proxy:
            assert bucket.s3(proxy.url).upload_all(pairs, Tally(), threads=4) == []
            assert proxy.count("PUT", "partNumber") == 3
        assert hashlib.sha256(bucket.read("big")).digest() == hashlib.sha256(data).digest()

    def test_what_cannot_be_sent_is_reported(self, bucket: Bucket, tmp_path: Path) -> None:
        (tmp_path / "good").write_bytes(b"x")
        os.mkfifo(tmp_path / "pipe")
        names = ("missing", "good", "pipe")
        pairs = [(str(tmp_path / name), f"{bucket.uri}/{name}") for name in names]
        pairs.append((str(tmp_path / "good"), "s3://no-such-bucket-here/good"))
        failures = dict(bucket.s3().upload_all(pairs, Tally(), threads=2))
        assert "No such file" in failures[str(tmp_path / "missing")]
        assert failures[str(tmp_path / "pipe")] == "not a regular file"
        assert "s3://no-such-bucket-here/good" in failures[str(tmp_path / "good")]
        assert bucket.list_keys() == ["good"]

    def test_failed_parts_are_removed(self, bucket: Bucket, tmp_path: Path) -> None:
        (tmp_path / "big").write_bytes(noise(20 * MIB))
        refuse = Fault(status=403, body=b"<Error><Code>AccessDenied</Code></Error>")

        def script(number: int, method: str, target: str) -> Fault | None:
            return refuse if "partNumber=3" in target else None

        with FaultProxy(bucket.url, script) as proxy:
            pairs = [(str(tmp_path / "big"), f"{bucket.uri}/big")]
            ((path, reason),) = bucket.s3(proxy.url).upload_all(pairs, Tally(), threads=2)
            assert proxy.count("DELETE", "uploadId") == 1
        assert path == str(tmp_path / "big")
        assert "AccessDenied" in reason
        assert bucket.list_keys() == []
        assert bucket.unfinished_uploads() == []

    def test_an_error_with_the_status_of_success(self, bucket: Bucket, tmp_path: Path) -> None:
        """S3 may answer 200 to the completion of parts, and an error in the body."""
        (tmp_path / "big").write_bytes(noise(17 * MIB))
        lie = Fault(status=200, body=b"<Error><Code>AccessDenied</Code></Error>")

        def script(number: int, method: str, target: str) -> Fault | None:
            return lie if method == "POST" and "uploadId" in target else None

        with FaultProxy(bucket.url, script) as proxy:
            pairs = [(str(tmp_path / "big"), f"{bucket.uri}/big")]
            ((_, reason),) = bucket.s3(proxy.url).upload_all(pairs, Tally(), threads=2)
        assert "AccessDenied" in reason
        assert bucket.list_keys() == []

    def test_a_file_that_grows_is_not_half_uploaded(
        self, bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for name, size in (("small", 1000), ("middle", 2 * MIB), ("large", 17 * MIB)):
            (tmp_path / name).write_bytes(noise(size))
            bucket.put(name, b"the version before")
        hashed = uploads._content

        def then_grow(store, body, blocks):  # type: ignore[no-untyped-def]  # short, and only here
            found = hashed(store, body, blocks)
            for path in tmp_path.iterdir():
                with path.open("ab") as file:
                    file.write(b"more")
            return found

        monkeypatch.setattr(uploads, "_content", then_grow)
        names = ("small", "middle", "large")
        pairs = [(str(tmp_path / name), f"{bucket.uri}/{name}") for name in names]
        failures = bucket.s3().upload_all(pairs, Tally(), threads=1)
        assert [reason.endswith("changed while it was uploaded") for _, reason in failures] == [
            True
        ] * 3
        assert {bucket.read(name) for name in names} == {b"the version before"}

    def test_small_objects_are_put(self, bucket: Bucket) -> None:
        bucket.s3().put_bytes(f"{bucket.uri}/a/b.json", b"{}")
        assert bucket.read("a/b.json") == b"{}"

    def test_the_store_refuses_or_we_notice_what_changed_on_the_way(
        self, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        wrong = uploads._Content(b"data", "0" * 32, hashlib.sha256(b"data").hexdigest())
        monkeypatch.setattr(uploads, "_content", lambda *_: wrong)
        with pytest.raises(TransferError, match="other bytes than were sent"):
            bucket.s3().put_bytes(f"{bucket.uri}/key", b"data")


@pytest.mark.usefixtures("small_pieces")
class TestFaults:
    @pytest.mark.parametrize("seed", range(4))
    def test_random_faults_change_nothing(self, seed: int, tmp_path: Path) -> None:
        content = {
            f"f{n}": noise(size, n) for n, size in enumerate([0, 1, 70_000, 300_000, 3 * MIB])
        }
        with fresh_bucket(KINDS[seed % 2]) as bucket:
            for name, data in content.items():
                bucket.put("data/" + name, data)
            with FaultProxy(bucket.url, random_faults(seed)) as proxy:
                s3 = bucket.s3(proxy.url, IMPATIENT._replace(attempts=12))
                tally = Tally()
                files = s3.listing(f"{bucket.uri}/data").files
                pairs = [(file, str(tmp_path / file.path)) for file in files]
                patience = IMPATIENT._replace(attempts=12)
                download_all(pairs, tally, threads=3, patience=patience)
                assert below(tmp_path) == content
                assert tally.bytes == sum(map(len, content.values()))
                up = [(str(tmp_path / name), f"{bucket.uri}/up/{name}") for name in content]
                assert s3.upload_all(up, Tally(), threads=3) == []
            assert {name: bucket.read("up/" + name) for name in content} == content

    @pytest.mark.parametrize(
        ("size", "verify", "host"),
        [(50_000, "", "127.0.0.1"), (4 * MIB, "full", "127.0.0.1"), (4 * MIB, "", "localhost")],
        ids=["small", "large, when asked for", "large, over plain HTTP from elsewhere"],
    )
    def test_a_flipped_bit_is_noticed(
        self,
        bucket: Bucket,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        size: int,
        verify: str,
        host: str,
    ) -> None:
        """What arrives is compared with the store's checksum, and fetched again.

        `localhost` could be anywhere, as far as the runner knows.
        """
        monkeypatch.setenv("TAO_VERIFY", verify)
        data = noise(size)
        bucket.put("file", data)
        flips = [Fault(flip_after=20_000)]

        def script(number: int, method: str, target: str) -> Fault | None:
            return flips.pop() if method == "GET" and flips else None

        with FaultProxy(bucket.url, script) as proxy:
            url = proxy.url.replace("127.0.0.1", host)
            tally = fetch(bucket.s3(url), f"{bucket.uri}/file", tmp_path)
        assert below(tmp_path) == {"file": data}
        assert (tally.bytes, tally.files) == (size, 1)
        assert not flips

    def test_a_store_that_lies_is_not_believed(self, bucket: Bucket, tmp_path: Path) -> None:
        bucket.put("file", noise(50_000))
        with FaultProxy(bucket.url, lambda n, method, t: Fault(flip_after=20_000)) as proxy:
            files = bucket.s3().listing(f"{bucket.uri}/file").files
            through = bucket.s3(proxy.url).listing(f"{bucket.uri}/file").files
            assert files[0].checksum == through[0].checksum
            with pytest.raises(TransferError, match=r"file: what arrives .* checksum"):
                download_all([(through[0], str(tmp_path / "file"))], Tally(), threads=1)
        assert below(tmp_path) == {}

    def test_a_silent_server_is_left(self, bucket: Bucket, tmp_path: Path) -> None:
        data = noise(200_000)
        bucket.put("file", data)
        stalls = [Fault(stall_after=30_000), Fault(stall_after=0)]

        def script(number: int, method: str, target: str) -> Fault | None:
            return stalls.pop() if method == "GET" and stalls else None

        patience = IMPATIENT._replace(stall_seconds=0.3)
        with FaultProxy(bucket.url, script) as proxy:
            files = bucket.s3(proxy.url).listing(f"{bucket.uri}/file").files
            download_all(
                [(files[0], str(tmp_path / "file"))], Tally(), threads=1, patience=patience
            )
        assert (tmp_path / "file").read_bytes() == data

    def test_a_store_that_stays_away_is_named(self, bucket: Bucket, tmp_path: Path) -> None:
        bucket.put("file", b"x")
        files = bucket.s3().listing(f"{bucket.uri}/file").files
        busy = Fault(status=503, body=b"<Error><Code>SlowDown</Code></Error>")
        with FaultProxy(bucket.url, lambda *_: busy) as proxy:
            s3 = bucket.s3(proxy.url)
            with pytest.raises(TransferError, match=f"{bucket.uri}/: 503 SlowDown.*try later"):
                s3.listing(f"{bucket.uri}/")
            assert proxy.count() == IMPATIENT.attempts
            request = files[0].request()._replace(url=f"{proxy.url}/{bucket.name}/file")
            file = files[0]._replace(request=lambda: request)
            with pytest.raises(TransferError, match=f"{bucket.uri}/file: 503 .*tried 6 times"):
                download_all([(file, str(tmp_path / "f"))], Tally(), threads=1, patience=IMPATIENT)


KILLED = """
import os, sys
from tao_sdk.runner import download, incoming
from tao_sdk.runner.s3 import S3
incoming.PIECE, download.LARGE = 1 << 20, 2 << 20
class Progress:
    def add(self, nbytes, /): pass
    def file_done(self): pass
file = S3.from_environment(os.environ).listing(sys.argv[1]).files[0]
if sys.argv[3] == "unknown":
    file = file._replace(checksum="")
download.download_all([(file, sys.argv[2])], Progress(), threads=2)
"""


class TestKilled:
    """kill -9 in the middle of a large file, and another attempt."""

    def half_done(self, bucket: Bucket, target: Path, checksum: str, seed: int) -> None:
        """Start a download through a slow proxy and kill it when pieces are there."""
        with FaultProxy(bucket.url, lambda *_: Fault(delay=0.05)) as proxy:
            env = {
                **bucket.env,
                "S3_ENDPOINT_URL": proxy.url,
                "PYTHONPATH": os.pathsep.join(sys.path),
            }
            argv = [sys.executable, "-c", KILLED, f"{bucket.uri}/big", str(target), checksum]
            process = subprocess.Popen(argv, env=env)
            deadline = time.monotonic() + 60
            while self.listed(target.parent) < 2 + seed:
                assert time.monotonic() < deadline
                assert process.poll() is None, "it was too fast to be killed"
                time.sleep(0.002)
            process.send_signal(signal.SIGKILL)
            process.wait()

    def listed(self, folder: Path) -> int:
        return sum(len(path.read_text().splitlines()) for path in folder.glob(".*.pieces"))

    @pytest.mark.usefixtures("small_pieces")
    @pytest.mark.parametrize("checksum", ["known", "unknown"])
    @pytest.mark.parametrize("seed", range(2))
    def test_what_was_fetched_is_not_fetched_again(
        self, bucket: Bucket, tmp_path: Path, checksum: str, seed: int
    ) -> None:
        """Lesson A2: an interrupted download is neither accepted nor begun anew."""
        data = noise(24 * MIB)
        bucket.put("big", data)
        target = tmp_path / "big"
        self.half_done(bucket, target, checksum, seed)
        assert not target.exists()
        pieces = self.listed(tmp_path)
        with FaultProxy(bucket.url) as proxy:
            self.again(bucket, proxy.url, target, checksum)
            assert proxy.count("GET") <= 24 - pieces
        assert below(tmp_path) == {"big": data}

    @pytest.mark.usefixtures("small_pieces")
    @pytest.mark.parametrize("checksum", ["known", "unknown"])
    def test_garbage_of_a_crash_is_not_accepted(
        self, bucket: Bucket, tmp_path: Path, checksum: str
    ) -> None:
        """Lesson A2: after a power cut the list of pieces may be there, and their content not."""
        data = noise(24 * MIB)
        bucket.put("big", data)
        target = tmp_path / "big"
        self.half_done(bucket, target, checksum, 0)
        (part,) = tmp_path.glob(".big.*.tao-part")
        part.write_bytes(bytes(len(data)))
        self.again(bucket, bucket.url, target, checksum)
        assert below(tmp_path) == {"big": data}

    @pytest.mark.usefixtures("small_pieces")
    def test_pieces_of_another_version_are_not_used(self, bucket: Bucket, tmp_path: Path) -> None:
        bucket.put("big", noise(24 * MIB, 1))
        target = tmp_path / "big"
        self.half_done(bucket, target, "known", 0)
        data = noise(24 * MIB, 2)
        bucket.put("big", data)
        self.again(bucket, bucket.url, target, "known")
        assert below(tmp_path) == {"big": data}

    def again(self, bucket: Bucket, url: str, target: Path, checksum: str) -> None:
        (file,) = bucket.s3(url).listing(f"{bucket.uri}/big").files
        if checksum == "unknown":
            file = file._replace(checksum="")
        download_all([(file, str(target))], Tally(), threads=2, patience=IMPATIENT)
