"""Programs that use the reference's image keys, job store, monitor, checkpoints and run folders.

The documented results, except where the reference's behaviour is a known defect; the test says so.
"""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tao_sdk import Job, JobStore, checkpoints, versions
from tao_sdk.action_workflow import ActionWorkflow
from tao_sdk.checkpoints import CheckpointCandidate
from tao_sdk.job_store import merge_legacy_database, resolve_sdk_state_paths
from tao_sdk.monitor import JobMonitor
from tao_sdk.platforms.local import LocalSDK

LONG = 60


@pytest.fixture(autouse=True)
def own_surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of the user's own state, credentials or manifests."""
    for name in ("ACCESS_KEY", "SECRET_KEY", "HF_TOKEN", "NGC_KEY", "TAO_VERSIONS_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TAO_SDK_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("TAO_GPU_LEASE_DIR", str(tmp_path / "leases"))
    monkeypatch.setenv("TAO_SKILL_BANK_PATH", str(tmp_path / "bank"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)


# -- image keys

MANIFEST = {
    "images": {"tao_toolkit": {"pyt": "nvcr.io/nvidia/tao:1", "broken": 7}},
    "wheels": {"tao_sdk_docker": "tao-sdk[docker]==1"},
}


def test_image_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert versions.resolve_image("tao_toolkit.pyt", MANIFEST) == "nvcr.io/nvidia/tao:1"
    assert versions.resolve_wheel("tao_sdk_docker", manifest=MANIFEST) == "tao-sdk[docker]==1"
    with pytest.raises(KeyError) as caught:
        versions.resolve_image("tao_toolkit.nothing", MANIFEST)
    assert isinstance(caught.value, versions.KeyNotFoundError)
    for key in ("tao_toolkit.broken", "tao_toolkit", "tao_toolkit.pyt.deeper"):
        with pytest.raises(TypeError):
            versions.resolve_image(key, MANIFEST)

    with pytest.raises(versions.ManifestNotFoundError, match="is not a file") as missing:
        versions.load_manifest(tmp_path / "versions.yaml")
    assert isinstance(missing.value, FileNotFoundError)
    assert versions.load_manifest()["images"], "without any other, the packaged bank's"


@pytest.mark.seed("000.17")
@pytest.mark.parametrize(
    ("value", "image"),
    [
        ("tao_toolkit.pyt", "nvcr.io/nvidia/tao:1"),
        ("nvcr.io/nvidia/tao:2", "nvcr.io/nvidia/tao:2"),
        ("registry/name", "registry/name"),
        ("ubuntu", "ubuntu"),  # the reference takes it for a key and raises
    ],
)
def test_images_and_keys(value: str, image: str) -> None:
    assert versions.resolve_container_image(value, MANIFEST) == image


@pytest.mark.parametrize(
    ("value", "is_key"),
    [("tao_toolkit.pyt", True), ("", False), (None, False), (3, False), ("a/b", False)],
)
def test_what_looks_like_a_key(value: object, is_key: bool) -> None:
    assert versions.looks_like_key(value) is is_key
    assert versions.looks_like_key("image:tag") is False


def test_where_the_manifest_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def manifest(path: Path) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"images: {{here: '{path}'}}")
        return path

    places = [tmp_path / "bank" / "versions.yaml", tmp_path / "versions.yaml", tmp_path / "v.yaml"]
    for place in places:  # from the last in the order to the first
        manifest(place)
        if place.name == "v.yaml":
            monkeypatch.setenv("TAO_VERSIONS_FILE", str(place))
        assert versions.resolve_image("here") == str(place)
    explicit = manifest(tmp_path / "explicit.yaml")
    assert versions.load_manifest(str(explicit)) == {"images": {"here": str(explicit)}}
    explicit.write_text("")
    assert versions.load_manifest(path=str(explicit)) == {}
    explicit.write_text("- a list")
    with pytest.raises(ValueError, match="mapping"):
        versions.load_manifest(str(explicit))


# -- the job store


@pytest.fixture
def store() -> JobStore:
    return JobStore(":memory:")


def row_of(store: JobStore, job_id: str) -> dict[str, Any]:
    row = store.get_job(job_id)
    assert row is not None
    return row


def test_state_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The session file is the reference's; the database beside it is our own, never its."""
    session, database = resolve_sdk_state_paths()
    assert session == str(tmp_path / "state" / "tao_session_state.json")
    assert Path(database).parent == tmp_path / "state"
    assert (tmp_path / "state").stat().st_mode & 0o777 == 0o700
    assert resolve_sdk_state_paths("runs/a.json") == ("runs/a.json", "runs/a.tao.db")
    assert not (tmp_path / "runs").exists()

    (tmp_path / "link").symlink_to(tmp_path / "state")
    (tmp_path / "file").touch()
    for bad in ("relative", str(tmp_path / "link"), str(tmp_path / "file")):
        monkeypatch.setenv("TAO_SDK_STATE_DIR", bad)
        with pytest.raises(ValueError, match="TAO_SDK_STATE_DIR"):
            resolve_sdk_state_paths(None)


def test_the_state_folder_of_another_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "state").mkdir()
    monkeypatch.setattr("os.geteuid", lambda: (tmp_path / "state").stat().st_uid + 1)
    with pytest.raises(PermissionError, match="another user"):
        resolve_sdk_state_paths()


def test_jobs(store: JobStore) -> None:
    store.create_job("a", "dino", "train", "local")
    store.create_job("a", "dino", "train", "local", "docker", "c1", image="new")
    assert store.create_job_if_absent("a", "other", "train", "local") is False
    assert store.create_job_if_absent("b", "dino", "evaluate", "local", plan_id="p", step_id=2)
    row = row_of(store, "a")
    assert (row["backend_type"], row["backend_job_id"], row["image"]) == ("docker", "c1", "new")
    assert (row["status"], row["specs"], row["step_id"]) == ("Pending", "{}", 0)
    assert store.get_job("nobody") is None
    with pytest.raises(ValueError, match="specs"):
        store.create_job("c", "dino", "train", "local", specs={"x": {1, 2}})
    assert store.get_job("c") is None, "bad specs raise before anything is written"

    assert [row["job_id"] for row in store.list_jobs()] == ["b", "a"]
    assert [row["job_id"] for row in store.list_jobs(None, "dino", "train", 1)] == ["a"]
    assert store.list_jobs(status="Running") == []
    found = store.get_job_by_plan_step("p", 2)
    assert found is not None
    assert found["job_id"] == "b"
    assert store.get_job_by_plan_step(plan_id="p", step_id=3) is None


def test_states_and_specs(store: JobStore) -> None:
    store.create_job("a", "dino", "train", "local", specs={"lr": 1})
    assert store.update_job_backend_id("a", "c1", status="Running")
    assert store.update_job_status("a", "Running", last_epoch=3)
    assert store.compare_and_set_job_status("a", ("Pending",), "Error") is False
    with pytest.raises(ValueError, match="expected"):
        store.compare_and_set_job_status("a", expected=(), status="Error")
    assert store.update_job_specs("a", {"lr": 2})
    assert store.compare_and_set_job_specs("a", {"lr": 1}, {"lr": 3}) is False
    assert store.compare_and_set_job_specs(
        "a", {"lr": 2}, {"lr": 3}, expected_statuses=("Running",)
    )
    assert json.loads(row_of(store, "a")["specs"]) == {"lr": 3}
    assert store.compare_and_set_job_status("a", ("Pending", "Running"), "Complete")
    assert store.update_job_status("a", "Error") is False, "an end is final"
    assert store.update_job_status("a", "Complete") is True
    assert store.update_job_backend_id("a", "c2", status="Running") is False
    assert row_of(store, "a")["last_epoch"] == 3


def test_checkpoints_and_parents(store: JobStore) -> None:
    store.create_job("mother", "dino", "train", "local", results_dir="/r/mother")
    store.create_job(
        "child", "dino", "evaluate", "local", parent_job_id="mother", results_dir="/r/child"
    )
    store.create_job("orphan", "dino", "train", "local", base_checkpoint="ngc://base")
    store.add_checkpoint("mother", "/r/mother/model_epoch_001.pth", 1, "pth")
    store.add_checkpoint("mother", "/r/mother/model_epoch_002.pth", epoch=2)
    assert [row["epoch"] for row in store.get_checkpoints("mother")] == [2, 1]
    latest = store.get_latest_checkpoint("mother")
    assert latest is not None
    assert (latest["path"], latest["format"]) == ("/r/mother/model_epoch_002.pth", "safetensors")
    assert store.get_checkpoint_path("mother", epoch=1) == "/r/mother/model_epoch_001.pth"
    parent = store.get_parent_job("child")
    assert parent is not None
    assert parent["job_id"] == "mother"
    assert store.get_parent_model_path("child") == "/r/mother/model_epoch_002.pth"
    assert store.get_parent_model_path("child", epoch=1) == "/r/mother/model_epoch_001.pth"
    assert store.get_parent_results_dir("child") == "/r/mother"
    assert store.get_parent_model_path("orphan") == store.get_parent_results_dir("orphan") == ""
    store.delete_checkpoints("mother")
    assert store.get_checkpoints("mother") == []
    assert store.get_latest_checkpoint("mother") is None


@pytest.mark.parametrize(
    ("name", "child", "orphan"),
    [
        ("output_dir", "/r/child", "/r/orphan"),
        ("automl_output_dir", "/r/child", "/r/orphan"),
        ("resume_model", "/r/mother/epoch_3.pth", ""),
        ("parent_model", "/r/mother/epoch_3.pth", ""),
        ("resume_model_bool", "true", "false"),
        ("parent_model_folder", "/r/mother", ""),
        ("ptm_if_no_resume_model", "", "ngc://base"),
        ("anything_else", None, None),
    ],
)
def test_spec_parameters(store: JobStore, name: str, child: str | None, orphan: str | None) -> None:
    store.create_job("mother", "dino", "train", "local", results_dir="/r/mother")
    store.create_job(
        "child", "dino", "train", "local", parent_job_id="mother", results_dir="/r/child"
    )
    store.create_job(
        "orphan", "dino", "train", "local", results_dir="/r/orphan", base_checkpoint="ngc://base"
    )
    store.add_checkpoint("mother", "/r/mother/epoch_3.pth", 3)
    assert store.resolve_spec_param("child", name) == child
    assert store.resolve_spec_param(job_id="orphan", fn=name) == orphan


def test_jobs_of_an_old_session_file(store: JobStore, tmp_path: Path) -> None:
    session = tmp_path / "session.json"
    old = Job("old", "dino", "train", "local", status="Running")
    bare = {"job_id": "bare", "network_arch": "n", "action": "a", "workspace_id": "w"}
    session.write_text(json.dumps({"active_jobs": [old.to_dict(), bare]}))
    assert store.import_from_state_file(str(session)) == 2
    assert row_of(store, "old")["status"] == "Running"
    assert row_of(store, "bare")["status"] == "Unknown"
    assert store.import_from_state_file(str(session)) == 0
    assert store.import_from_state_file(str(tmp_path / "missing.json")) == 0
    session.write_text("{torn")
    assert store.import_from_state_file(str(session)) == 0


REFERENCE_TABLES = """
    CREATE TABLE jobs (job_id TEXT PRIMARY KEY, network_arch TEXT NOT NULL, action TEXT NOT NULL,
        workspace_id TEXT NOT NULL, backend_type TEXT DEFAULT '', backend_job_id TEXT DEFAULT '',
        status TEXT DEFAULT 'Pending', parent_job_id TEXT, image TEXT DEFAULT '',
        specs TEXT DEFAULT '{}', results_dir TEXT DEFAULT '', local_results_dir TEXT DEFAULT '',
        base_checkpoint TEXT DEFAULT '', plan_id TEXT DEFAULT '', step_id INTEGER DEFAULT 0,
        last_epoch INTEGER DEFAULT 0, instance_id TEXT DEFAULT '',
        created_at TEXT, updated_at TEXT);
    CREATE TABLE checkpoints (id INTEGER PRIMARY KEY AUTOINCREMENT, job_id TEXT, path TEXT,
        epoch INTEGER DEFAULT 0, format TEXT DEFAULT 'safetensors', created_at TEXT);
    INSERT INTO jobs (job_id, network_arch, action, workspace_id, status)
        VALUES ('theirs', 'dino', 'train', 'local', 'Complete');
    INSERT INTO checkpoints (job_id, path, epoch) VALUES ('theirs', '/r/epoch_4.pth', 4);
"""


def test_jobs_of_the_references_database(tmp_path: Path) -> None:
    source, target = tmp_path / "run.db", tmp_path / "ours.db"
    with sqlite3.connect(source) as connection:
        connection.executescript(REFERENCE_TABLES)
    connection.close()
    assert merge_legacy_database(str(source), str(target)) == 1
    with JobStore(str(target)) as store:
        assert row_of(store, "theirs")["status"] == "Complete"
        assert store.get_checkpoint_path("theirs", epoch=4) == "/r/epoch_4.pth"
    beside = LocalSDK(state_file=tmp_path / "run.json")
    assert beside.store.get_job("theirs") is not None, "taken over by whoever uses its state file"


# -- the monitor


@pytest.fixture
def sdk(tmp_path: Path) -> Iterator[LocalSDK]:
    sdk = LocalSDK(state_file=tmp_path / "run.json", work_dir=tmp_path / "jobs")
    yield sdk
    for job in sdk.list_jobs():
        sdk.cancel_job(job.id)
    sdk.close()


def test_the_monitor_watches_and_calls_hooks(sdk: LocalSDK, tmp_path: Path) -> None:
    """`handler` is our SDK object; there are no handlers."""
    seen: list[tuple[Any, ...]] = []
    both = threading.Barrier(3)

    def note(kind: str) -> Any:
        def hook(job: Job, *details: int) -> None:
            seen.append((kind, job.id, *details))
            if kind in ("complete", "error"):
                both.wait(LONG)

        return hook

    hooks = {
        "on_complete": note("complete"),
        "on_error": note("error"),
        "on_epoch_milestone": note("epoch"),
    }
    good = sdk.create_job("", "for e in 1 2 3 4; do echo Epoch $e/4; done", 0)
    bad = sdk.create_job("", "exit 1", 0)
    monitors = [
        JobMonitor(0.05, 2, str(tmp_path / "session.json"), sdk.store),
        JobMonitor(
            poll_interval=0.05,
            epoch_milestone_interval=2,
            state_file=str(tmp_path / "session.json"),
            store=sdk.store,
        ),
    ]
    assert {"Complete", "Error", "Canceled"} == JobMonitor.TERMINAL_STATUSES
    for monitor, job in zip(monitors, (good, bad), strict=True):
        monitor.watch(job, hooks, sdk)
        monitor.start()
        monitor.start()
    both.wait(LONG)
    for monitor in monitors:
        monitor.stop()
    assert [entry for entry in seen if entry[1] == good.id] == [
        ("epoch", good.id, 2, 4),
        ("epoch", good.id, 4, 4),
        ("complete", good.id),
    ]
    assert [entry for entry in seen if entry[1] == bad.id] == [("error", bad.id)]


def test_what_the_monitor_remembers(sdk: LocalSDK, tmp_path: Path) -> None:
    monitor = JobMonitor(store=sdk.store)  # the default state file, in this folder
    watched = Job("mine", "dino", "train", "local", backend_type="docker", status="Running")
    monitor.watch(watched, None, sdk)
    monitor.watch(Job("over", "dino", "train", "local", status="Complete"), {}, sdk)
    assert row_of(sdk.store, "mine")["status"] == "Running", "the row is inserted if absent"
    state = json.loads((tmp_path / "tao_session_state.json").read_text())
    [entry] = state["active_jobs"]
    assert entry.items() >= watched.to_dict().items()
    assert entry.keys() - watched.to_dict().keys() == {"last_epoch", "updated_at"}
    monitor.unwatch("mine")
    monitor.stop()


# -- checkpoints


@pytest.mark.parametrize(
    ("path", "epoch", "step"),
    [
        ("/r/checkpoint_epoch_7.pth", 7, None),
        ("/r/model-epoch-12.pth", 12, None),
        ("/r/model_epoch_003.pth", 3, None),
        ("/r/model_best_5.pth", 5, None),
        ("/r/epoch_4/model.ckpt", 4, None),
        ("/r/ep-2.pth", 2, None),
        ("/r/011.pth", 11, None),
        ("/r/model_step_200.pth", None, 200),
        ("/r/iter_30.pth", None, 30),
        ("/r/iteration-31.pth", None, 31),
        ("/r/model.pth", None, None),
    ],
)
def test_positions(path: str, epoch: int | None, step: int | None) -> None:
    """Other than the reference, the part nearest to the weights decides, not the largest number."""
    assert checkpoints.checkpoint_epoch(path) == epoch
    assert checkpoints.checkpoint_step(path) == step
    candidate = checkpoints.build_checkpoint_candidate(path, is_dir=False, mtime=1.5)
    assert (candidate.epoch, candidate.step, candidate.mtime) == (epoch, step, 1.5)


def test_the_file_extensions() -> None:
    promised = {".pth", ".tlt", ".hdf5", ".pt", ".ckpt", ".engine", ".onnx", ".trt"}
    assert promised <= set(checkpoints.CHECKPOINT_FILE_EXTENSIONS)


def made(path: str, **facts: Any) -> CheckpointCandidate:
    return checkpoints.build_checkpoint_candidate(path, **{"is_dir": False, "mtime": 0.0, **facts})


SOME = [made(f"/r/model_epoch_{epoch:03}.pth") for epoch in (1, 2, 3)]
BEST = made("/r/model_best_2.pth")
FOLDER = made("/r/epoch_3", is_dir=True)
LATEST = made("/r/model_latest.pth")


@pytest.mark.parametrize(
    ("candidates", "wishes", "chosen"),
    [
        (SOME, {}, "/r/model_epoch_003.pth"),
        (SOME, {"epoch": 2}, "/r/model_epoch_002.pth"),
        (SOME, {"epoch": 4}, "/r/model_epoch_003.pth"),  # files that count from zero
        (SOME, {"epoch": 9}, None),
        (SOME, {"step": 1}, None),
        ([*SOME, BEST], {"action": "evaluate"}, "/r/model_best_2.pth"),
        ([*SOME, BEST], {"action": "resume"}, "/r/model_epoch_003.pth"),
        ([*SOME, FOLDER], {}, "/r/model_epoch_003.pth"),
        ([*SOME, FOLDER], {"prefer_directory": True}, "/r/epoch_3"),
        ([LATEST], {"epoch": 9}, None),
        ([LATEST], {"epoch": 9, "allow_latest": True}, "/r/model_latest.pth"),
        ([*SOME, made("/r/checkpoints/epoch_1.pth")], {}, "/r/checkpoints/epoch_1.pth"),
        (
            [made("/r/teacher_epoch_5.pth"), made("/r/model_epoch_4.pth")],
            {"model_name": "nvdinov2"},
            "/r/model_epoch_4.pth",
        ),
        (
            [made("/r/student_epoch_4.pth"), made("/r/model_epoch_5.pth")],
            {"model_name": "nvdinov2", "action": "export"},
            "/r/student_epoch_4.pth",
        ),
        ([], {}, None),
    ],
)
def test_choosing(
    candidates: list[CheckpointCandidate], wishes: dict[str, Any], chosen: str | None
) -> None:
    assert checkpoints.select_checkpoint_path(candidates, **wishes) == chosen


def test_finding(tmp_path: Path) -> None:
    for name in ("a/epoch_1.pth", "inputs/epoch_9.pth", "ptm/epoch_9.pth", "epoch_2/part.bin"):
        path = tmp_path / "run" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")
    found = checkpoints.iter_local_checkpoint_candidates(str(tmp_path / "run"))
    names = {Path(candidate.path).relative_to(tmp_path / "run").as_posix() for candidate in found}
    assert names == {"a/epoch_1.pth", "epoch_2", "epoch_2/part.bin"}
    files = checkpoints.iter_local_checkpoint_candidates(tmp_path / "run", include_dirs=False)
    assert not any(candidate.is_dir for candidate in files)
    assert checkpoints.get_checkpoint_path(
        model_name=None, experiment_dir=str(tmp_path / "run"), epoch=1
    ) == str(tmp_path / "run" / "a" / "epoch_1.pth")


# -- run folders


def read(path: Path) -> Any:
    return json.loads(path.read_text())


@pytest.mark.seed("000.21")
def test_a_run_folder(sdk: LocalSDK, tmp_path: Path) -> None:
    workflow = ActionWorkflow(str(tmp_path / "runs"), "dino", "20260101")
    assert workflow.workspace == tmp_path / "runs" / "dino" / "20260101"
    workflow.write_metadata(model="dino", platform="local")
    assert read(workflow.metadata_path).items() >= {"model": "dino", "platform": "local"}.items()

    job = sdk.create_job("", "echo broken; exit 2", 0, network_arch="dino", action="train")
    workflow.write_submission(job, {"lr": 1}, {"command": "run", "args_template": ""})
    status = read(workflow.status_path)
    assert status["job"]["id"] == job.id
    assert status["specs"] == {"lr": 1}
    assert status["script_runner"] == {"command": "run", "args_template": ""}
    [active] = read(workflow.active_jobs_path)
    assert " ".join(sorted(active)) == (
        "action backend_job_id created_at job_id network_arch status updated_at workspace_id"
    )

    sdk.wait(job.id, timeout=LONG)
    again = ActionWorkflow.from_workspace(str(workflow.workspace))
    answer = again.sync_from_sdk(sdk, job.id, tail=50)
    assert (answer.job_id, answer.status) == (job.id, "Error")
    assert again.active_jobs_path.read_text() == "[]\n"
    assert again.logs_path.read_text() == "broken\n"
    assert read(again.failure_analysis_path)["err_class"] == "ERR_PROGRAM"
    known = read(again.status_path)
    assert known["job"]["status"] == "Error"
    assert set(known["job_status"]) == {"job_id", "status", "message", "updated_at"}
    events = [json.loads(line) for line in again.events_path.read_text().splitlines()]
    assert [(event["event"], event["job_id"]) for event in events] == [
        ("submitted", job.id),
        ("status", job.id),
    ]
    assert all(event["timestamp"] for event in events)


def test_a_run_folder_by_hand(tmp_path: Path) -> None:
    workflow = ActionWorkflow(root_dir=tmp_path, run_name="r", timestamp="t")
    workflow.write_submission(
        job=Job("j", "dino", "train", "local"), specs={}, script_runner={"command": "run"}
    )
    workflow.sync_status("Running", "epoch 1", "a log\n", None)
    assert workflow.logs_path.read_text() == "a log\n"
    workflow.sync_status(status="Complete", message="", logs="", failure_analysis=None)
    assert workflow.active_jobs_path.read_text() == "[]\n"
    text = workflow.status_path.read_text()
    assert text == json.dumps(json.loads(text), indent=2, sort_keys=True) + "\n"
    # The reference counts Unknown as an end, and loses jobs when a platform is away for a moment.
    assert {"Complete", "Error", "Canceled"} == ActionWorkflow.TERMINAL_STATUSES
