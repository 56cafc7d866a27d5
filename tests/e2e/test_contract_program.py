"""A program written for the reference's names runs against ours.

Every public name of the package root, the SDK classes, image keys, the job store, the monitor,
checkpoints and run folders is used here with the reference's signature, by position and by
keyword, and gives the documented result. Where the reference's behaviour is a known defect ours
differs on purpose, and the test says so.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import sqlite3
import subprocess
import sys
import textwrap
import threading
import uuid
import venv
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import tao_sdk
from tao_sdk import (
    ArtifactCleanupSDK,
    Checkpoint,
    CredentialError,
    Job,
    JobStatus,
    JobStore,
    PythonScriptSDK,
    VirtualEnvSDK,
    checkpoints,
    models,
    platforms,
    versions,
)
from tao_sdk.action_workflow import ActionWorkflow
from tao_sdk.checkpoints import CheckpointCandidate
from tao_sdk.job_store import merge_legacy_database, resolve_sdk_state_paths
from tao_sdk.monitor import JobMonitor
from tao_sdk.platforms.local import LocalSDK
from tao_sdk.platforms.protocol import PlatformSDK

SOURCE = str(Path(tao_sdk.__file__).parents[1])
TERMINAL = {"Complete", "Error", "Canceled"}
LONG = 60


@pytest.fixture(autouse=True)
def own_surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of the user's own state, credentials or manifests."""
    for name in ("ACCESS_KEY", "AWS_ACCESS_KEY_ID", "TAO_VERSIONS_FILE", "TAO_LOCAL_ROOT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TAO_SDK_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("TAO_GPU_LEASE_DIR", str(tmp_path / "leases"))
    monkeypatch.setenv("TAO_SKILL_BANK_PATH", str(tmp_path / "bank"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)


# -- signatures

SIGNATURES: list[tuple[Callable[..., Any], Callable[..., Any]]] = [
    # The SDK classes. A `/` closes names that a caller gives by position.
    (LocalSDK, lambda poll_interval=30, epoch_milestone_interval=10, state_file=None: ...),
    (VirtualEnvSDK, lambda venv_path, work_dir=None, state_file=None: ...),
    (
        PlatformSDK.create_job,
        lambda self, image, command, gpu_count=1, env_vars=None, inputs=None, outputs=None, **kw: (
            ...
        ),
    ),
    (PlatformSDK.get_job_status, lambda self, job_id: ...),
    (PlatformSDK.get_job_logs, lambda self, job_id, tail=None: ...),
    (PlatformSDK.cancel_job, lambda self, job_id: ...),
    (PlatformSDK.get_failure_analysis, lambda self, job_id: ...),
    (PlatformSDK.get_job_results_dir, lambda self, job_id: ...),
    (PlatformSDK.get_job, lambda self, job_id: ...),
    (PlatformSDK.list_jobs, lambda self, status=None: ...),
    (PlatformSDK.get_checkpoints, lambda self, job_id: ...),
    (PlatformSDK.check_path, lambda self, path, /: ...),
    (PlatformSDK.list_path, lambda self, path, /: ...),
    (PlatformSDK.validate_artifact_retention, lambda self, **platform_kwargs: ...),
    (PlatformSDK.delete_job_artifacts, lambda self, job_id: ...),
    (PlatformSDK.get_job_replicas, lambda self, job_id: ...),
    (VirtualEnvSDK.iter_job_log_chunks, lambda self, job_id, chunk_size=262144: ...),
    (VirtualEnvSDK.list_results, lambda self, job_id: ...),
    (VirtualEnvSDK.get_results, lambda self, job_id: ...),
    (VirtualEnvSDK.read_job_result_file, lambda self, job_id, rel, /: ...),
    *(
        (
            owner.create_python_job,
            lambda self,
            script,
            specs=None,
            config_format="json",
            script_args=None,
            env_vars=None,
            inputs=None,
            outputs=None,
            upload_excludes=None,
            cwd=None,
            network_arch="",
            action="train",
            hooks=None,
            gpu_count=1,
            gpu_ids=None: ...,
        )
        for owner in (PythonScriptSDK, VirtualEnvSDK)
    ),
    (PythonScriptSDK.get_job_logs, lambda self, job_id, tail=None: ...),
    (PythonScriptSDK.iter_job_log_chunks, lambda self, job_id, chunk_size=262144: ...),
    (ArtifactCleanupSDK.validate_artifact_retention, lambda self, **platform_kwargs: ...),
    (ArtifactCleanupSDK.delete_job_artifacts, lambda self, job_id: ...),
    # Image keys.
    (versions.load_manifest, lambda path=None: ...),
    (versions.looks_like_key, lambda value: ...),
    (versions.resolve_image, lambda key, manifest=None: ...),
    (versions.resolve_wheel, lambda key, manifest=None: ...),
    (versions.resolve_container_image, lambda value, manifest=None: ...),
    # The store.
    (resolve_sdk_state_paths, lambda state_file=None: ...),
    (merge_legacy_database, lambda source, db: ...),
    (JobStore, lambda db_path=None: ...),
    *(
        (
            method,
            lambda self,
            job_id,
            network_arch,
            action,
            workspace_id,
            backend_type="",
            backend_job_id="",
            status="Pending",
            parent_job_id=None,
            image="",
            specs=None,
            results_dir="",
            local_results_dir="",
            base_checkpoint="",
            plan_id="",
            step_id=0,
            created_at=None: ...,
        )
        for method in (JobStore.create_job, JobStore.create_job_if_absent)
    ),
    (JobStore.get_job, lambda self, id, /: ...),
    (JobStore.update_job_status, lambda self, id, /, status, last_epoch=None: ...),
    (JobStore.compare_and_set_job_status, lambda self, id, /, expected, status: ...),
    (JobStore.update_job_backend_id, lambda self, id, /, backend_job_id, status=None: ...),
    (JobStore.update_job_specs, lambda self, id, /, specs: ...),
    (
        JobStore.compare_and_set_job_specs,
        lambda self, id, /, expected, specs, *, expected_statuses=None: ...,
    ),
    (JobStore.list_jobs, lambda self, status=None, network_arch=None, action=None, limit=None: ...),
    (JobStore.get_job_by_plan_step, lambda self, plan_id, step_id: ...),
    (JobStore.add_checkpoint, lambda self, job_id, path, epoch=0, format="safetensors": ...),
    (JobStore.get_checkpoints, lambda self, id, /: ...),
    (JobStore.get_latest_checkpoint, lambda self, id, /: ...),
    (JobStore.delete_checkpoints, lambda self, id, /: ...),
    (
        JobStore.get_checkpoint_path,
        lambda self,
        job_id,
        *,
        model_name=None,
        epoch=None,
        step=None,
        action="resume",
        prefer_directory=False,
        allow_latest=False: ...,
    ),
    (JobStore.get_parent_job, lambda self, id, /: ...),
    (
        JobStore.get_parent_model_path,
        lambda self, job_id, *, epoch=None, step=None, action="resume": ...,
    ),
    (JobStore.get_parent_results_dir, lambda self, id, /: ...),
    (JobStore.resolve_spec_param, lambda self, job_id, fn: ...),
    (JobStore.import_from_state_file, lambda self, path: ...),
    (JobStore.close, lambda self: ...),
    # The monitor.
    (
        JobMonitor,
        lambda poll_interval=30,
        epoch_milestone_interval=10,
        state_file="tao_session_state.json",
        store=None: ...,
    ),
    (JobMonitor.watch, lambda self, job, hooks, handler: ...),
    (JobMonitor.unwatch, lambda self, job_id: ...),
    (JobMonitor.start, lambda self: ...),
    (JobMonitor.stop, lambda self: ...),
    # Checkpoints.
    (checkpoints.checkpoint_epoch, lambda path: ...),
    (checkpoints.checkpoint_step, lambda path: ...),
    (checkpoints.build_checkpoint_candidate, lambda path, *, is_dir=None, mtime=None: ...),
    (
        checkpoints.iter_local_checkpoint_candidates,
        lambda directory, /, *, include_dirs=True: ...,
    ),
    (
        checkpoints.select_checkpoint_path,
        lambda candidates,
        *,
        model_name=None,
        epoch=None,
        step=None,
        action="resume",
        prefer_directory=False,
        allow_latest=False: ...,
    ),
    (
        checkpoints.get_checkpoint_path,
        lambda *,
        model_name,
        experiment_dir,
        epoch=None,
        step=None,
        action="resume",
        prefer_directory=False,
        allow_latest=False: ...,
    ),
    # Run folders.
    (ActionWorkflow, lambda root_dir, run_name, timestamp: ...),
    (ActionWorkflow.from_workspace, lambda path: ...),
    (ActionWorkflow.write_metadata, lambda self, **kw: ...),
    (ActionWorkflow.write_submission, lambda self, job, specs, script_runner: ...),
    (
        ActionWorkflow.sync_status,
        lambda self, status, message="", logs="", failure_analysis=None: ...,
    ),
    (ActionWorkflow.sync_from_sdk, lambda self, sdk, job_id, tail=200: ...),
]


@pytest.mark.parametrize(
    ("ours", "reference"), SIGNATURES, ids=[ours.__qualname__ for ours, _ in SIGNATURES]
)
def test_signature(ours: Callable[..., Any], reference: Callable[..., Any]) -> None:
    """Every call of the reference's form is understood; what we add is optional."""
    offered = inspect.signature(ours).parameters
    asked = inspect.signature(reference).parameters
    positional = [p for p in offered.values() if p.kind is p.POSITIONAL_OR_KEYWORD]
    met = set()
    for place, wanted in enumerate(asked.values()):
        if wanted.kind is wanted.VAR_KEYWORD:
            assert any(p.kind is p.VAR_KEYWORD for p in offered.values())
            continue
        by_name = wanted.kind is wanted.KEYWORD_ONLY
        found = offered[wanted.name] if by_name else positional[place]
        met.add(found.name)
        if wanted.kind is wanted.POSITIONAL_OR_KEYWORD:
            assert found.name == wanted.name
        if wanted.default is not wanted.empty:
            assert found.default == wanted.default
    added = [p for name, p in offered.items() if name not in met]
    variable = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    assert all(p.default is not p.empty or p.kind in variable for p in added)


# -- 1 the package root and its models


@pytest.mark.parametrize(
    ("name", "home"),
    [
        ("Job", "tao_sdk.models"),
        ("JobStatus", "tao_sdk.models"),
        ("Checkpoint", "tao_sdk.models"),
        ("CredentialError", "tao_sdk.models"),
        ("JobStore", "tao_sdk.job_store"),
        ("ArtifactCleanupSDK", "tao_sdk.platforms.protocol"),
        ("PythonScriptSDK", "tao_sdk.platforms.protocol"),
        ("VirtualEnvSDK", "tao_sdk.platforms.virtualenv"),
        ("PlatformSDK", "tao_sdk.platforms.protocol"),
    ],
)
def test_names_of_the_package_root(name: str, home: str) -> None:
    module = __import__(home, fromlist=[name])
    assert getattr(tao_sdk, name) is getattr(module, name)
    assert name in tao_sdk.__all__


@pytest.mark.parametrize("name", ["ArtifactCleanupSDK", "PlatformSDK", "PythonScriptSDK"])
def test_names_of_the_platforms_package(name: str) -> None:
    assert name in platforms.__all__
    assert getattr(platforms, name) is getattr(tao_sdk, name)


@pytest.mark.parametrize("name", ["ExecutionHandler", "BaseHandler", "get_handler_class"])
def test_handlers_are_not_offered(name: str) -> None:
    """On purpose: behind our SDK classes is a `Backend`, which is another seam."""
    assert name not in platforms.__all__
    for module in (platforms, platforms.protocol, platforms.base, platforms.registry):
        assert not hasattr(module, name)


MODELS: list[tuple[type, str, dict[str, Any]]] = [
    (
        Job,
        "id network_arch action workspace_id",
        {
            "backend_type": "",
            "status": "Pending",
            "created_at": None,
            "backend_job_id": "",
            "parent_job_id": "",
            "results_dir": "",
            "local_results_dir": "",
            "base_checkpoint": "",
        },
    ),
    (JobStatus, "job_id status", {"message": "", "updated_at": None}),
    (Checkpoint, "path epoch", {"metric_name": "", "metric_value": 0.0}),
    (
        CheckpointCandidate,
        "path",
        {
            "epoch": None,
            "step": None,
            "is_dir": False,
            "is_latest": False,
            "is_best": False,
            "mtime": 0.0,
        },
    ),
]


@pytest.mark.parametrize(("model", "required", "defaults"), MODELS)
def test_model_fields(model: type, required: str, defaults: dict[str, Any]) -> None:
    names = required.split()
    assert [field.name for field in dataclasses.fields(model)] == [*names, *defaults]
    made = dataclasses.asdict(model(*names))
    for name, default in defaults.items():
        if name in ("created_at", "updated_at"):
            assert datetime.fromisoformat(made[name]).utcoffset() == timedelta(0)
        else:
            assert made[name] == default
    assert model(**{name: name for name in names}).__dict__.keys() == made.keys()


def test_job_as_a_dict() -> None:
    job = Job("j1", "dino", "train", "local")
    fields = dataclasses.asdict(job)
    assert job.to_dict() == {"job_id": fields.pop("id"), **fields}


def test_credential_error_is_an_exception_of_the_models() -> None:
    assert issubclass(CredentialError, Exception)
    assert models.CredentialError is CredentialError


# -- 2 the SDK classes


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


@pytest.mark.seed("000.9", "000.18")
def test_a_job_from_start_to_end(sdk: LocalSDK, tmp_path: Path) -> None:
    script = (
        'd="$TAO_RESULTS_ROOT/$TAO_JOB_ID/train"; mkdir -p "$d"; echo x > "$d/model_epoch_001.pth"; '
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
    assert sdk.get_checkpoints(job.id) == [f"{results}/train/model_epoch_001.pth"]
    assert sdk.check_path(f"file://{results}/train") is True
    assert sdk.check_path(f"{results}/nothing") is False
    assert sdk.list_path(f"{results}/train") == ["model_epoch_001.pth"]

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


# -- 3 image keys

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

    with pytest.raises(versions.ManifestNotFoundError, match="versions.yaml") as missing:
        versions.load_manifest()
    assert isinstance(missing.value, FileNotFoundError)
    assert str(tmp_path / "bank") in str(missing.value), "what was tried is listed"


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
