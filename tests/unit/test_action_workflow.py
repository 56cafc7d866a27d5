"""Run folders: complete, private, shared between processes, never torn."""

from __future__ import annotations

import enum
import hashlib
import json
import logging
import os
import stat
import subprocess
import sys
from dataclasses import dataclass, field
from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tao_sdk import action_workflow
from tao_sdk.action_workflow import ActionWorkflow, WorkspaceNotFoundError
from tao_sdk.errors import ValidationError
from tao_sdk.models import Job, JobStatus
from tao_sdk.secrets import PLACEHOLDER, Secret

SOURCES = Path(action_workflow.__file__).resolve().parents[1]
PRESIGNED = "https://bucket.example/x?X-Amz-Signature=abcdef0123456789"


def make_job(job_id: str = "job-1", **fields: Any) -> Job:
    return Job(id=job_id, network_arch="dino", action="train", workspace_id="local", **fields)


def read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def events(workflow: ActionWorkflow) -> list[dict[str, Any]]:
    return [json.loads(line) for line in workflow.events_path.read_text().splitlines()]


def active_ids(workflow: ActionWorkflow) -> list[str]:
    return [job["job_id"] for job in read(workflow.active_jobs_path)]


def spawn(program: str, *arguments: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(SOURCES)}
    command = [sys.executable, "-c", program, *arguments]
    return subprocess.Popen(command, env=environment, text=True, stdout=subprocess.PIPE)


@pytest.fixture
def workflow(tmp_path: Path) -> ActionWorkflow:
    return ActionWorkflow(tmp_path / "runs", "dino", "20260101-120000")


class TestOneJob:
    def test_the_files_of_a_submission(self, workflow: ActionWorkflow, tmp_path: Path) -> None:
        job = make_job(backend_job_id="c0ffee")
        workflow.write_submission(job, {"train": {"lr": 0.1}}, {"command": "run", "args": ""})
        assert workflow.workspace == tmp_path / "runs" / "dino" / "20260101-120000"

        status = read(workflow.status_path)
        assert status["job"]["id"] == "job-1"
        assert status["job"]["network_arch"] == "dino"
        assert status["specs"] == {"train": {"lr": 0.1}}
        assert status["script_runner"] == {"command": "run", "args": ""}
        assert datetime.fromisoformat(status["updated_at"])

        (active,) = read(workflow.active_jobs_path)
        assert active == {
            "job_id": "job-1",
            "backend_job_id": "c0ffee",
            "network_arch": "dino",
            "action": "train",
            "workspace_id": "local",
            "status": "Pending",
            "created_at": job.created_at,
            "updated_at": status["updated_at"],
        }
        (event,) = events(workflow)
        assert (event["event"], event["job_id"], event["status"], event["backend_job_id"]) == (
            "submitted",
            "job-1",
            "Pending",
            "c0ffee",
        )

    def test_the_way_to_an_end(self, workflow: ActionWorkflow) -> None:
        workflow.write_submission(make_job(), {"a": 1}, "run")
        workflow.sync_status("Running", "epoch 1")
        assert active_ids(workflow) == ["job-1"]
        analysis = {"err_class": "ERR_OOM", "suggestion": "smaller batch"}
        workflow.sync_status("Error", "out of memory", "last lines\n", analysis)

        assert workflow.active_jobs_path.read_text() == "[]\n"
        status = read(workflow.status_path)
        assert status["job"]["status"] == "Error"
        assert status["specs"] == {"a": 1}
        assert set(status["job_status"]) == {"job_id", "status", "message", "updated_at"}
        assert status["job_status"]["message"] == "out of memory"
        assert workflow.logs_path.read_text() == "last lines\n"
        assert read(workflow.failure_analysis_path) == analysis
        assert [event["status"] for event in events(workflow)] == ["Pending", "Running", "Error"]

    def test_without_logs_or_analysis_no_such_files(self, workflow: ActionWorkflow) -> None:
        workflow.write_submission(make_job(), {}, "run")
        workflow.sync_status(JobStatus("job-1", "Running"))
        assert not workflow.logs_path.exists()
        assert not workflow.failure_analysis_path.exists()

    def test_metadata_is_replaced(self, workflow: ActionWorkflow) -> None:
        workflow.write_metadata(model="dino", tags={"b", "a"})
        workflow.write_metadata(model="rtdetr", updated_at="then")
        assert read(workflow.metadata_path) == {"model": "rtdetr", "updated_at": "then"}

    def test_json_is_sorted_and_indented(self, workflow: ActionWorkflow) -> None:
        workflow.write_submission(make_job(), {"b": 1, "a": 2}, "run")
        text = workflow.status_path.read_text()
        assert text == json.dumps(json.loads(text), indent=2, sort_keys=True) + "\n"

    def test_a_status_without_any_job(self, workflow: ActionWorkflow) -> None:
        with pytest.raises(ValidationError, match="has no job yet"):
            workflow.sync_status("Running")
        assert not workflow.events_path.exists()
        assert workflow.read_status()["jobs"] == {}

    @pytest.mark.parametrize("status", ["Unknown", "Running"])
    def test_only_an_end_empties_the_active_jobs(
        self, workflow: ActionWorkflow, status: str
    ) -> None:
        """Lesson F2: a platform that cannot be asked for a moment does not lose the job."""
        workflow.write_submission(make_job(), {}, "run")
        workflow.sync_status(status, "cannot tell")
        assert active_ids(workflow) == ["job-1"]
        workflow.sync_status("Complete")
        assert active_ids(workflow) == []

    def test_an_end_is_final(self, workflow: ActionWorkflow) -> None:
        workflow.write_submission(make_job(), {}, "run")
        workflow.sync_status("Complete")
        workflow.sync_status("Unknown", "a late observer")
        assert read(workflow.status_path)["job"]["status"] == "Complete"
        assert active_ids(workflow) == []

    def test_the_terminal_states(self) -> None:
        assert {"Complete", "Error", "Canceled"} == ActionWorkflow.TERMINAL_STATUSES


class TestManyJobs:
    @pytest.mark.seed("000.21")
    def test_a_chain_and_a_sweep_in_one_folder(self, workflow: ActionWorkflow) -> None:
        """Lesson F1: a second submission adds to the run; each job keeps its own record."""
        workflow.write_submission(make_job("prepare", created_at="1"), {"step": 1}, "prepare")
        workflow.sync_status("Complete")
        for number in range(3):
            job = make_job(f"trial-{number}", created_at=f"2{number}", parent_job_id="prepare")
            workflow.write_submission(job, {"lr": number}, "train")
        assert active_ids(workflow) == ["trial-0", "trial-1", "trial-2"]

        analysis = {"err_class": "ERR_PROGRAM"}
        workflow.sync_status(JobStatus("trial-1", "Error", "exit 1"), failure_analysis=analysis)
        assert active_ids(workflow) == ["trial-0", "trial-2"]

        status = read(workflow.status_path)
        assert status["job"]["id"] == "trial-2"
        assert status["specs"] == {"lr": 2}
        assert "job_status" not in status
        assert set(status["jobs"]) == {"prepare", "trial-0", "trial-1", "trial-2"}
        assert status["jobs"]["prepare"]["job"]["status"] == "Complete"
        assert status["jobs"]["trial-0"]["specs"] == {"lr": 0}
        assert status["jobs"]["trial-1"]["failure_analysis"] == analysis
        assert status["jobs"]["trial-1"]["job_status"]["message"] == "exit 1"

        later = ActionWorkflow.from_workspace(workflow.workspace)
        later.sync_status("Complete", job_id="trial-0")
        later.sync_status("Canceled")
        assert later.active_jobs_path.read_text() == "[]\n"
        assert later.read_status()["jobs"]["trial-2"]["job"]["status"] == "Canceled"

    @pytest.mark.parametrize("locks", ["granted", "refused"])
    def test_processes_do_not_lose_each_others_jobs(
        self, workflow: ActionWorkflow, locks: str
    ) -> None:
        """Lesson F1: several processes write to one run folder at the same time.

        Some Lustre mounts answer `flock` with ENOSYS.
        """
        program = (
            "import errno, fcntl, os, sys\n"
            "def refused(*_): raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))\n"
            "if sys.argv[3] == 'refused': fcntl.flock = refused\n"
            "from tao_sdk.action_workflow import ActionWorkflow\n"
            "from tao_sdk.models import Job, JobStatus\n"
            "workflow = ActionWorkflow.from_workspace(sys.argv[1])\n"
            "for number in range(8):\n"
            "    job = Job(f'{sys.argv[2]}-{number}', 'dino', 'train', 'local')\n"
            "    workflow.write_submission(job, {'n': number}, 'run')\n"
            "    workflow.sync_status(JobStatus(job.id, 'Running'))\n"
            "    if number % 2: workflow.sync_status(JobStatus(job.id, 'Complete'))\n"
        )
        writers = [spawn(program, str(workflow.workspace), name, locks) for name in "abcd"]
        assert [writer.wait(timeout=120) for writer in writers] == [0] * 4
        for writer in writers:
            assert writer.stdout is not None
            writer.stdout.close()

        names = {f"{name}-{number}" for name in "abcd" for number in range(8)}
        status = read(workflow.status_path)
        assert set(status["jobs"]) == names
        assert all(record["specs"]["n"] == int(i[2:]) for i, record in status["jobs"].items())
        assert set(active_ids(workflow)) == {name for name in names if int(name[2:]) % 2 == 0}
        assert len(events(workflow)) == 4 * (8 + 8 + 4)


class TestDamage:
    @pytest.mark.parametrize("damage", [b"", b'{"job": {"id": "jo', b"[]", b"{}", b"\xff", b"null"])
    def test_a_torn_status_is_rebuilt_from_the_log(
        self, workflow: ActionWorkflow, damage: bytes, caplog: pytest.LogCaptureFixture
    ) -> None:
        """Lesson F3: a damaged status.json costs nothing; it is kept aside and reported."""
        workflow.write_submission(make_job("one"), {"lr": 1}, "run one")
        workflow.write_submission(make_job("two"), {"lr": 2}, "run two")
        workflow.sync_status("Running", "epoch 3", job_id="one")
        whole = read(workflow.status_path)
        workflow.status_path.write_bytes(damage)

        with caplog.at_level(logging.WARNING):
            assert workflow.read_status() == whole
        assert "was damaged" in caplog.text
        assert read(workflow.status_path) == whole
        (aside,) = workflow.workspace.glob("status.json.corrupt-*")
        assert aside.read_bytes() == damage

        workflow.status_path.write_bytes(damage)
        workflow.sync_status("Complete", job_id="one")
        assert active_ids(workflow) == ["two"]
        assert read(workflow.status_path)["jobs"]["one"]["specs"] == {"lr": 1}

    def test_views_that_lag_behind_the_log_catch_up(self, workflow: ActionWorkflow) -> None:
        """Lesson F3: a writer killed after its log entry has lost nothing."""
        workflow.write_submission(make_job("one"), {"lr": 1}, "run")
        before = workflow.status_path.read_bytes()
        workflow.write_submission(make_job("two"), {"lr": 2}, "run")
        workflow.status_path.write_bytes(before)
        workflow.sync_status("Complete", job_id="one")
        assert read(workflow.status_path)["jobs"]["two"]["specs"] == {"lr": 2}
        assert active_ids(workflow) == ["two"]

    def test_a_torn_log_line_harms_no_other(
        self, workflow: ActionWorkflow, caplog: pytest.LogCaptureFixture
    ) -> None:
        workflow.write_submission(make_job("one"), {}, "run")
        with workflow.events_path.open("ab") as log:
            log.write(b'{"event": "status", "job_')
        workflow.write_submission(make_job("two"), {}, "run")
        workflow.status_path.unlink()
        assert set(workflow.read_status()["jobs"]) == {"one", "two"}
        assert "not whole" in caplog.text

    def test_a_killed_writer_loses_nothing_that_it_reported(self, workflow: ActionWorkflow) -> None:
        """Lesson F3: kill -9 in the middle of the writes."""
        program = (
            "import sys, itertools\n"
            "from tao_sdk.action_workflow import ActionWorkflow\n"
            "from tao_sdk.models import Job\n"
            "workflow = ActionWorkflow.from_workspace(sys.argv[1])\n"
            "for number in itertools.count():\n"
            "    job = Job(f'{sys.argv[2]}-{number}', 'dino', 'train', 'local')\n"
            "    workflow.write_submission(job, {'text': 'word ' * 4_000}, 'run')\n"
            "    print(job.id, flush=True)\n"
        )
        reported: list[str] = []
        for attempt in range(3):
            writer = spawn(program, str(workflow.workspace), f"w{attempt}")
            assert writer.stdout is not None
            reported += [writer.stdout.readline().strip() for _ in range(3 + attempt)]
            writer.kill()
            reported += [line.strip() for line in writer.stdout if line.endswith("\n")]
            writer.stdout.close()
            writer.wait()
        jobs = workflow.read_status()["jobs"]
        assert set(reported) <= set(jobs)
        assert set(active_ids(workflow)) == set(jobs)

    def test_a_folder_of_another_tool_is_understood(self, tmp_path: Path) -> None:
        job = {"id": "old", "status": "Running", "created_at": "1", "action": "train"}
        (tmp_path / "status.json").write_text(json.dumps({"job": job, "specs": {"lr": 1}}))
        (tmp_path / "status_events.jsonl").write_text('{"event": "submitted", "job_id": "old"}\n')
        workflow = ActionWorkflow.from_workspace(tmp_path)
        workflow.sync_status("Complete")
        status = read(workflow.status_path)
        assert status["jobs"]["old"]["specs"] == {"lr": 1}
        assert status["job"]["status"] == "Complete"
        assert stat.S_IMODE(workflow.events_path.stat().st_mode) == 0o600


class TestPrivacy:
    def test_only_the_owner_can_look(self, workflow: ActionWorkflow, tmp_path: Path) -> None:
        """Lesson E6: folders 0700, files 0600."""
        workflow.write_metadata(a=1)
        workflow.write_submission(make_job(), {}, "run")
        workflow.sync_status("Error", logs="x", failure_analysis={"cause": "x"})
        for folder in (tmp_path / "runs", workflow.workspace.parent, workflow.workspace):
            assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        files = list(workflow.workspace.iterdir())
        assert len(files) == 7
        assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}

    def test_no_secret_is_stored_anywhere(
        self, workflow: ActionWorkflow, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Lesson E6: known secrets and presigned URLs are replaced, wherever they appear."""
        monkeypatch.setenv("NGC_KEY", "canary-ngc-0001")
        monkeypatch.setenv("ACCESS_KEY", "canary-access-0002")
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "canary-alias-0003")
        text = f"a canary-ngc-0001 b canary-access-0002 c canary-alias-0003 d {PRESIGNED}"
        specs = {
            "deep": [{"token": text}],
            text: 1,
            "sealed": Secret("canary-sealed-0004"),
            "path": Path("/x") / "canary-ngc-0001",
        }
        workflow.write_metadata(note=text)
        workflow.write_submission(make_job(), specs, {"command": f"run {text}"})
        workflow.sync_status("Error", text, logs=text, failure_analysis={"cause": text})
        for file in workflow.workspace.iterdir():
            content = file.read_text()
            assert "canary" not in content
            assert "X-Amz-Signature" not in content
        status = read(workflow.status_path)
        assert status["specs"]["sealed"] == PLACEHOLDER
        assert status["specs"]["path"] == f"/x/{PLACEHOLDER}"
        assert "canary" in specs["deep"][0]["token"]  # type: ignore[index]  # nested data of any type

    def test_a_long_command_is_kept_as_a_digest(self, workflow: ActionWorkflow) -> None:
        """Lesson E6: the packed runner does not fill the record."""
        short, long = "é" * 2048, "x" * 4097
        workflow.write_submission(make_job(), {}, {"command": long, "args_template": ""})
        digest = {"sha256": hashlib.sha256(long.encode()).hexdigest(), "length": 4097}
        stored = read(workflow.status_path)["script_runner"]
        assert stored == {"command": digest, "args_template": ""}
        workflow.write_submission(make_job("two"), {}, short)
        assert read(workflow.status_path)["script_runner"] == short


class Colour(enum.Enum):
    RED = "red"


@dataclass
class Options:
    path: Path = Path("/o")
    tags: frozenset[str] = field(default_factory=lambda: frozenset({"y", "x"}))


class TestValues:
    @pytest.mark.parametrize(
        ("value", "stored"),
        [
            ({"c", "a", "b"}, ["a", "b", "c"]),
            ({2, "a"}, [2, "a"]),
            (datetime(2026, 1, 2, 3, tzinfo=timezone.utc), "2026-01-02T03:00:00+00:00"),
            (date(2026, 1, 2), "2026-01-02"),
            (Path("/data"), "/data"),
            (Colour.RED, "red"),
            ({Colour.RED: (1, None)}, {"red": [1, None]}),
            ({1: True}, {"1": True}),
            (Options(), {"path": "/o", "tags": ["x", "y"]}),
            (np.float32(0.5), 0.5),
            (np.array([1, 2]), [1, 2]),
            (np.longdouble(2), "2.0"),
            (float("nan"), "nan"),
            (Decimal("1.5"), "1.5"),
            ("\ud800", "\ud800"),
        ],
    )
    def test_what_json_lacks(self, workflow: ActionWorkflow, value: object, stored: object) -> None:
        """Lesson F4: sets, dates, paths and enums are stored, not refused."""
        workflow.write_submission(make_job(), {"value": value}, "run")
        workflow.write_metadata(value=value)
        assert read(workflow.status_path)["specs"]["value"] == stored
        assert read(workflow.metadata_path)["value"] == stored

    def test_logs_of_undecodable_bytes(self, workflow: ActionWorkflow) -> None:
        workflow.write_submission(make_job(), {}, "run")
        workflow.sync_status("Running", logs="bad \udcff byte")
        assert workflow.logs_path.read_text() == "bad ? byte"


class TestPlaces:
    @pytest.mark.parametrize(
        "name", ["..", ".", "", "a/b", "/etc", "../x", "a\\b", "a\n", "a\0", 7]
    )
    def test_a_name_may_not_leave_the_root(self, tmp_path: Path, name: Any) -> None:
        """Lesson F4: neither the run's name nor its timestamp leads elsewhere."""
        root = tmp_path / "root"
        with pytest.raises(ValidationError, match="run_name="):
            ActionWorkflow(root, name, "now")
        with pytest.raises(ValidationError, match="timestamp="):
            ActionWorkflow(root, "run", name)
        assert list(tmp_path.iterdir()) == []

    def test_a_link_may_not_lead_out_of_the_root(self, tmp_path: Path) -> None:
        (tmp_path / "root").mkdir()
        (tmp_path / "outside").mkdir()
        (tmp_path / "root" / "run").symlink_to(tmp_path / "outside")
        with pytest.raises(ValidationError, match="leads out of"):
            ActionWorkflow(tmp_path / "root", "run", "now")
        assert list((tmp_path / "outside").iterdir()) == []

    def test_an_existing_root_keeps_its_mode(self, tmp_path: Path) -> None:
        tmp_path.chmod(0o755)
        ActionWorkflow(tmp_path, "run", "now")
        assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o755

    def test_opening_what_is_not_there(self, tmp_path: Path) -> None:
        with pytest.raises(WorkspaceNotFoundError, match="missing is not a run folder"):
            ActionWorkflow.from_workspace(tmp_path / "missing")
        (tmp_path / "file").write_text("x")
        with pytest.raises(FileNotFoundError):
            ActionWorkflow.from_workspace(str(tmp_path / "file"))

    def test_opening_again_keeps_everything(self, workflow: ActionWorkflow) -> None:
        workflow.write_submission(make_job(), {"lr": 1}, "run")
        root = workflow.workspace.parents[1]
        again = ActionWorkflow(root, "dino", "20260101-120000")
        assert again.read_status()["specs"] == {"lr": 1}


class Platform:
    """Anything with the three calls will do."""

    def __init__(self, *, logs_fail: bool = False) -> None:
        self.logs_fail = logs_fail
        self.asked_tail: int | None = None

    def get_job_status(self, job_id: str) -> JobStatus:
        return JobStatus(job_id, "Error", "exit 1")

    def get_job_logs(self, job_id: str, tail: int | None = None) -> str | None:
        self.asked_tail = tail
        if self.logs_fail:
            raise ConnectionError("the logs are out of reach")
        return f"log of {job_id}"

    def get_failure_analysis(self, job_id: str) -> dict[str, Any] | None:
        return {"err_class": "ERR_PROGRAM"}


class TestSync:
    def test_everything_the_sdk_knows_is_recorded(self, workflow: ActionWorkflow) -> None:
        platform = Platform()
        workflow.write_submission(make_job("a"), {}, "run")
        workflow.write_submission(make_job("b"), {}, "run")
        status = workflow.sync_from_sdk(platform, "a")
        assert (status.job_id, status.status) == ("a", "Error")
        assert platform.asked_tail == 200
        assert workflow.logs_path.read_text() == "log of a"
        assert read(workflow.failure_analysis_path) == {"err_class": "ERR_PROGRAM"}
        assert active_ids(workflow) == ["b"]
        workflow.sync_from_sdk(platform, "b", tail=5)
        assert platform.asked_tail == 5

    def test_a_status_is_kept_even_if_the_logs_are_out_of_reach(
        self, workflow: ActionWorkflow
    ) -> None:
        workflow.write_submission(make_job(), {}, "run")
        with pytest.raises(ConnectionError):
            workflow.sync_from_sdk(Platform(logs_fail=True), "job-1")
        assert read(workflow.status_path)["job"]["status"] == "Error"
        assert active_ids(workflow) == []

    def test_a_job_that_was_not_submitted_here_is_recorded(self, workflow: ActionWorkflow) -> None:
        workflow.sync_from_sdk(Platform(), "foreign")
        assert read(workflow.status_path)["job"] == {"id": "foreign", "status": "Error"}
