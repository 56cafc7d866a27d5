"""Looking changes nothing, and what it finds due is done by `advance`; waiting jobs keep order."""

from __future__ import annotations

import errno
import json
import time
import uuid
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import docker
import pytest
from common_lab import files_under
from docker_lab import DockerLab

from tao_sdk.errors import BackendUnreachableError, CapacityError
from tao_sdk.job_store import StatusUpdate
from tao_sdk.models import Job
from tao_sdk.platforms.backend import JobRef, Observation
from tao_sdk.platforms.common.job_files import OutcomeFiles
from tao_sdk.platforms.common.times import container_time, parse_time
from tao_sdk.platforms.conformance import eventually
from tao_sdk.platforms.docker import DockerSDK
from tao_sdk.platforms.docker.backend import DockerBackend
from tao_sdk.platforms.docker.client import DaemonError
from tao_sdk.platforms.docker.identity import Daemon, Identity
from tao_sdk.platforms.docker.logs import ContainerLog
from tao_sdk.platforms.docker.status import Container
from tao_sdk.platforms.gpus import discovery
from tao_sdk.platforms.gpus.discovery import Gpu
from tao_sdk.platforms.submit import job_ref
from tao_sdk.platforms.whereabouts import Whereabouts

LONG = 120


def backend_of(sdk: DockerSDK) -> DockerBackend:
    backend = sdk.backend
    assert isinstance(backend, DockerBackend)
    return backend


def reference(sdk: DockerSDK, job: Job) -> JobRef:
    row = sdk.store.get_job(job.id)
    assert row is not None
    return job_ref(row)


def observe(sdk: DockerSDK, *jobs: Job) -> list[Observation]:
    """What a poll sees, with nothing written to the store."""
    refs = [reference(sdk, job) for job in jobs]
    seen = Whereabouts(sdk.backend).check(refs, backend_of(sdk).observe(refs))
    return [seen[ref.job_id] for ref in refs]


def advance(sdk: DockerSDK, *jobs: Job) -> None:
    backend_of(sdk).advance([reference(sdk, job) for job in jobs])


def everything(lab: DockerLab) -> tuple[Any, str, dict[str, bytes]]:
    """The daemon's containers in full, its volumes, and our files."""
    ids = sorted(lab.engine.docker("ps", "-aq", "--no-trunc").split())
    containers = json.loads(lab.engine.docker("inspect", *ids)) if ids else []
    for container in containers:
        container["Mounts"].sort(key=lambda mount: mount["Destination"])
    volumes = lab.engine.docker("volume", "ls", "-q")
    # SQLite notes its readers in that one.
    files = {name: data for name, data in files_under(lab.folder) if not name.endswith("-shm")}
    return containers, volumes, files


def settled(lab: DockerLab) -> tuple[Any, str, dict[str, bytes]]:
    """The same, once the daemon has written down what has happened."""
    found = [everything(lab)]

    def is_stable() -> bool:
        found.append(everything(lab))
        return found[-1] == found[-2]

    eventually(is_stable)
    return found[-1]


def state_of(lab: DockerLab, job: Job) -> str:
    return lab.engine.docker("inspect", "-f", "{{.State.Status}}", f"tao-job-{job.id}").strip()


@pytest.mark.timeout(400)
def test_looking_changes_nothing_and_advancing_does_the_work(
    lonely: DockerLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab, sdk = lonely, lonely.sdk()
    until = "while [ ! -e /starts/{0} ]; do sleep 0.05; done; echo said; exit {1}"
    holder = sdk.create_job(**{**lab.job(until.format("holder", 0)), "gpu_count": 2})
    waiting = sdk.create_job(**{**lab.counted_job("true"), "gpu_count": 1, "when_busy": "wait"})
    plain = sdk.create_job(**lab.job("exit 3"))
    monkeypatch.setenv("DOCKER_AUTO_REMOVE", "true")
    removed = sdk.create_job(**lab.job(until.format("removed", 4)))
    jobs = (holder, waiting, plain, removed)
    eventually(lambda: state_of(lab, plain) == "exited")
    for job in (holder, removed):
        eventually(lambda job=job: state_of(lab, job) == "running")

    before = settled(lab)
    seen = observe(sdk, *jobs)
    assert [one.state.value for one in seen if one.state] == [
        "Running", "Pending", "Error", "Running",
    ]  # fmt: skip
    assert [one.due for one in seen] == [False] * 4
    assert everything(lab) == before

    (lab.starts / "removed").touch()
    (lab.starts / "holder").touch()
    for job in (holder, removed):
        lab.engine.docker("wait", f"tao-job-{job.id}")
    before = settled(lab)
    for _ in range(2):
        seen = observe(sdk, *jobs)
        assert [one.state.value for one in seen if one.state] == [
            "Complete", "Pending", "Error", "Error",
        ]  # fmt: skip
        assert [one.due for one in seen] == [True, True, False, True]
        assert [observe(sdk, job)[0].due for job in jobs] == [True, True, False, True]
    assert everything(lab) == before
    assert lab.starts_of(waiting.id) == 0

    advance(sdk, *jobs)
    eventually(lambda: observe(sdk, waiting)[0].state == "Complete", LONG)
    advance(sdk, *jobs)
    assert lab.starts_of(waiting.id) == 1
    assert [one.due for one in observe(sdk, *jobs)] == [False] * 4
    names = lab.engine.docker("ps", "-a", "--format", "{{.Names}}").split()
    assert sorted(names) == sorted(f"tao-job-{job.id}" for job in (holder, waiting, plain))
    assert observe(sdk, removed)[0].exit_code == 4
    assert sdk.get_job_logs(removed.id) == "said\n"


def test_a_small_job_does_not_overtake_a_large_one(lab: DockerLab) -> None:
    sdk = lab.sdk()
    gpu = {**lab.job("sleep 600"), "gpu_count": 1}
    first, second = sdk.create_job(**gpu), sdk.create_job(**gpu)
    wait = {
        **lab.counted_job("while [ ! -e /starts/go ]; do sleep 0.05; done"),
        "when_busy": "wait",
    }
    large = sdk.create_job(**{**wait, "gpu_count": 2})
    small = sdk.create_job(**{**wait, "gpu_count": 1})
    for job in (large, small):
        assert job.refresh().status == "Pending"
    assert first.cancel()
    eventually(lambda: not observe(sdk, first)[0].due)
    # One GPU is free, and enough for the small one, which nobody but it wants to have now.
    [seen] = observe(sdk, small)
    assert (seen.due, f"behind tao-job-{large.id}" in seen.message) == (False, True)
    advance(sdk, small, large)
    assert lab.starts_of(small.id) == 0
    # Nor does one that comes later.
    with pytest.raises(CapacityError, match=f"tao-job-{large.id}, which waits for them"):
        sdk.create_job(**gpu)
    last = sdk.create_job(**{**wait, "gpu_count": 1})
    assert second.cancel()

    # Whoever attends only the last one starts those before it as well.
    other = lab.sdk()
    eventually(lambda: other.get_job_status(last.id) and lab.starts_of(large.id), LONG)
    assert (lab.starts_of(small.id), lab.starts_of(last.id)) == (0, 0)
    (lab.starts / "go").touch()
    assert other.wait(last.id, timeout=LONG).status == "Complete"
    assert sdk.wait(small.id, timeout=LONG).status == "Complete"


def test_a_job_that_the_daemon_refuses_holds_up_nobody(lab: DockerLab) -> None:
    sdk = lab.sdk()
    holder = sdk.create_job(**{**lab.job("sleep 600"), "gpu_count": 2})
    wait = {**lab.counted_job("true"), "when_busy": "wait", "gpu_count": 2}
    bad = sdk.create_job(**wait, container_user="nobody-knows")
    good = sdk.create_job(**wait)
    assert holder.cancel()
    assert good.wait(timeout=LONG).status == "Complete"
    assert lab.starts_of(bad.id) == 0
    status = bad.wait(timeout=LONG)
    assert status.status == "Error"
    assert "nobody-knows" in status.message


def test_an_end_seen_late_is_the_inspected_one(
    lab: DockerLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The list says "About a minute ago", and later "2 weeks ago"."""
    sdk = lab.sdk()
    job = sdk.create_job(**lab.job("true"))
    lab.engine.docker("wait", f"tao-job-{job.id}")
    form = "{{.State.FinishedAt}}"
    finished = lab.engine.docker("inspect", "-f", form, f"tao-job-{job.id}").strip()
    monkeypatch.setattr("tao_sdk.platforms.docker.status.Container.ended_at", lambda *_: None)
    [seen] = observe(sdk, job)
    assert seen.ended_at[:23] == finished[:23]
    ended = datetime.fromisoformat(seen.ended_at)
    assert abs((datetime.now(timezone.utc) - ended).total_seconds()) < LONG


def test_a_cancellation_noted_by_the_version_before(lab: DockerLab) -> None:
    sdk = lab.sdk()
    job = sdk.create_job(**lab.job("exit 3"))
    lab.engine.docker("wait", f"tao-job-{job.id}")
    [folder] = {Path(sdk.store.path).parent / f"{Path(sdk.store.path).stem}.docker"}
    (folder / job.id).mkdir(parents=True)
    (folder / job.id / "canceled").touch()
    assert job.wait(timeout=LONG).status == "Canceled"
    assert (folder / job.id / "canceled").exists()


class TestWhatAdvanceFinishes:
    """Of the other jobs something stays due, and it is asked again."""

    def test_a_log_that_cannot_be_saved_stays_due_and_stops_no_other(
        self, lab: DockerLab, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("DOCKER_AUTO_REMOVE", "true")
        sdk = lab.sdk()
        jobs = [sdk.create_job(**lab.job("echo said")) for _ in range(3)]
        for job in jobs:
            lab.engine.docker("wait", f"tao-job-{job.id}")
        full, hanging, sound = jobs
        backend = backend_of(sdk)
        keep, copy = OutcomeFiles.keep, ContainerLog.copy

        def keep_unless_full(self: OutcomeFiles[Any], job_id: str, *what: Any) -> None:
            if job_id == full.id:
                raise OSError(errno.ENOSPC, "No space left on device")
            keep(self, job_id, *what)

        def copy_unless_hanging(self: ContainerLog) -> Iterator[bytes]:
            if self._container == reference(sdk, hanging).native["id"]:
                raise BackendUnreachableError("nothing came of the log for 900 s")
            return copy(self)

        refs = [reference(sdk, job) for job in jobs]
        with monkeypatch.context() as patched:
            patched.setattr(OutcomeFiles, "keep", keep_unless_full)
            patched.setattr(ContainerLog, "copy", copy_unless_hanging)
            assert backend.advance(refs) == [sound.id]
        assert sorted(backend.advance(refs)) == sorted(job.id for job in jobs)
        assert all(sdk.get_job_logs(job.id) == "said\n" for job in jobs)

    def test_a_container_that_cannot_be_removed_stays_due(
        self, lab: DockerLab, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("DOCKER_AUTO_REMOVE", "true")
        sdk = lab.sdk()
        job = sdk.create_job(**lab.job("true"))
        lab.engine.docker("wait", f"tao-job-{job.id}")

        def refuse(*_: object, **__: object) -> None:
            raise DaemonError(500, "driver failed to remove root filesystem", "DELETE")

        with monkeypatch.context() as patched:
            patched.setattr(docker.APIClient, "remove_container", refuse)
            assert backend_of(sdk).advance([reference(sdk, job)]) == []
        assert backend_of(sdk).advance([reference(sdk, job)]) == [job.id]

    def test_another_daemon_knows_nothing_of_it(
        self, lab: DockerLab, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        sdk = lab.sdk()
        job = sdk.create_job(**lab.job("true"))
        assert job.wait(timeout=LONG).status == "Complete"
        lab.engine.docker("rm", f"tao-job-{job.id}")
        sdk.store.rows_after(
            [StatusUpdate(job.id, cleanup_due=True)], sdk.store.jobs_by_id([job.id])
        )
        with monkeypatch.context() as patched:
            patched.setattr(Identity, "ask", lambda _: Daemon("another"))
            sdk.clean_up()
            assert sdk.store.jobs_to_clean("docker")
        sdk.clean_up()
        assert not sdk.store.jobs_to_clean("docker")


class TestLooks:
    """One look answers for all jobs, whatever is wrong with one of them or with the machine."""

    def test_a_container_that_does_not_answer_costs_its_exact_time_only(
        self, lab: DockerLab, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        sdk = lab.sdk()
        ended = sdk.create_job(**lab.job("exit 3"))
        running = sdk.create_job(**lab.job("sleep 600"))
        lab.engine.docker("wait", f"tao-job-{ended.id}")

        def hang(*_: object) -> None:
            raise BackendUnreachableError("read timed out (30 s)")

        with monkeypatch.context() as patched:
            patched.setattr(Container, "ended_at", lambda *_: None)
            patched.setattr(docker.APIClient, "inspect_container", hang)
            seen = observe(sdk, ended, running)
        assert [one.state and one.state.value for one in seen] == ["Error", "Running"]
        assert (seen[0].exit_code, seen[0].ended_at) == (3, "")

    def test_a_list_of_gpus_that_fails_is_of_no_importance_to_those_that_run(
        self, lab: DockerLab, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        sdk = lab.sdk()
        holder = sdk.create_job(**{**lab.job("sleep 600"), "gpu_count": 2})
        waiting = sdk.create_job(**{**lab.job("true"), "gpu_count": 1, "when_busy": "wait"})
        asked = []

        def fail() -> list[Gpu]:
            asked.append(1)
            raise BackendUnreachableError("nvidia-smi failed (255)")

        other = lab.sdk()
        monkeypatch.setattr(discovery, "discover", fail)
        for _ in range(3):
            seen = observe(other, holder, waiting)
            assert [one.state and one.state.value for one in seen] == ["Running", "Pending"]
        assert len(asked) == 1

    def test_a_record_in_a_volume_is_not_read_for_a_look(
        self, lab: DockerLab, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It takes a container, which a look must not make."""
        sdk = lab.sdk()
        volume = f"tao-test-{uuid.uuid4().hex[:8]}"
        job = sdk.create_job(**{**lab.job("true"), "mounts": [f"{volume}:/results"]})
        lab.engine.docker("wait", f"tao-job-{job.id}")
        lab.engine.docker("rm", f"tao-job-{job.id}")
        monkeypatch.setattr(Identity, "ask", lambda _: Daemon("another"))
        calls = backend_of(sdk).transport.calls
        before = len(calls)
        [seen] = observe(sdk, job)
        assert "another Docker daemon" in seen.unreachable
        assert [one for one in list(calls)[before - len(calls) :] if one[:3] != "GET"] == []
        lab.engine.docker("volume", "rm", volume)


class TestCancellations:
    """Only an end after the request was caused by it."""

    def test_one_that_comes_after_the_end_changes_nothing(self, lab: DockerLab) -> None:
        sdk = lab.sdk()
        ends = [sdk.create_job(**lab.job(script)) for script in ("exit 0", "exit 3")]
        for job in ends:
            lab.engine.docker("wait", f"tao-job-{job.id}")
        # Times count to the second.
        eventually(lambda: time.time() > ended_at(lab, ends[1]) + 1)
        for job in ends:
            sdk.store.request_cancel(job.id)
            backend_of(sdk).cancel(reference(sdk, job))
        # Another process, which saw nothing of it, looks first.
        other = lab.sdk()
        assert [other.look([job.id])[job.id].status for job in ends] == ["Complete", "Error"]

    def test_a_job_that_ends_well_when_it_is_stopped_is_cancelled(self, lab: DockerLab) -> None:
        sdk = lab.sdk()
        job = sdk.create_job(
            **lab.job("trap 'exit 0' TERM; touch /starts/on; while :; do sleep 0.05; done")
        )
        eventually((lab.starts / "on").exists)
        assert job.cancel()
        assert job.refresh().status == "Canceled"


def ended_at(lab: DockerLab, job: Job) -> float:
    told = lab.engine.docker("inspect", "-f", "{{.State.FinishedAt}}", f"tao-job-{job.id}").strip()
    return parse_time(container_time(told)).timestamp()
