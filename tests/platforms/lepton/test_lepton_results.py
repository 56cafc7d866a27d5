"""Results on a volume come here through the storage interface, by the rules of every pull."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from lepton_lab import LeptonLab

from lab.lepton import LeptonServer
from tao_sdk.errors import (
    BackendUnreachableError,
    PlatformError,
    UnsupportedError,
    ValidationError,
)
from tao_sdk.platforms.lepton import LeptonSDK
from tao_sdk.platforms.lepton import results as volume_results
from tao_sdk.platforms.lepton.auth import WorkspaceAccess
from tao_sdk.platforms.lepton.client import LeptonClient
from tao_sdk.platforms.lepton.results import VolumeResults
from tao_sdk.platforms.results import results_of
from tao_sdk.results import State, copy_results, plan_pull
from tao_sdk.results.sources import Entry, Kind

NAMES = ["spaces in it", "ünïcödé 图", "100%25", "a?b#c&d=e", "new\nline", "quotes'\"`id`"]


@pytest.fixture
def folder(server: LeptonServer) -> Path:
    folder = server.state.volume("lustre") / "team" / "results" / "one"
    (folder / "train" / "empty").mkdir(parents=True)
    (folder / "status.json").write_text("{}\n", encoding="utf-8")
    (folder / "train" / "model.pth").write_bytes(os.urandom(300_000))
    (folder / "train" / "nothing").touch()
    os.utime(folder / "train" / "model.pth", (1_700_000_000,) * 2)
    return folder


@pytest.fixture
def source(lab: LeptonLab) -> VolumeResults:
    del lab  # which the environment names
    return results("lustre", "/team/results/one")


def results(volume: str, folder: str) -> VolumeResults:
    client = LeptonClient(WorkspaceAccess.find())
    return VolumeResults(client, f"lepton-volume://{volume}{folder}", volume, folder)


def contents(folder: Path) -> dict[str, bytes | None]:
    return {
        str(path.relative_to(folder)): None if path.is_dir() else path.read_bytes()
        for path in folder.rglob("*")
    }


def pull(source: VolumeResults, destination: Path, **options: bool) -> dict[str, State]:
    plan = plan_pull(source, destination, **options)
    return {outcome.path: outcome.state for outcome in copy_results(source, plan)}


class TestPulling:
    def test_results_of_a_job(
        self, sdk: LeptonSDK, lab: LeptonLab, server: LeptonServer, tmp_path: Path
    ) -> None:
        job = sdk.create_job(**lab.job('echo x > "$TAO_RESULTS_ROOT/$TAO_JOB_ID/model.pth"'))
        job.wait(timeout=60)
        source = results_of(sdk, job.id)
        assert source.address == job.results_dir
        jobs = server.calls().count("POST /jobs")
        list(copy_results(source, plan_pull(source, tmp_path / "copy")))
        assert (tmp_path / "copy" / "model.pth").read_text() == "x\n"
        assert (tmp_path / "copy" / "tao_result.json").exists()
        assert server.calls().count("POST /jobs") == jobs, "no job is needed for it"

    def test_contents_times_and_empty_folders(
        self, source: VolumeResults, folder: Path, tmp_path: Path
    ) -> None:
        copy = tmp_path / "copy"
        assert set(pull(source, copy).values()) == {State.COPIED}
        assert contents(copy) == contents(folder)
        assert (copy / "train" / "model.pth").stat().st_mtime == 1_700_000_000

    def test_a_second_pull_fetches_what_changed(
        self, source: VolumeResults, folder: Path, tmp_path: Path
    ) -> None:
        pull(source, tmp_path / "copy")
        (folder / "status.json").write_text("{ }\n")
        assert {
            path for path, state in pull(source, tmp_path / "copy").items() if state is State.COPIED
        } == {"status.json"}
        assert State.PRESENT not in pull(source, tmp_path / "copy", verify=True).values()

    @pytest.mark.parametrize("name", NAMES)
    def test_names(self, source: VolumeResults, folder: Path, tmp_path: Path, name: str) -> None:
        (folder / name).mkdir()
        (folder / name / name).write_text("here")
        pull(source, tmp_path / "copy")
        assert (tmp_path / "copy" / name / name).read_text() == "here"

    @pytest.mark.parametrize("fault", ["hides_sizes", "hides_times"])
    def test_headers_that_say_little(
        self, source: VolumeResults, folder: Path, server: LeptonServer, tmp_path: Path, fault: str
    ) -> None:
        setattr(server.faults, fault, True)
        pull(source, tmp_path / "copy")
        assert contents(tmp_path / "copy") == contents(folder)

    def test_without_times_nothing_counts_as_fetched_before(
        self, source: VolumeResults, folder: Path, server: LeptonServer, tmp_path: Path
    ) -> None:
        server.faults.hides_times = True
        pull(source, tmp_path / "copy")
        (folder / "status.json").write_text("[]\n")
        pull(source, tmp_path / "copy")
        assert (tmp_path / "copy" / "status.json").read_text() == "[]\n"


class TestInterruptions:
    @pytest.mark.parametrize("sends_parts", [True, False])
    def test_a_file_that_breaks_off(
        self,
        source: VolumeResults,
        folder: Path,
        server: LeptonServer,
        tmp_path: Path,
        sends_parts: bool,
    ) -> None:
        server.faults.sends_parts = sends_parts
        server.faults.breaks_after = [100_000]
        shutil.rmtree(folder / "train" / "empty")
        (folder / "train" / "nothing").unlink()
        (folder / "status.json").unlink()
        counted: list[int] = []
        plan = plan_pull(source, tmp_path / "copy")
        [outcome] = copy_results(source, plan, counted.append)
        assert outcome.state is State.COPIED
        assert contents(tmp_path / "copy") == contents(folder)
        assert sum(counted) == 300_000
        assert (sum(count for count in counted if count > 0) == 300_000) is sends_parts

    def test_the_next_pull_goes_on(
        self, source: VolumeResults, folder: Path, server: LeptonServer, tmp_path: Path
    ) -> None:
        server.faults.breaks_after = [100_000, 50_000, 50_000]
        shutil.rmtree(folder / "train" / "empty")
        (folder / "train" / "nothing").unlink()
        (folder / "status.json").unlink()
        with pytest.raises(BackendUnreachableError):
            pull(source, tmp_path / "copy")
        assert not (tmp_path / "copy" / "train" / "model.pth").exists()
        counted: list[int] = []
        list(copy_results(source, plan_pull(source, tmp_path / "copy"), counted.append))
        assert counted[0] == 200_000, "what had come"
        assert contents(tmp_path / "copy") == contents(folder)

    def test_a_file_that_changes_is_fetched_again(
        self, source: VolumeResults, folder: Path, tmp_path: Path
    ) -> None:
        plan = plan_pull(source, tmp_path / "copy")
        (folder / "status.json").write_text("longer than it was\n")
        outcomes = {one.path: one.state for one in copy_results(source, plan)}
        assert outcomes["status.json"] is State.COPIED
        assert contents(tmp_path / "copy") == contents(folder)

    def test_a_file_that_goes_away(
        self, source: VolumeResults, folder: Path, tmp_path: Path
    ) -> None:
        plan = plan_pull(source, tmp_path / "copy")
        (folder / "status.json").unlink()
        outcomes = {one.path: one.state for one in copy_results(source, plan)}
        assert outcomes["status.json"] is State.GONE

    def test_a_file_that_is_refused(
        self, source: VolumeResults, folder: Path, server: LeptonServer, tmp_path: Path
    ) -> None:
        del folder
        call = "HEAD /storage/lustre/team/results/one/status.json"
        server.faults.refuse_next = [(call, 403)]
        plan = plan_pull(source, tmp_path / "copy")
        assert [entry.path for entry in plan.unreadable] == ["status.json"]


class TestWhatCannotBeFetched:
    @pytest.mark.parametrize("volume", ["filestore-a", "node-local"])
    @pytest.mark.usefixtures("folder", "lab")
    def test_a_volume_that_is_not_served(self, volume: str) -> None:
        with pytest.raises(
            UnsupportedError, match=f"files of volume {volume}, only of: default, lustre"
        ):
            list(results(volume, "/team").entries())

    @pytest.mark.usefixtures("folder", "lab")
    def test_a_workspace_without_the_interface(self, server: LeptonServer) -> None:
        server.state.storages = []
        with pytest.raises(UnsupportedError, match="only of: none"):
            list(results("lustre", "/team/results/one").entries())

    @pytest.mark.usefixtures("folder", "lab")
    def test_a_folder_that_is_not_there(self) -> None:
        with pytest.raises(ValidationError, match="is not there"):
            list(results("lustre", "/team/results/none").entries())

    @pytest.mark.usefixtures("folder")
    def test_a_folder_that_is_forbidden(self, source: VolumeResults, server: LeptonServer) -> None:
        server.faults.refuse_next = [("GET /storage/lustre/team/results/one", 403)]
        with pytest.raises(PlatformError, match="cannot be read"):
            list(source.entries())

    def test_circles_of_links_end(
        self, source: VolumeResults, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(volume_results, "_MAX_FOLDERS", 100)
        for name in ("again", "and again"):
            (folder / "train" / name).symlink_to(folder / "train", target_is_directory=True)
        found = list(source.entries())
        assert any("does a link lead back?" in entry.problem for entry in found)


class _Endless:
    """A workspace that lists a file of ten bytes and sends bytes for ever."""

    def __init__(self) -> None:
        self.sent = 0

    def headers_of(self, _path: str) -> dict[str, str]:
        return {"Content-Length": "10", "Last-Modified": "Wed, 21 Oct 2015 07:28:00 GMT"}

    def stream(self, _path: str, **_options: object) -> Any:
        answer = self

        class Answer(Iterator[bytes]):
            status, headers = 200, {"Content-Range": ""}

            def __enter__(self) -> Answer:
                return self

            def __exit__(self, *_error: object) -> None: ...

            def __next__(self) -> bytes:
                assert answer.sent < 1000, "the disk would be full"
                answer.sent += 8
                return b"x" * 8

        return Answer()


def test_no_more_is_written_than_was_listed(tmp_path: Path) -> None:
    endless = _Endless()
    source = VolumeResults(cast("LeptonClient", endless), "lepton-volume://v/f", "v", "/f")
    entry = Entry("model.pth", Kind.FILE, 10, 1_445_412_480 * 10**9)
    [one] = list(source.fetch([entry], tmp_path, lambda _: None, digests=False))
    assert one.problem is not None
    assert one.problem.state is State.CHANGED
    assert endless.sent <= 3 * 16
