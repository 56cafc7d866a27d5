"""`ls --watch`: how often it asks a platform."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.paced import Cluster, FakeClock, PacedSDK, add_jobs
from tao_sdk.cli.live import View, _Looker
from tao_sdk.cli.ls import Listing
from tao_sdk.cli.session import Session
from tao_sdk.errors import PlatformError
from tao_sdk.job_store import JobStore

EVERY = 2.0
MINUTE = 60.0


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    return Cluster(FakeClock(), tmp_path)


@pytest.fixture
def state_file(tmp_path: Path) -> Path:
    return tmp_path / "run.json"


@pytest.fixture
def store(state_file: Path) -> Iterator[JobStore]:
    with JobStore.for_state_file(state_file) as opened:
        add_jobs(opened, "first", "second")
        yield opened


@pytest.fixture
def sdk(cluster: Cluster, state_file: Path) -> Iterator[PacedSDK]:
    with PacedSDK(cluster, state_file) as opened:
        yield opened


def looker(sdk: PacedSDK, state_file: Path, *status: str) -> _Looker:
    """That of `tao-sdk --state run.json ls --watch`."""
    session = Session()
    session.use_state_file(state_file)
    session.place._sdks["paced"] = sdk
    return _Looker(Listing(session, 20, status, None, asks=True, open_first=True))


def watch(looking: _Looker, clock: FakeClock, until: float) -> View:
    """What the loops of `ls --watch` do; the last view."""
    while True:
        view = looking.look()
        if clock.now >= until:
            return view
        clock.sleep(EVERY)


@pytest.mark.parametrize("status", [(), ("Running",)])
def test_it_asks_as_rarely_as_a_wait(
    cluster: Cluster, sdk: PacedSDK, store: JobStore, state_file: Path, status: tuple[str, ...]
) -> None:
    clock = cluster.clock
    begun = clock.now
    cluster.ends = {"first": begun + 10 * MINUTE, "second": begun + 30 * MINUTE}
    view = watch(looker(sdk, state_file, *status), clock, begun + 32 * MINUTE)
    assert [job.status for job in view.jobs] == ([] if status else ["Complete"] * 2)
    watched = len(cluster.asked)

    cluster.asked.clear()
    clock.now = begun
    add_jobs(store, "third", "fourth")
    cluster.ends = {"third": begun + 10 * MINUTE, "fourth": begun + 30 * MINUTE}
    sdk.wait_all(["third", "fourth"])
    # The loop looks every two seconds: it may be late by one such step, never early.
    assert watched <= len(cluster.asked) < 30 + 20


def test_a_new_job_is_asked_about_at_once(
    cluster: Cluster, sdk: PacedSDK, store: JobStore, state_file: Path
) -> None:
    clock, looking = cluster.clock, looker(sdk, state_file)
    watch(looking, clock, clock.now + 10 * MINUTE)
    add_jobs(store, "third")
    before = len(cluster.asked)
    looking.look()
    assert len(cluster.asked) == before + 1


def test_fewer_jobs_are_no_reason_to_ask(
    cluster: Cluster, sdk: PacedSDK, store: JobStore, state_file: Path
) -> None:
    """Another process saw the end."""
    clock, looking = cluster.clock, looker(sdk, state_file)
    watch(looking, clock, clock.now + 10 * MINUTE)
    store.update_job_status("first", "Complete")
    before = len(cluster.asked)
    view = looking.look()
    assert {job.job_id: job.status for job in view.jobs} == {
        "first": "Complete",
        "second": "Running",
    }
    assert len(cluster.asked) == before


def test_a_complaint_stays_until_the_platform_is_asked_again(
    cluster: Cluster,
    sdk: PacedSDK,
    store: JobStore,
    state_file: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = 0

    def refuse(_: object) -> None:
        nonlocal asked
        asked += 1
        raise PlatformError("the login host says no")

    monkeypatch.setattr(sdk.backend, "observe", refuse)
    clock, looking = cluster.clock, looker(sdk, state_file)
    until = clock.now + MINUTE
    while clock.now < until:
        assert looking.look().complaints == (
            "the login host says no (jobs of paced are shown as last known)",
        )
        clock.sleep(EVERY)
    assert asked < 8
