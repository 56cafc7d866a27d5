"""Files that are not ours, damaged, of another version, or of another mode."""

from __future__ import annotations

import errno
import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tao_sdk.errors import ForeignStoreError, StoreError, ValidationError
from tao_sdk.job_store import JobStore, NewJob, access, schema
from tao_sdk.job_store.file_systems import parse_mount_output, parse_mountinfo, type_of_mount
from tao_sdk.job_store.store_file import read_header

NORMAL, FULL = 1, 2  # of PRAGMA synchronous


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "jobs.db"


def make_store(path: Path, jobs: int = 1) -> None:
    with JobStore(path) as store:
        for number in range(jobs):
            store.create_job(f"job-{number}", "dino", "train", "local")


def refuse(path: Path, match: str) -> None:
    before, mode = path.read_bytes(), path.stat().st_mode
    others = {file.name for file in path.parent.iterdir()}
    for _ in range(2):
        with pytest.raises(ForeignStoreError, match=match):
            JobStore(path).list_jobs()
        with pytest.raises(ForeignStoreError, match=match):
            JobStore(path).create_job("job-x", "dino", "train", "local")
    assert path.read_bytes() == before
    assert path.stat().st_mode == mode
    left = {file.name: file for file in path.parent.iterdir() if file.name not in others}
    assert left.keys() <= {"jobs.db-gate", "jobs.db-shm", "jobs.db-wal"}
    assert "jobs.db-wal" not in left or left["jobs.db-wal"].stat().st_size == 0


def test_a_database_of_another_program_is_refused_untouched(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("CREATE TABLE jobs (job_id TEXT PRIMARY KEY)")
    connection.close()
    path.chmod(0o644)
    refuse(path, r"another program.*merge_legacy_database.*Nothing was changed")
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("content", [b"{}", b"not a database" * 100, b"SQLite format 3\0" + b"x"])
def test_a_file_that_is_no_database_is_refused_untouched(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    refuse(path, "not a job store")


@pytest.mark.parametrize("kept", [99, 4096, 9000])
def test_a_truncated_store_is_refused_untouched(path: Path, kept: int) -> None:
    make_store(path, jobs=50)
    path.write_bytes(path.read_bytes()[:kept])
    refuse(path, "damaged")


def test_a_store_that_lacks_tables_is_refused_untouched(path: Path) -> None:
    make_store(path)
    with sqlite3.connect(path) as connection:
        connection.execute("DROP TABLE events")
    connection.close()
    refuse(path, r"damaged \(it lacks events")


def test_damage_found_later_is_named_as_such(path: Path) -> None:
    make_store(path, jobs=200)
    content = bytearray(path.read_bytes())
    for page in range(4, len(content) // 4096):
        content[page * 4096 : page * 4096 + 512] = b"\xff" * 512
    path.write_bytes(content)
    store = JobStore(path)
    with pytest.raises(ForeignStoreError, match=r"damaged .*malformed"):
        store.list_jobs()


def test_an_empty_file_becomes_a_store(path: Path) -> None:
    path.touch(0o644)
    make_store(path)
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("trace", ["jobs.db-wal", "jobs.db-gate", "jobs.docker/job-0/log"])
def test_an_emptied_store_is_refused_untouched(path: Path, trace: str) -> None:
    """Truncated to zero it would be begun anew, and every running job forgotten."""
    path.touch()
    beside = path.parent / trace
    beside.parent.mkdir(parents=True, exist_ok=True)
    beside.touch()
    refuse(path, r"damaged \(it is empty, and was a store\).*doctor --recover")


@pytest.mark.parametrize("damage", [b"", b"x", b"\xff" * 4096])
def test_a_damaged_store_keeps_its_name(path: Path, damage: bytes) -> None:
    """Its path, given as a state file, does not lead to an empty store beside it."""
    make_store(path)
    path.write_bytes(damage)
    with pytest.raises(ForeignStoreError, match="damaged"):
        JobStore.for_state_file(path).list_jobs()


@pytest.mark.parametrize("name", ["jobs.db", "jobs.db-wal", "jobs.db-shm"])
def test_a_pipe_in_place_of_a_file_is_an_error_of_ours(path: Path, name: str) -> None:
    make_store(path)
    place = path.with_name(name)
    place.unlink(missing_ok=True)
    os.mkfifo(place)
    with pytest.raises(ForeignStoreError, match="not a file"):
        JobStore(path).list_jobs()


def test_a_folder_in_place_of_the_file_is_an_error_of_ours(path: Path) -> None:
    path.mkdir()
    with pytest.raises(StoreError):
        JobStore(path).list_jobs()


def test_a_newer_store_is_refused_untouched(path: Path) -> None:
    make_store(path)
    with sqlite3.connect(path) as connection:
        connection.execute(f"PRAGMA user_version = {len(schema.MIGRATIONS) + 1}")
    connection.close()
    refuse(path, r"newer version.*pip install -U tao-sdk")


def test_a_store_made_newer_while_its_log_is_open_is_refused(path: Path) -> None:
    """The header on disk is the old one; the write-ahead log knows better."""
    make_store(path)
    newer = sqlite3.connect(path)
    newer.execute(f"PRAGMA user_version = {len(schema.MIGRATIONS) + 1}")
    header = read_header(path)
    assert header is not None
    assert header.version == len(schema.MIGRATIONS)
    with pytest.raises(ForeignStoreError, match="newer version"):
        JobStore(path).list_jobs()
    newer.close()


@pytest.mark.parametrize("mode", ["wal", "network"])
def test_an_older_store_is_migrated(path: Path, monkeypatch: pytest.MonkeyPatch, mode: str) -> None:
    """Lesson D4: the schema has a version."""
    monkeypatch.setenv("TAO_SDK_STORE_MODE", mode)
    make_store(path)

    def add_column(connection: sqlite3.Connection) -> None:
        connection.execute("ALTER TABLE jobs ADD COLUMN colour TEXT NOT NULL DEFAULT 'green'")

    monkeypatch.setattr(schema, "MIGRATIONS", (*schema.MIGRATIONS, add_column))
    for _ in range(2):
        with JobStore(path) as store:
            assert store.list_jobs()[0]["colour"] == "green"
    with sqlite3.connect(path) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (len(schema.MIGRATIONS),)


def test_a_failing_migration_leaves_the_old_version(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_store(path)
    original = schema.MIGRATIONS

    def fail_half_way(connection: sqlite3.Connection) -> None:
        connection.execute("ALTER TABLE jobs ADD COLUMN colour TEXT")
        connection.execute("ALTER TABLE nowhere ADD COLUMN colour TEXT")

    monkeypatch.setattr(schema, "MIGRATIONS", (*original, fail_half_way))
    with pytest.raises(StoreError, match="nowhere"):
        JobStore(path).list_jobs()
    monkeypatch.setattr(schema, "MIGRATIONS", original)
    assert "colour" not in JobStore(path).list_jobs()[0]


@pytest.mark.parametrize(
    ("mode", "journal", "synchronous"), [("wal", "wal", NORMAL), ("network", "delete", FULL)]
)
def test_durability_settings(
    path: Path, monkeypatch: pytest.MonkeyPatch, mode: str, journal: str, synchronous: int
) -> None:
    monkeypatch.setenv("TAO_SDK_STORE_MODE", mode)
    with JobStore(path)._database.read() as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone()[0] == journal
        assert connection.execute("PRAGMA synchronous").fetchone()[0] == synchronous
        assert connection.execute("PRAGMA foreign_keys").fetchone()[0] == 1


class TestReachingTheDisk:
    """On a local disk the commit is one step and the wait for the disk the next."""

    @pytest.fixture
    def waits(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> list[int]:
        """How many jobs there were at each wait for the disk."""
        found: list[int] = []
        real = access._sync_data

        def sync(descriptor: int) -> None:
            log = path.with_name(f"{path.name}-wal")
            assert os.path.samestat(os.fstat(descriptor), log.stat())
            with closing(sqlite3.connect(path, timeout=0, isolation_level=None)) as other:
                other.execute("BEGIN IMMEDIATE")  # others may write meanwhile
                found.append(other.execute("SELECT count(*) FROM jobs").fetchone()[0])
                other.execute("ROLLBACK")
            real(descriptor)

        monkeypatch.setattr(access, "_sync_data", sync)
        return found

    def test_what_was_acknowledged_has_reached_it(self, path: Path, waits: list[int]) -> None:
        store = JobStore(path)
        store.create_job("job-0", "dino", "train", "local")
        store.create_job("job-1", "dino", "train", "local")
        assert waits == [1, 2]

    def test_reading_waits_for_nothing(self, path: Path, waits: list[int]) -> None:
        store = JobStore(path)
        store.create_job("job-0", "dino", "train", "local")
        store.list_jobs()
        assert waits == [1]

    def test_a_confirmation_does_not_wait(self, path: Path, waits: list[int]) -> None:
        """Were it undone, its submission would be settled once more, with the same end."""
        store = JobStore(path)
        store.begin_submissions([NewJob("job-0", "dino", "train", "local", "local", "t", "owner")])
        assert store.confirm_submission("job-0", backend_job_id="c0", native={})
        assert waits == [1]
        store.add_event("job-0", "later")
        assert waits == [1, 1]

    def test_a_disk_that_fails_is_told(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def fail(_: int) -> None:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

        monkeypatch.setattr(access, "_sync_data", fail)
        with pytest.raises(StoreError, match="cannot be brought to the disk"):
            JobStore(path).create_job("job-0", "dino", "train", "local")


class TestModes:
    """Lesson D7: WAL is for local disks only."""

    def test_local_disk_means_wal(self, path: Path) -> None:
        assert JobStore(path).mode == "wal"

    def test_memory(self) -> None:
        assert JobStore(":memory:").mode == "memory"
        assert JobStore(":memory:").path == ":memory:"

    def test_a_network_store_keeps_its_mode_on_a_local_disk(
        self, path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("TAO_SDK_STORE_MODE", "network")
        make_store(path)
        monkeypatch.delenv("TAO_SDK_STORE_MODE")
        assert JobStore(path).mode == "network"
        assert JobStore(path).list_jobs()[0]["job_id"] == "job-0"

    @pytest.mark.parametrize(("made", "wanted"), [("wal", "network"), ("network", "wal")])
    def test_a_forced_mode_that_the_file_has_not_is_refused(
        self, path: Path, monkeypatch: pytest.MonkeyPatch, made: str, wanted: str
    ) -> None:
        monkeypatch.setenv("TAO_SDK_STORE_MODE", made)
        make_store(path)
        before = path.read_bytes()
        monkeypatch.setenv("TAO_SDK_STORE_MODE", wanted)
        with pytest.raises(StoreError, match=f"is in {made} mode.*journal_mode="):
            JobStore(path).list_jobs()
        assert path.read_bytes() == before

    def test_the_advised_conversion_works(
        self, path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        make_store(path)
        monkeypatch.setenv("TAO_SDK_STORE_MODE", "network")
        connection = sqlite3.connect(path)
        connection.execute("PRAGMA journal_mode=DELETE")
        connection.close()
        assert len(JobStore(path).list_jobs()) == 1

    def test_an_unknown_mode_is_refused(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("TAO_SDK_STORE_MODE", "fast")
        with pytest.raises(ValidationError, match="auto, wal or network"):
            JobStore(path).list_jobs()
        assert not path.exists()


MOUNTINFO = r"""
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
30 22 0:5 / /home rw,relatime shared:2 - autofs systemd-1 rw,fd=27
31 22 0:44 / /home rw,relatime shared:3 master:1 - nfs4 server:/home rw,vers=4.2
32 31 0:45 / /home/me/scratch rw - ext4 /dev/nvme0n1 rw
33 22 0:46 / /mnt/my\040share rw - cifs //server/share rw
34 22 0:47 / /mnt/s3 rw - fuse.s3fs s3fs rw
""".strip()

MOUNT_OUTPUT = """
/dev/disk3s1s1 on / (apfs, sealed, local, read-only, journaled)
/dev/disk3s5 on /System/Volumes/Data (apfs, local, journaled, nobrowse)
map auto_home on /System/Volumes/Data/home (autofs, automounted, nobrowse)
server:/export on /Volumes/My Share (nfs, nodev, nosuid, mounted by me)
//me@server/share on /Volumes/smb (smbfs, nodev, nosuid, mounted by me)
""".strip()


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/var/jobs.db", "ext4"),
        ("/home/me/.tao_sdk/jobs.db", "nfs4"),
        ("/home/me/scratch/jobs.db", "ext4"),
        ("/homestead/jobs.db", "ext4"),
        ("/mnt/my share/jobs.db", "cifs"),
        ("/mnt/s3/jobs.db", "fuse.s3fs"),
    ],
)
def test_mount_types_on_linux(path: str, kind: str) -> None:
    assert type_of_mount(Path(path), parse_mountinfo(MOUNTINFO)) == kind


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/tmp/jobs.db", "apfs"),
        ("/Volumes/My Share/jobs.db", "nfs"),
        ("/Volumes/smb/a/jobs.db", "smbfs"),
    ],
)
def test_mount_types_on_macos(path: str, kind: str) -> None:
    assert type_of_mount(Path(path), parse_mount_output(MOUNT_OUTPUT)) == kind
