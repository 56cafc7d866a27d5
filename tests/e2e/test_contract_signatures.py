"""Every public name of the reference, with its home, its parameters and its defaults.

Names of the package root and its models, the SDK classes, image keys, the job store, the monitor,
checkpoints and run folders. What they do is in test_contract_program and test_contract_state.
"""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
from collections.abc import Callable
from datetime import datetime, timedelta
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

PYTHON_JOB = (
    "self, script, specs=None, config_format='json', script_args=None, env_vars=None, inputs=None, "
    "outputs=None, upload_excludes=None, cwd=None, network_arch='', action='train', hooks=None, "
    "gpu_count=1, gpu_ids=None"
)
NEW_ROW = (
    "self, job_id, network_arch, action, workspace_id, backend_type='', backend_job_id='', "
    "status='Pending', parent_job_id=None, image='', specs=None, results_dir='', "
    "local_results_dir='', base_checkpoint='', plan_id='', step_id=0, created_at=None"
)
CHOICE = "epoch=None, step=None, action='resume', prefer_directory=False, allow_latest=False"

# What stands before a `/` has no documented name: callers give it by position.
SIGNATURES: list[tuple[Callable[..., Any], str]] = [
    (LocalSDK, "poll_interval=30, epoch_milestone_interval=10, state_file=None"),
    (VirtualEnvSDK, "venv_path, work_dir=None, state_file=None"),
    (
        PlatformSDK.create_job,
        "self, image, command, gpu_count=1, env_vars=None, inputs=None, outputs=None, **kwargs",
    ),
    (PlatformSDK.get_job_status, "self, job_id"),
    (PlatformSDK.get_job_logs, "self, job_id, tail=None"),
    (PlatformSDK.cancel_job, "self, job_id"),
    (PlatformSDK.get_failure_analysis, "self, job_id"),
    (PlatformSDK.get_job_results_dir, "self, job_id"),
    (PlatformSDK.get_job, "self, job_id"),
    (PlatformSDK.list_jobs, "self, status=None"),
    (PlatformSDK.get_checkpoints, "self, job_id"),
    (PlatformSDK.check_path, "self, path, /"),
    (PlatformSDK.list_path, "self, path, /"),
    (PlatformSDK.validate_artifact_retention, "self, **platform_kwargs"),
    (PlatformSDK.delete_job_artifacts, "self, job_id"),
    (PlatformSDK.get_job_replicas, "self, job_id"),
    (VirtualEnvSDK.create_python_job, PYTHON_JOB),
    (VirtualEnvSDK.iter_job_log_chunks, "self, job_id, chunk_size=262144"),
    (VirtualEnvSDK.list_results, "self, job_id"),
    (VirtualEnvSDK.get_results, "self, job_id"),
    (VirtualEnvSDK.read_job_result_file, "self, job_id, rel, /"),
    (PythonScriptSDK.create_python_job, PYTHON_JOB),
    (PythonScriptSDK.get_job_status, "self, job_id"),
    (PythonScriptSDK.get_job_logs, "self, job_id, tail=None"),
    (PythonScriptSDK.iter_job_log_chunks, "self, job_id, chunk_size=262144"),
    (PythonScriptSDK.cancel_job, "self, job_id"),
    (PythonScriptSDK.get_failure_analysis, "self, job_id"),
    (ArtifactCleanupSDK.validate_artifact_retention, "self, **platform_kwargs"),
    (ArtifactCleanupSDK.delete_job_artifacts, "self, job_id"),
    (versions.load_manifest, "path=None"),
    (versions.looks_like_key, "value"),
    (versions.resolve_image, "key, manifest=None"),
    (versions.resolve_wheel, "key, manifest=None"),
    (versions.resolve_container_image, "value, manifest=None"),
    (resolve_sdk_state_paths, "state_file=None"),
    (merge_legacy_database, "source, db"),
    (JobStore, "db_path=None"),
    (JobStore.create_job, NEW_ROW),
    (JobStore.create_job_if_absent, NEW_ROW),
    (JobStore.get_job, "self, id, /"),
    (JobStore.update_job_status, "self, id, /, status, last_epoch=None"),
    (JobStore.compare_and_set_job_status, "self, id, /, expected, status"),
    (JobStore.update_job_backend_id, "self, id, /, backend_job_id, status=None"),
    (JobStore.update_job_specs, "self, id, /, specs"),
    (
        JobStore.compare_and_set_job_specs,
        "self, id, /, expected, specs, *, expected_statuses=None",
    ),
    (JobStore.list_jobs, "self, status=None, network_arch=None, action=None, limit=None"),
    (JobStore.get_job_by_plan_step, "self, plan_id, step_id"),
    (JobStore.add_checkpoint, "self, job_id, path, epoch=0, format='safetensors'"),
    (JobStore.get_checkpoints, "self, id, /"),
    (JobStore.get_latest_checkpoint, "self, id, /"),
    (JobStore.delete_checkpoints, "self, id, /"),
    (JobStore.get_checkpoint_path, f"self, job_id, *, model_name=None, {CHOICE}"),
    (JobStore.get_parent_job, "self, id, /"),
    (JobStore.get_parent_model_path, "self, job_id, *, epoch=None, step=None, action='resume'"),
    (JobStore.get_parent_results_dir, "self, id, /"),
    (JobStore.resolve_spec_param, "self, job_id, fn"),
    (JobStore.import_from_state_file, "self, path"),
    (JobStore.close, "self"),
    (
        JobMonitor,
        "poll_interval=30, epoch_milestone_interval=10, state_file='tao_session_state.json', "
        "store=None",
    ),
    (JobMonitor.watch, "self, job, hooks, handler"),
    (JobMonitor.unwatch, "self, job_id"),
    (JobMonitor.start, "self"),
    (JobMonitor.stop, "self"),
    (checkpoints.checkpoint_epoch, "path"),
    (checkpoints.checkpoint_step, "path"),
    (checkpoints.build_checkpoint_candidate, "path, *, is_dir=None, mtime=None"),
    (checkpoints.iter_local_checkpoint_candidates, "dir, /, *, include_dirs=True"),
    (checkpoints.select_checkpoint_path, f"candidates, *, model_name=None, {CHOICE}"),
    (checkpoints.get_checkpoint_path, f"*, model_name, experiment_dir, {CHOICE}"),
    (ActionWorkflow, "root_dir, run_name, timestamp"),
    (ActionWorkflow.from_workspace, "path"),
    (ActionWorkflow.write_metadata, "self, **metadata"),
    (ActionWorkflow.write_submission, "self, job, specs, script_runner"),
    (ActionWorkflow.sync_status, "self, status, message='', logs='', failure_analysis=None"),
    (ActionWorkflow.sync_from_sdk, "self, sdk, job_id, tail=200"),
]

REQUIRED = inspect.Parameter.empty
VARIABLE = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)


def parameters(signature: str) -> ast.arguments:
    [function] = ast.parse(f"def reference({signature}): ...").body
    assert isinstance(function, ast.FunctionDef)
    return function.args


def defaults_of(nodes: list[Any], length: int) -> list[Any]:
    values = [REQUIRED if node is None else ast.literal_eval(node) for node in nodes]
    return [REQUIRED] * (length - len(values)) + values


@pytest.mark.parametrize(
    ("ours", "reference"), SIGNATURES, ids=[ours.__qualname__ for ours, _ in SIGNATURES]
)
def test_signature(ours: Callable[..., Any], reference: str) -> None:
    """Every call of the reference's form is understood; what we add is optional."""
    wanted = parameters(reference)
    offered = inspect.signature(ours).parameters
    by_place = [p for p in offered.values() if p.kind is p.POSITIONAL_OR_KEYWORD]
    met = []

    names = [None] * len(wanted.posonlyargs) + [argument.arg for argument in wanted.args]
    assert len(by_place) >= len(names)
    for found, name, default in zip(
        by_place, names, defaults_of(wanted.defaults, len(names)), strict=False
    ):
        assert name in (None, found.name)
        assert default in (REQUIRED, found.default)
        met.append(found.name)
    for argument, default in zip(
        wanted.kwonlyargs, defaults_of(wanted.kw_defaults, len(wanted.kwonlyargs)), strict=True
    ):
        assert default in (REQUIRED, offered[argument.arg].default)
        met.append(argument.arg)
    if wanted.kwarg:
        assert any(p.kind is p.VAR_KEYWORD for p in offered.values())
    added = [p for name, p in offered.items() if name not in met]
    assert all(p.default is not REQUIRED or p.kind in VARIABLE for p in added)


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
    assert getattr(tao_sdk, name) is getattr(importlib.import_module(home), name)
    assert name in tao_sdk.__all__


@pytest.mark.parametrize("name", ["ArtifactCleanupSDK", "PlatformSDK", "PythonScriptSDK"])
def test_names_of_the_platforms_package(name: str) -> None:
    assert name in platforms.__all__
    assert getattr(platforms, name) is getattr(tao_sdk, name)


@pytest.mark.parametrize("name", ["ExecutionHandler", "BaseHandler", "get_handler_class"])
def test_handlers_are_not_offered(name: str) -> None:
    """On purpose: behind our SDK classes is a `Backend`, which is another seam."""
    assert name not in platforms.__all__
    for home in ("", ".protocol", ".sdk", ".registry"):
        assert not hasattr(importlib.import_module(f"tao_sdk.platforms{home}"), name)


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
