"""Looking at local jobs changes nothing: no file, no process, no lease."""

from __future__ import annotations

import hashlib
import io
import os
import signal
from pathlib import Path

import pytest

from tao_sdk import Job, LocalSDK
from tao_sdk.platforms.conformance import eventually
from tao_sdk.platforms.local.job_files import JobFolder
from tao_sdk.platforms.submit import job_ref
from tao_sdk.process_identity import ProcessIdentity, session_members

LONG = 60
UP = "echo up; sleep 600"


def tree(*roots: Path) -> dict[str, tuple[object, ...]]:
    """Every file and folder below, with what a change would change."""
    found: dict[str, tuple[object, ...]] = {}
    for root in roots:
        for path in sorted(root.rglob("*")):
            about = path.lstat()
            content = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
            found[str(path)] = (about.st_ino, about.st_mode, about.st_size, about.st_mtime, content)
    return found


def supervisor_of(sdk: LocalSDK, job: Job) -> ProcessIdentity:
    claim = JobFolder(sdk.work_dir / "jobs" / job.id).read_claim() or {}
    supervisor = ProcessIdentity.parse(claim["supervisor"])
    assert supervisor is not None
    return supervisor


def kill(process: ProcessIdentity) -> None:
    os.kill(process.pid, signal.SIGKILL)
    eventually(lambda: not process.alive)


def leader_of(sdk: LocalSDK, job: Job) -> int:
    state = JobFolder(sdk.work_dir / "jobs" / job.id).read_state() or {}
    return int(state["ranks"][0]["process"].split("|")[1])


def say_up(sdk: LocalSDK, *jobs: Job) -> None:
    for job in jobs:
        eventually(lambda job=job: "up" in sdk.get_job_logs(job.id))


@pytest.fixture
def jobs(sdk: LocalSDK, monkeypatch: pytest.MonkeyPatch) -> dict[str, Job]:
    """One job in each situation; of none is the end known to the store yet."""
    monkeypatch.setenv("TAO_LOCAL_GPUS", "1")
    running = sdk.create_job(command=UP, gpu_count=1)
    say_up(sdk, running)
    jobs = {"running": running, "pending": sdk.create_job(command="true", gpu_count=1)}
    for name in ("orphaned", "killed"):
        jobs[name] = sdk.create_job(command=UP, gpu_count=0)
    say_up(sdk, jobs["orphaned"], jobs["killed"])
    for name, command in (("complete", "true"), ("failed", "echo no; exit 3")):
        jobs[name] = sdk.create_job(command=command, gpu_count=0)
        state = JobFolder(sdk.work_dir / "jobs" / jobs[name].id).read_state
        eventually(lambda state=state: (state() or {}).get("phase") == "done")
    kill(supervisor_of(sdk, jobs["orphaned"]))
    kill(supervisor_of(sdk, jobs["killed"]))
    os.killpg(leader_of(sdk, jobs["killed"]), signal.SIGKILL)
    eventually(lambda: not session_members(leader_of(sdk, jobs["killed"])))
    waiting = JobFolder(sdk.work_dir / "jobs" / jobs["pending"].id).read_state
    eventually(lambda: "position 1" in (waiting() or {}).get("message", ""))
    return jobs


STATES = {
    "running": "Running",
    "pending": "Pending",
    "orphaned": "Running",
    "killed": "Error",
    "complete": "Complete",
    "failed": "Error",
}


def test_observe_and_evidence_change_nothing(
    sdk: LocalSDK, jobs: dict[str, Job], tmp_path: Path
) -> None:
    rows = sdk.store.jobs_by_id([job.id for job in jobs.values()])
    refs = {name: job_ref(rows[job.id]) for name, job in jobs.items()}
    before = tree(tmp_path)
    processes = {name: session_members(leader_of(sdk, jobs[name])) for name in ("orphaned",)}
    backend = LocalSDK(work_dir=sdk.work_dir).backend
    for _ in range(3):
        seen = backend.observe(list(refs.values()))
        assert {name: seen[ref.job_id].state for name, ref in refs.items()} == STATES
        assert not any(one.due for one in seen.values())
        assert set(backend.evidence(list(refs.values()))) == set(seen)
        for ref in refs.values():
            backend.result_records(ref)
            backend.replicas(ref)
    assert tree(tmp_path) == before
    assert processes == {"orphaned": session_members(leader_of(sdk, jobs["orphaned"]))}
    assert "_spawner" not in vars(backend.transport), "no process was started"


def test_a_look_at_the_store_writes_states_and_nothing_else(
    sdk: LocalSDK, jobs: dict[str, Job], tmp_path: Path
) -> None:
    before = tree(sdk.work_dir, tmp_path / "leases")
    looking = LocalSDK(state_file=tmp_path / "state.json", work_dir=sdk.work_dir, attend=False)
    for _ in range(3):
        statuses = looking.get_statuses([job.id for job in looking.list_jobs()])
        assert {name: statuses[job.id].status for name, job in jobs.items()} == STATES
    failure = looking.get_failure_analysis(jobs["failed"].id)
    assert failure is not None
    assert failure["exit_code"] == 3
    assert tree(sdk.work_dir, tmp_path / "leases") == before
    looking.close()


def test_an_unchanged_poll_reads_the_store_once(
    sdk: LocalSDK, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = sdk.create_job(command=UP, gpu_count=0)
    say_up(sdk, job)
    eventually(lambda: sdk.get_job_status(job.id).status == "Running")
    sdk.get_job_status(job.id)
    database, opened = sdk.store._database, list[str]()
    for name in ("read", "write"):
        real = getattr(database, name)
        monkeypatch.setattr(
            database,
            name,
            lambda *given, real=real, name=name, **named: (
                opened.append(name),
                real(*given, **named),
            )[1],
        )
    sdk.get_job_status(job.id)
    assert opened == ["read"]
    job.cancel()


@pytest.mark.parametrize(
    ("which", "when"), [("killed", "while the job ran"), ("pending", "before")]
)
def test_after_a_restart_of_the_machine_nothing_else_is_blamed(
    sdk: LocalSDK, jobs: dict[str, Job], which: str, when: str
) -> None:
    job = jobs[which]
    supervisor = supervisor_of(sdk, job)
    if which == "pending":
        kill(supervisor)
    machine, boot, namespace = supervisor.host.split("/")
    earlier = supervisor._replace(host=f"{machine}/{boot[::-1]}x/{namespace}")
    claim = JobFolder(sdk.work_dir / "jobs" / job.id).claim
    claim.write_text(claim.read_text().replace(str(supervisor), str(earlier)))
    status = job.refresh()
    assert status.status == "Error"
    assert status.message.startswith(f"the machine was restarted {when}")
    explained = job.explain()
    assert explained["err_class"] == "ERR_INFRA"
    assert "out-of-memory" not in str(explained)


def test_of_a_job_that_runs_on_nothing_is_read_again(
    sdk: LocalSDK, jobs: dict[str, Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Apart from the time of its state and whether its supervisor lives."""
    job = jobs["running"]
    rows = sdk.store.jobs_by_id([job.id])
    reference = job_ref(rows[job.id])
    before = sdk.backend.observe([reference])
    touched: list[str] = []
    for module, name in ((os, "open"), (os, "stat"), (os, "lstat"), (os, "scandir"), (io, "open")):
        real = getattr(module, name)
        monkeypatch.setattr(
            module,
            name,
            lambda path, *given, real=real, **named: (
                touched.append(str(path)),
                real(path, *given, **named),
            )[1],
        )
    again = sdk.backend.observe([reference])
    monkeypatch.undo()
    assert again == before
    supervisor = supervisor_of(sdk, job)
    state = JobFolder(sdk.work_dir / "jobs" / job.id).state
    assert touched == [str(state), f"/proc/{supervisor.pid}/stat"]
    kill(supervisor)
    assert "its supervisor was killed" in sdk.backend.observe([reference])[job.id].message
