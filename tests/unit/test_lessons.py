"""Each known defect of the reference in store, monitor, secrets, run folders and names: the test
that proves ours right, or the work that it waits for.

The table is checked: a named test must exist and say which lesson it proves, and nothing may wait
for work that is done. Lessons without a better home are proved at the end of this file.
"""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

import tao_sdk
from tao_sdk import Job, JobMonitor, JobStore, LocalSDK, VirtualEnvSDK
from tao_sdk.errors import CredentialError, UnknownParentError
from tao_sdk.failures import Evidence, ReplicaEvidence, explain
from tao_sdk.platforms import registry
from tao_sdk.watcher import Watcher

REPOSITORY = Path(__file__).resolve().parents[2]
HERE = "tests/unit/test_lessons.py"
KUBERNETES = "tests/platforms/kubernetes"
BREV = "tests/platforms/brev"


@dataclass(frozen=True)
class Lesson:
    """A defect of the reference, in a few words, and how we know that ours has it not."""

    defect: str
    proofs: tuple[str, ...] = ()


STORE = "tests/unit/test_job_store.py"
FOLDERS = "tests/unit/test_action_workflow.py"
MONITOR = "tests/unit/test_monitor.py"

LESSONS = {
    "D1": Lesson(
        "writers fail with 'database is locked'",
        (
            "tests/unit/test_store_concurrency.py::test_no_write_is_lost_among_many_processes",
            "tests/unit/test_store_concurrency.py::test_no_write_is_lost_among_32_processes",
        ),
    ),
    "D2": Lesson(
        "the newest jobs cost a scan and a sort of all",
        ("tests/unit/test_job_store_queries.py::test_an_index_answers_and_nothing_is_sorted",),
    ),
    "D3": Lesson(
        "create_job turns an ended job back",
        (f"{STORE}::TestCreating::test_a_job_that_has_ended_is_never_turned_back",),
    ),
    "D4": Lesson(
        "no pruning, no schema version, any status, any id, limit=0 means all",
        (
            "tests/unit/test_job_store_retention.py::TestDeleting"
            "::test_a_job_goes_with_all_that_belongs_to_it",
            "tests/unit/test_store_files.py::test_an_older_store_is_migrated",
            f"{STORE}::TestCreating::test_only_the_seven_states",
            f"{STORE}::TestCreating::test_bad_ids_are_refused",
            "tests/unit/test_job_store_queries.py::TestListing::test_filters",
        ),
    ),
    "D5": Lesson(
        "an SDK lists the jobs of every platform",
        (
            "tests/unit/test_job_store_queries.py::TestListing::test_filters",
            f"{HERE}::test_each_platform_lists_its_own_jobs",
        ),
    ),
    "D6": Lesson(
        "an explicit state file is readable by everybody",
        ("tests/unit/test_store_paths.py::test_every_file_is_private_with_an_explicit_path",),
    ),
    "D7": Lesson(
        "WAL on a network home",
        ("tests/unit/test_store_files.py::TestModes::test_local_disk_means_wal",),
    ),
    "D8": Lesson(
        "specs are compared as text",
        (f"{STORE}::TestChanging::test_specs_are_compared_by_value",),
    ),
    "D9": Lesson(
        "one slow call per job, one hang stalls all, every poll rewrites the row",
        (
            f"{MONITOR}::test_all_jobs_in_one_poll",
            f"{MONITOR}::test_a_hanging_platform_delays_no_other",
            "tests/unit/test_job_store_updates.py::TestUnchangedPolls::test_they_write_nothing",
        ),
    ),
    "D10": Lesson(
        "the last process to write the state file wins",
        (f"{MONITOR}::test_state_file_is_the_stores_truth",),
    ),
    "D11": Lesson(
        "a finished job stays in active_jobs",
        (f"{MONITOR}::test_state_file_is_the_stores_truth",),
    ),
    "D12": Lesson(
        "only jobs with hooks are watched, and only by the process that started them",
        (f"{HERE}::test_jobs_without_hooks_are_watched_by_another_process",),
    ),
    "D13": Lesson(
        "an unknown parent is a bare IntegrityError",
        (
            f"{STORE}::TestCreating::test_an_unknown_parent_is_named",
            f"{HERE}::test_watching_a_job_with_an_unknown_parent",
        ),
    ),
    "E1": Lesson(
        "the whole spec is on the command line",
        (
            "tests/unit/test_request.py::test_known_secrets_of_the_environment_are_refused",
            "tests/runner/test_entrypoint_secrets.py"
            "::test_secrets_are_seen_by_the_job_and_by_nobody_else",
        ),
    ),
    "E6": Lesson(
        "run folders hold secrets and the whole packed command, readable by everybody",
        (
            f"{FOLDERS}::TestPrivacy::test_only_the_owner_can_look",
            f"{FOLDERS}::TestPrivacy::test_no_secret_is_stored_anywhere",
            f"{FOLDERS}::TestPrivacy::test_a_long_command_is_kept_as_a_digest",
        ),
    ),
    "F1": Lesson(
        "a second job drives the first out of its run folder",
        (
            f"{FOLDERS}::TestManyJobs::test_a_chain_and_a_sweep_in_one_folder",
            f"{FOLDERS}::TestManyJobs::test_processes_do_not_lose_each_others_jobs",
        ),
    ),
    "F2": Lesson(
        "a moment of Unknown empties the active jobs",
        (f"{FOLDERS}::TestOneJob::test_only_an_end_empties_the_active_jobs",),
    ),
    "F3": Lesson(
        "a torn status.json loses the job for good",
        (
            f"{FOLDERS}::TestDamage::test_a_torn_status_is_rebuilt_from_the_log",
            f"{FOLDERS}::TestDamage::test_a_killed_writer_loses_nothing_that_it_reported",
        ),
    ),
    "F4": Lesson(
        "a run's name leads out of the root; sets and dates are refused",
        (
            f"{FOLDERS}::TestValues::test_what_json_lacks",
            f"{FOLDERS}::TestPlaces::test_a_name_may_not_leave_the_root",
        ),
    ),
    "F5": Lesson(
        "'ubuntu' is taken for a key, a misspelt key for an image",
        (
            "tests/unit/test_versions.py::TestResolving::test_keys_and_images",
            "tests/unit/test_versions.py::TestResolving"
            "::test_a_hyphenated_key_that_is_missing_is_not_an_image",
        ),
    ),
    "F6": Lesson(
        "the manifest is cached for ever, shared, and silently not the one that was named",
        (
            "tests/unit/test_versions.py::TestReading::test_edits_are_noticed",
            "tests/unit/test_versions.py::TestReading::test_the_answer_is_the_callers_own",
            "tests/unit/test_versions.py::TestDiscovery::test_a_set_but_missing_variable_is_an_error",
        ),
    ),
    "F7": Lesson(
        "safetensors are not found; an epoch is the largest number of the path",
        (
            "tests/unit/test_checkpoints.py::TestNames::test_every_extension_is_known",
            "tests/unit/test_checkpoints.py::TestPosition"
            "::test_the_file_name_wins_over_its_parents",
        ),
    ),
    "F8": Lesson(
        "program errors count as infrastructure and are submitted again ten times",
        (
            f"{HERE}::test_program_errors_are_not_retried",
            "tests/platforms/slurm/test_slurm_retries.py"
            "::test_programs_that_only_look_like_bad_hardware_surface_at_once",
        ),
    ),
    "F9": Lesson(
        "three shapes of explanation, or none",
        (f"{HERE}::test_every_explanation_has_the_same_shape",),
    ),
    "F10": Lesson(
        "the documented inputs= and outputs= are a TypeError",
        (
            "tests/unit/test_request.py::test_did_you_mean",
            f"{HERE}::test_inputs_and_outputs_are_keywords_everywhere",
            "tests/runner/test_entrypoint_local.py::test_inputs_come_and_outputs_are_on_the_mount",
        ),
    ),
    "F11": Lesson(
        "no TTL, no resources; a deleted Job is Pending for ever",
        (
            "tests/unit/test_observation.py::TestMissing::test_afterwards_it_ends",
            f"{KUBERNETES}/test_kubernetes_manifests.py::test_the_job_of_the_seed",
            f"{KUBERNETES}/test_kubernetes_manifests.py"
            "::test_options_end_up_where_kubernetes_looks_for_them",
            f"{KUBERNETES}/test_kubernetes_jobs.py::TestTruth::test_a_job_that_somebody_deleted",
        ),
    ),
    "F12": Lesson(
        "gpu_count is ignored on Brev",
        (f"{BREV}/test_brev_mishaps.py::TestContainers::test_gpus_are_given_out_one_by_one",),
    ),
    "F13": Lesson(
        "checkpoints are listed one level deep, as bare names, or not at all",
        (
            f"{HERE}::test_checkpoints_are_whole_paths_from_any_depth",
            "tests/unit/test_checkpoints.py"
            "::test_checkpoints_of_a_store_are_found_at_any_depth_with_their_whole_address",
            "tests/platforms/slurm/test_slurm_jobs.py::TestPaths::test_checkpoints_are_found_there",
        ),
    ),
    "F14": Lesson(
        "credentials are demanded when an SDK is made, and never checked when needed",
        (
            f"{HERE}::test_credentials_are_asked_for_when_they_are_needed",
            "tests/platforms/docker/test_docker_jobs.py::TestImages::test_refusals_of_the_registry",
            "tests/platforms/slurm/test_slurm_transport.py::TestTrust"
            "::test_missing_names_are_named",
            f"{KUBERNETES}/test_kubernetes_options.py"
            "::test_credentials_are_asked_for_when_they_are_needed",
        ),
    ),
    "F15": Lesson(
        "a job id may hold spaces, newlines and $(x)",
        (
            "tests/unit/test_models.py::test_bad_job_ids",
            f"{STORE}::TestCreating::test_bad_ids_are_refused",
        ),
    ),
}

PROOFS = [(name, proof) for name, lesson in LESSONS.items() for proof in lesson.proofs]


# -- the table itself


def test_every_lesson_is_in_the_table() -> None:
    expected = [f"D{n}" for n in range(1, 14)] + ["E1", "E6"] + [f"F{n}" for n in range(1, 16)]
    assert list(LESSONS) == expected
    assert all(lesson.proofs for lesson in LESSONS.values())


def find_test(node_id: str) -> tuple[ast.FunctionDef, str]:
    """The test function of a node id, and what is said about it: its own words, its class's."""
    file, *path = node_id.split("::")
    body = ast.parse((REPOSITORY / file).read_text(encoding="utf-8")).body
    said = ""
    for name in path:
        found = [
            node
            for node in body
            if isinstance(node, (ast.ClassDef, ast.FunctionDef)) and node.name == name
        ]
        assert found, f"{node_id}: there is no {name} in {file}"
        said += ast.get_docstring(found[0]) or ""
        body = found[0].body
    assert isinstance(found[0], ast.FunctionDef)
    return found[0], said


@pytest.mark.parametrize(("lesson", "proof"), PROOFS, ids=[f"{n}-{p}" for n, p in PROOFS])
def test_a_proof_exists_and_names_its_lesson(lesson: str, proof: str) -> None:
    function, said = find_test(proof)
    assert function.name.startswith("test_")
    assert re.search(rf"\b{lesson}\b", said), f"{proof} does not say that it proves {lesson}"


# -- lessons proved here


@pytest.fixture(autouse=True)
def own_state_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAO_SDK_STATE_DIR", str(tmp_path / "state"))


def test_each_platform_lists_its_own_jobs(tmp_path: Path) -> None:
    """Lesson D5: two platforms share a state file, not their jobs."""
    with JobStore.for_state_file(tmp_path / "s.json") as store:
        store.create_job("here", "", "", "", backend_type="local", status="Complete")
        store.create_job("there", "", "", "", backend_type="virtualenv", status="Complete")
    local = LocalSDK(state_file=tmp_path / "s.json")
    scripts = VirtualEnvSDK(state_file=tmp_path / "s.json")
    assert [job.id for job in local.list_jobs()] == ["here"]
    assert [job.id for job in scripts.list_jobs()] == ["there"]
    assert local.get_job("there") is None


SUBMIT = """
import sys
sys.path.insert(0, sys.argv[1])
from tao_sdk import LocalSDK
sdk = LocalSDK(state_file=sys.argv[2], work_dir=sys.argv[3])
print(sdk.create_job("", "true", 0).id, sdk.create_job("", "echo why; exit 4", 0).id)
"""


def test_jobs_without_hooks_are_watched_by_another_process(tmp_path: Path) -> None:
    """Lesson D12: the submitter is gone and gave no hooks; a later watcher tells all the same."""
    source = str(Path(tao_sdk.__file__).parents[1])
    words = (source, str(tmp_path / "s.json"), str(tmp_path / "jobs"))
    good, bad = subprocess.run(
        [sys.executable, "-c", SUBMIT, *words], capture_output=True, text=True, check=True
    ).stdout.split()
    complaints: list[str] = []
    Watcher(
        tmp_path / "s.json", report=lambda _: None, complain=complaints.append, poll_seconds=0.05
    ).run()
    assert complaints == []
    rows = JobStore.for_state_file(tmp_path / "s.json").jobs_by_id([good, bad])
    assert (rows[good]["status"], rows[bad]["status"]) == ("Complete", "Error")
    assert "why" in rows[bad]["failure"], "explained while the evidence was there"


def test_watching_a_job_with_an_unknown_parent(tmp_path: Path) -> None:
    """Lesson D13: `watch` names the parent that is missing."""
    sdk = LocalSDK(state_file=tmp_path / "s.json")
    monitor = JobMonitor(state_file=tmp_path / "session.json", store=sdk.store)
    with pytest.raises(UnknownParentError, match="nobody"):
        monitor.watch(Job("j", "net", "train", "w", parent_job_id="nobody"), {}, sdk)


@pytest.mark.parametrize(
    "log",
    [
        "RuntimeError: CUDA out of memory. Tried to allocate 20.00 GiB",
        "RuntimeError: CUDA error: device-side assert triggered",
        "RuntimeError: Expected all tensors to be on the same device, but found cuda:0 and cpu",
        "NCCL INFO NET/Plugin: error handling is on",
        "NCCL_ASYNC_ERROR_HANDLING is deprecated",
        "ValueError: GPU id 7 not found in config",
        "",
    ],
)
def test_program_errors_are_not_retried(log: str) -> None:
    """Lesson F8: a bug does not become infrastructure by words like CUDA, nor by saying nothing."""
    explanation = explain(Evidence(exit_code=1, log_tail=log))
    assert explanation["retriable"] is False
    assert explanation["err_class"] != "ERR_INFRA"


EVIDENCE = {
    "exit code": Evidence(exit_code=1, log_tail="Traceback"),
    "signal": Evidence(exit_code=139),
    "out of memory": Evidence(exit_code=137),
    "killed": Evidence(killed_from_outside=True),
    "never started": Evidence(never_started=True, reason="refused"),
    "vanished": Evidence(),
    "several nodes": Evidence(
        replicas=(ReplicaEvidence(0, "a", 1, "2"), ReplicaEvidence(1, "b", 9, "1"))
    ),
}


@pytest.mark.parametrize("kind", EVIDENCE)
def test_every_explanation_has_the_same_shape(kind: str) -> None:
    """Lesson F9: whatever happened, wherever it ran."""
    explanation = explain(EVIDENCE[kind])
    assert set(explanation) == {
        "err_class",
        "cause",
        "suggestion",
        "evidence",
        "exit_code",
        "node",
        "rank",
        "retriable",
        "job_failure_by_node_event",
    }
    assert re.fullmatch(r"ERR_[A-Z]+", explanation["err_class"])
    assert explanation["cause"]
    assert explanation["suggestion"]


@pytest.mark.parametrize("platform", registry.names())
def test_inputs_and_outputs_are_keywords_everywhere(platform: str) -> None:
    """Lesson F10: the documented call is understood by every SDK class."""
    parameters = inspect.signature(registry.get(platform).create_job).parameters
    assert {"inputs", "outputs"} <= set(parameters)


def test_checkpoints_are_whole_paths_from_any_depth(tmp_path: Path) -> None:
    """Lesson F13: what is listed can be handed to the next job as it is."""
    deep = tmp_path / "results" / "train" / "lightning" / "epoch_2.ckpt"
    deep.parent.mkdir(parents=True)
    deep.write_text("weights")
    sdk = LocalSDK(state_file=tmp_path / "s.json")
    sdk.store.create_job(
        "j", "net", "train", "w", "local", local_results_dir=str(tmp_path / "results")
    )
    assert sdk.get_checkpoints("j") == [str(deep)]


@pytest.mark.parametrize("platform", registry.names())
def test_credentials_are_asked_for_when_they_are_needed(
    platform: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lesson F14: making an SDK asks for nothing; the first use says what is missing."""
    for name in ("ACCESS_KEY", "AWS_ACCESS_KEY_ID", "SECRET_KEY", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name, raising=False)
    sdk = registry.get(platform)(state_file=tmp_path / "s.json")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(CredentialError, match="ACCESS_KEY"):
        sdk.check_path("s3://bucket/data")
