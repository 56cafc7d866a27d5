"""A program written for the reference's SDK classes runs against ours.

The reference's calls, by position and by keyword, give the documented results. Where its behaviour
is a known defect ours differs on purpose, and the test says so. Signatures and names are in
test_contract_signatures; image keys, store, monitor and run folders in test_contract_state.
"""

from __future__ import annotations

import subprocess
import sys
import textwrap
import threading
import uuid
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest

import tao_sdk
from tao_sdk import ArtifactCleanupSDK, Job, JobStatus, PythonScriptSDK, VirtualEnvSDK
from tao_sdk.platforms.local import LocalSDK
from tao_sdk.platforms.protocol import PlatformSDK

SOURCE = str(Path(tao_sdk.__file__).parents[1])
TERMINAL = {"Complete", "Error", "Canceled"}
LONG = 60


@pytest.fixture(autouse=True)
def own_surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of the user's own state and credentials."""
    for name in ("ACCESS_KEY", "SECRET_KEY", "HF_TOKEN", "NGC_KEY", "TAO_LOCAL_ROOT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TAO_SDK_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("TAO_GPU_LEASE_DIR", str(tmp_path / "leases"))
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def sdk(tmp_path: Path) -> Iterator[LocalSDK]:
    sdk = LocalSDK(30, 10, str(tmp_path / "run.json"), work_dir=tmp_path / "jobs")
    yield sdk
    for job in sdk.list_jobs():
        sdk.cancel_job(job.id)
    sdk.close()


def ended(sdk: PlatformSDK, job: Job) -> JobStatus:
    """The reference's programs poll."""
    pause = threading.Event()
    for _ in range(LONG * 20):
        status = sdk.get_job_status(job.id)
        if status.status in TERMINAL:
            return status
        pause.wait(0.05)
    pytest.fail(f"job {job.id} did not end")


@pytest.mark.seed("000.9", "000.18", "000.19", "000.22")
def test_a_job_from_start_to_end(sdk: LocalSDK, tmp_path: Path) -> None:
    script = (
        'd="$TAO_RESULTS_ROOT/$TAO_JOB_ID/train"; mkdir -p "$d"; echo x > "$d/epoch_001.pth"; '
        'echo "one $MINE"; echo two'
    )
    job = sdk.create_job("nvcr.io/nvidia/tao:1", script, 0, {"MINE": "hello"})
    assert isinstance(job, Job)
    assert uuid.UUID(job.id).version == 4
    assert (job.status, job.workspace_id) == ("Pending", "local")
    assert job.backend_job_id == f"tao-job-{job.id}"

    status = ended(sdk, job)
    assert isinstance(status, JobStatus)
    assert (status.job_id, status.status) == (job.id, "Complete")
    assert sdk.get_job_logs(job.id) == "one hello\ntwo\n"
    assert sdk.get_job_logs(job.id, tail=1) == "two\n"
    assert sdk.get_failure_analysis(job.id) is None
    assert sdk.cancel_job(job.id) is True

    results = sdk.get_job_results_dir(job.id)
    assert sdk.get_checkpoints(job.id) == [f"{results}/train/epoch_001.pth"]
    assert sdk.check_path(f"file://{results}/train") is True
    assert sdk.check_path(f"{results}/nothing") is False
    assert sdk.list_path(f"{results}/train") == ["epoch_001.pth"]

    stored = sdk.get_job(job.id)
    assert stored is not None
    assert (stored.id, stored.status) == (job.id, "Complete")
    assert [found.id for found in sdk.list_jobs()] == [job.id]
    assert [found.id for found in sdk.list_jobs(status="Complete")] == [job.id]
    assert sdk.list_jobs(status="Running") == []

    assert sdk.validate_artifact_retention(mounts=[]) is True
    assert sdk.delete_job_artifacts(job.id) is True
    assert not Path(results).exists()
    assert sdk.get_job_status(job.id).status == "Complete", "the record stays"


@pytest.mark.seed("000.19")
def test_a_failing_job_and_a_canceled_one(sdk: LocalSDK) -> None:
    failing = sdk.create_job(image="", command="echo broken; exit 3", gpu_count=0, env_vars=None)
    sleeping = sdk.create_job(image="", command="sleep 600", gpu_count=0)
    assert ended(sdk, failing).status == "Error"
    analysis = sdk.get_failure_analysis(failing.id)
    assert analysis is not None
    assert analysis["err_class"] == "ERR_PROGRAM"
    assert isinstance(analysis["suggestion"], str)
    for event in analysis["job_failure_by_node_event"]:
        assert set(event) == {"node_event_name", "message"}
    assert sdk.delete_job_artifacts(sleeping.id) is False, "it has not ended"
    assert sdk.cancel_job(sleeping.id) is True
    assert sdk.get_job_status(sleeping.id).status == "Canceled"


def test_what_is_said_of_other_jobs(sdk: LocalSDK) -> None:
    status = sdk.get_job_status("nobody")
    assert (status.status, status.message) == ("Unknown", "Job not found")
    sdk.store.create_job("theirs", "", "", "", backend_type="docker", status="Running")
    foreign = sdk.get_job_status("theirs")
    assert foreign.status == "Unknown"
    assert "docker" in foreign.message
    for job_id in ("nobody", "theirs"):
        assert sdk.get_job_logs(job_id) == ""
        assert sdk.cancel_job(job_id) is False
        assert sdk.get_failure_analysis(job_id) is None
        assert sdk.get_job(job_id) is None
        assert sdk.get_checkpoints(job_id) == []
        assert sdk.get_job_results_dir(job_id) == ""
        assert sdk.delete_job_artifacts(job_id) is False


def test_an_ended_job_costs_no_round_trip(sdk: LocalSDK) -> None:
    job = sdk.create_job("", "true", 0)
    ended(sdk, job)
    calls = len(sdk.backend.transport.calls)
    assert sdk.get_job_status(job.id).status == "Complete"
    assert len(sdk.backend.transport.calls) == calls


PROGRAM = """
import sys, time
from tao_sdk.platforms.local import LocalSDK

sdk = LocalSDK(state_file=sys.argv[1])
if len(sys.argv) == 2:
    print(sdk.create_job(image="", command="sleep 0.2; echo done", gpu_count=0).id)
else:
    while (status := sdk.get_job_status(sys.argv[2])).status not in ("Complete", "Error"):
        time.sleep(0.05)
    print(status.status, sdk.get_job_logs(sys.argv[2], tail=20).strip())
"""


@pytest.mark.seed("000.20")
def test_a_second_process_finds_the_job_by_its_state_file(tmp_path: Path) -> None:
    def run(*words: str) -> str:
        done = subprocess.run(
            [sys.executable, "-c", f"import sys; sys.path.insert(0, {SOURCE!r}){PROGRAM}", *words],
            capture_output=True,
            text=True,
            timeout=LONG,
            check=True,
        )
        return done.stdout.strip()

    job_id = run("session.json")
    assert run("session.json", job_id) == "Complete done"


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("venv")
    venv.create(folder, with_pip=False)
    return folder


def test_a_python_script(environment: Path, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        textwrap.dedent("""
            import json, os, sys
            spec = json.load(open(sys.argv[1]))
            os.makedirs(spec["results_dir"], exist_ok=True)
            with open(spec["results_dir"] + "/metrics.txt", "w") as out:
                out.write(str(spec["train"]["lr"]))
            print(os.environ["VIRTUAL_ENV"])
            print(os.environ["MINE"])
            """)
    )
    done = threading.Event()
    sdk = VirtualEnvSDK(str(environment), str(tmp_path / "work"), str(tmp_path / "run.json"))
    sdk.poll_interval = 0.05
    assert isinstance(sdk, PythonScriptSDK)
    assert isinstance(sdk, ArtifactCleanupSDK)
    job = sdk.create_python_job(
        str(script),
        {"train": {"lr": 0.5}, "results_dir": ""},
        "json",
        ["{config_path}"],
        {"MINE": "hello"},
        inputs=None,
        outputs=["results_dir"],
        upload_excludes=["inputs/"],
        cwd=str(tmp_path),
        network_arch="net",
        action="train",
        hooks={"on_complete": lambda _job: done.set()},
        gpu_count=0,
        gpu_ids=None,
    )
    assert (job.network_arch, job.action, job.workspace_id) == ("net", "train", "local")
    assert ended(sdk, job).status == "Complete"
    assert done.wait(LONG)
    assert sdk.get_job_logs(job.id) == f"{environment}\nhello\n"
    assert "".join(sdk.iter_job_log_chunks(job.id, chunk_size=4)) == sdk.get_job_logs(job.id)
    assert "results_dir/metrics.txt" in sdk.list_results(job.id)
    assert sdk.get_results(job.id) == sdk.list_results(job.id)
    assert sdk.read_job_result_file(job.id, "results_dir/metrics.txt") == "0.5"
    assert sdk.read_job_result_file(job.id, "absent") == ""
    with pytest.raises(ValueError, match="outside"):
        sdk.read_job_result_file(job.id, "../escape")
    sdk.close()


def test_results_of_no_job(environment: Path, tmp_path: Path) -> None:
    """An unknown job has no results: those of the current folder are not its own."""
    (tmp_path / "private.txt").write_text("of the caller")
    sdk = VirtualEnvSDK(environment, tmp_path / "work", tmp_path / "run.json")
    assert sdk.list_results("nobody") == []
    assert sdk.read_job_result_file("nobody", "private.txt") == ""
