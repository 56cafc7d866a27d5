"""Where the store lives and how private it is."""

from __future__ import annotations

import os
import sqlite3
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from tao_sdk.errors import StoreError, UnsupportedError, ValidationError
from tao_sdk.job_store import JobStore, resolve_sdk_state_paths


@pytest.fixture
def open_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def test_default_folder_is_created_private(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, open_umask: None
) -> None:
    monkeypatch.setenv("TAO_SDK_STATE_DIR", str(tmp_path / "new" / "state"))
    json_path, db_path = resolve_sdk_state_paths()
    assert json_path == str(tmp_path / "new" / "state" / "tao_session_state.json")
    assert db_path == str(tmp_path / "new" / "state" / "jobs.db")
    assert mode_of(tmp_path / "new" / "state") == 0o700


def test_default_folder_is_below_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TAO_SDK_STATE_DIR", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert resolve_sdk_state_paths()[1] == str(tmp_path / ".tao_sdk" / "jobs.db")


def test_tilde_is_expanded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("TAO_SDK_STATE_DIR", "~/jobs")
    assert resolve_sdk_state_paths()[1] == str(tmp_path / "jobs" / "jobs.db")


def test_existing_folder_is_hardened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tmp_path.chmod(0o755)
    monkeypatch.setenv("TAO_SDK_STATE_DIR", str(tmp_path))
    resolve_sdk_state_paths()
    assert mode_of(tmp_path) == 0o700


def test_relative_folder_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAO_SDK_STATE_DIR", "relative/place")
    with pytest.raises(ValidationError, match=r"TAO_SDK_STATE_DIR.*absolute"):
        resolve_sdk_state_paths()


@pytest.mark.parametrize("target", ["existing", "missing"])
def test_linked_folder_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str
) -> None:
    (tmp_path / "existing").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / target)
    monkeypatch.setenv("TAO_SDK_STATE_DIR", str(tmp_path / "link"))
    with pytest.raises(ValidationError, match="symbolic link"):
        resolve_sdk_state_paths()
    with pytest.raises(ValidationError, match="symbolic link"):
        JobStore().list_jobs()
    assert list((tmp_path / "existing").iterdir()) == []


def test_file_in_place_of_the_folder_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "state").write_text("here")
    monkeypatch.setenv("TAO_SDK_STATE_DIR", str(tmp_path / "state"))
    with pytest.raises(ValidationError, match="not a folder"):
        resolve_sdk_state_paths()


def test_folder_that_cannot_be_made_is_an_error_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("here")
    monkeypatch.setenv("TAO_SDK_STATE_DIR", str(tmp_path / "file" / "state"))
    with pytest.raises(StoreError, match="cannot create the folder"):
        resolve_sdk_state_paths()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to another user")
def test_folder_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "state"
    folder.mkdir()
    os.chown(folder, 12345, 12345)
    monkeypatch.setenv("TAO_SDK_STATE_DIR", str(folder))
    with pytest.raises(StoreError, match="another user"):
        resolve_sdk_state_paths()


@pytest.mark.parametrize(
    ("given", "database"),
    [
        ("runs/a.json", "runs/a.tao.db"),
        ("runs/a.db", "runs/a.tao.db"),
        ("runs/a", "runs/a.tao.db"),
        ("/x/a.b.json", "/x/a.b.tao.db"),
    ],
)
def test_explicit_file_is_kept_and_the_store_stands_beside_it(given: str, database: str) -> None:
    assert resolve_sdk_state_paths(given) == (given, database)


def test_the_session_file_never_is_the_store_itself(tmp_path: Path) -> None:
    """The monitor writes its session file, which would replace the database."""
    assert resolve_sdk_state_paths("runs/a.tao.db") == ("runs/a.json", "runs/a.tao.db")
    for name in ("any.sqlite", "plain.db", "odd.json", "none"):
        path = str(tmp_path / name)
        JobStore(path).list_jobs()
        assert resolve_sdk_state_paths(path) == (f"{path}.json", path)


def test_a_session_file_is_looked_at_and_left_alone(tmp_path: Path) -> None:
    session = tmp_path / "a.json"
    for text in ("", "{}", '{"active_jobs": []}' + " " * 200):
        session.write_text(text)
        assert resolve_sdk_state_paths(session) == (str(session), str(tmp_path / "a.tao.db"))
        assert session.read_text() == text


@pytest.mark.usefixtures("permissions_apply")
def test_a_file_that_cannot_be_read_is_an_error_of_ours(tmp_path: Path) -> None:
    (tmp_path / "a.json").touch(mode=0o200)
    with pytest.raises(StoreError, match="cannot read"):
        resolve_sdk_state_paths(tmp_path / "a.json")


def test_a_store_of_a_state_folder_is_named_by_its_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TAO_SDK_STATE_DIR", str(tmp_path / "state"))
    with JobStore() as store:
        store.create_job("a", "", "", "")
        path = store.path
    monkeypatch.setenv("TAO_SDK_STATE_DIR", str(tmp_path / "another"))
    session = str(tmp_path / "state" / "tao_session_state.json")
    assert resolve_sdk_state_paths(path) == (session, path)
    assert JobStore.for_state_file(path).get_job("a") is not None


def test_a_database_of_another_program_stands_for_a_session(tmp_path: Path) -> None:
    given = tmp_path / "a.db"
    with sqlite3.connect(given) as connection:
        connection.execute("CREATE TABLE jobs (job_id TEXT)")
    connection.close()
    assert resolve_sdk_state_paths(given) == (str(given), str(tmp_path / "a.tao.db"))


class TestAddress:
    @pytest.fixture(autouse=True)
    def home(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("TAO_SDK_STATE_DIR", raising=False)
        monkeypatch.setenv("HOME", str(tmp_path / "home"))

    def test_the_default_store_needs_none(self) -> None:
        assert JobStore().address == ""
        assert JobStore.for_state_file().address == ""

    def test_any_other_is_named(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        assert JobStore(tmp_path / "x.db").address == str(tmp_path / "x.db")
        of_file = JobStore.for_state_file(tmp_path / "a.json")
        assert of_file.address == str(tmp_path / "a.tao.db")
        monkeypatch.setenv("TAO_SDK_STATE_DIR", str(tmp_path / "state"))
        assert JobStore().address == str(tmp_path / "state" / "jobs.db")

    def test_the_default_one_by_another_way(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("TAO_SDK_STATE_DIR", str(tmp_path / "home" / ".tao_sdk"))
        assert JobStore().address == ""

    def test_a_store_in_memory_has_none(self) -> None:
        with pytest.raises(UnsupportedError, match="in memory"):
            _ = JobStore(":memory:").address


class TestFolder:
    """Where platforms keep files of their jobs."""

    def test_beside_the_database(self, tmp_path: Path) -> None:
        assert JobStore(tmp_path / "a.tao.db").folder("docker") == tmp_path / "a.tao.docker"
        assert list(tmp_path.iterdir()) == []

    def test_of_a_store_in_memory(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """`./:memory:.docker` used to be made."""
        monkeypatch.chdir(tmp_path)
        store = JobStore(":memory:")
        folder = store.folder("docker")
        folder.mkdir()
        assert mode_of(folder.parent) == 0o700
        assert store.folder("brev").parent == folder.parent
        store.close()
        assert not folder.parent.exists()
        assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("given", ["", "folder/"])
def test_explicit_path_must_name_a_file(given: str) -> None:
    with pytest.raises(ValidationError, match="names no file"):
        resolve_sdk_state_paths(given)


def test_making_a_store_touches_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAO_SDK_STATE_DIR", str(tmp_path / "state"))
    JobStore()
    JobStore.for_state_file()
    JobStore.for_state_file(tmp_path / "runs" / "a.json")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("mode", ["wal", "network"])
def test_every_file_is_private_with_an_explicit_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, open_umask: None, mode: str
) -> None:
    """Lesson D6: an explicit state file used to mean a database that everybody can read."""
    monkeypatch.setenv("TAO_SDK_STORE_MODE", mode)
    store = JobStore.for_state_file(tmp_path / "made" / "run.json")
    store.create_job("job-1", "dino", "train", "local")
    assert mode_of(tmp_path / "made") == 0o700
    with store._database.write() as connection:
        connection.execute("UPDATE jobs SET image = 'x'")
        files = list((tmp_path / "made").iterdir())
        companions = {path.name.removeprefix("run.tao.db") for path in files}
        assert companions >= ({"-wal", "-shm", "-gate"} if mode == "wal" else {"-journal"})
        assert {path.name: oct(mode_of(path)) for path in files} == {
            path.name: "0o600" for path in files
        }


def test_an_existing_store_is_made_private_again(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    with JobStore(path) as store:
        store.list_jobs()
    path.chmod(0o644)
    JobStore(path).list_jobs()
    assert mode_of(path) == 0o600


def test_a_folder_given_explicitly_keeps_its_mode(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    JobStore(tmp_path / "jobs.db").list_jobs()
    assert mode_of(tmp_path) == 0o755


def test_a_relative_path_means_where_we_were_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    store = JobStore("jobs.db")
    monkeypatch.chdir(tmp_path / "elsewhere")
    store.create_job("job-1", "dino", "train", "local")
    assert store.path == str(tmp_path / "jobs.db")
    assert (tmp_path / "jobs.db").exists()


def test_odd_characters_in_a_path(tmp_path: Path) -> None:
    path = tmp_path / "50% done? #1 ünï&x=y.db"
    JobStore(path).create_job("job-1", "dino", "train", "local")
    assert [row["job_id"] for row in JobStore(path).list_jobs()] == ["job-1"]


def test_a_link_to_a_store_is_the_same_store(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    JobStore(tmp_path / "real" / "jobs.db").create_job("job-1", "dino", "train", "local")
    (tmp_path / "link.db").symlink_to(tmp_path / "real" / "jobs.db")
    linked = JobStore(tmp_path / "link.db")
    linked.create_job("job-2", "dino", "train", "local")
    assert linked.path == str(tmp_path / "real" / "jobs.db")
    assert not [path for path in tmp_path.iterdir() if path.name.startswith("link.db-")]


@pytest.mark.usefixtures("permissions_apply")
def test_a_folder_without_permission_is_an_error_of_ours(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(StoreError):
        JobStore(tmp_path / "jobs.db").list_jobs()
    tmp_path.chmod(0o700)


def test_the_default_store_can_be_named_by_its_own_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What we print as the store's path may be given back as the state file."""
    monkeypatch.setenv("TAO_SDK_STATE_DIR", str(tmp_path))
    with JobStore.for_state_file() as store:
        store.create_job("a", "", "", "")
        path = store.path
    with JobStore.for_state_file(path) as again:
        assert again.path == path
        assert again.get_job("a") is not None
    assert not (tmp_path / "jobs.tao.db").exists()
