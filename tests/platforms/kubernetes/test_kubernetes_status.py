"""What is true about a Job, from what a cluster tells about it, its pods and their events."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

import pytest
from kubernetes_objects import (
    NAME,
    UNSCHEDULABLE,
    condition,
    job,
    pod,
    terminated,
    waiting,
    warning,
)

from tao_sdk.failures import explain
from tao_sdk.platforms.kubernetes import evidence
from tao_sdk.platforms.kubernetes import status as job_status
from tao_sdk.platforms.kubernetes.pods import issue_of
from tao_sdk.platforms.kubernetes.status import replica_of, replica_to_come

STARTED = {"startTime": "2026-04-20T09:00:01Z"}
ACTIVE = {**STARTED, "active": 1, "ready": 0}
LATER = datetime(2026, 4, 20, 9, 30, tzinfo=timezone.utc)


def state_of(*args: Any, **kwargs: Any) -> tuple[str, str]:
    seen = job_status.interpret(*args, **kwargs)
    assert seen.state is not None
    return seen.state.value, seen.message


@pytest.mark.seed("003.5")
@pytest.mark.parametrize(
    ("pending", "told"),
    [
        (pod(conditions=[UNSCHEDULABLE]), "0/3 nodes are available: 3 Insufficient"),
        (pod(state=waiting("ImagePullBackOff", 'Back-off pulling image "x"')), "cannot be pulled"),
        (pod(state=waiting("ErrImagePull", "not found")), "cannot be pulled"),
        (
            pod(state=waiting("CreateContainerConfigError", 'secret "x" not found')),
            'secret "x" not found',
        ),
        (pod(node="n1", state=waiting("ContainerCreating")), "is being created"),
    ],
)
def test_a_pod_that_waits_is_pending_with_the_reason(pending: Any, told: str) -> None:
    """Lesson W9: an active Job whose pod waits is not Running."""
    status, message = state_of(job(status=ACTIVE), [pending])
    assert status == "Pending"
    assert told in message


def test_running() -> None:
    assert state_of(job(status={**STARTED, "active": 1, "ready": 1})) == ("Running", "")
    # Its pod runs, and the Job has not counted it as ready yet.
    assert state_of(job(status=ACTIVE), [])[0] == "Running"
    assert not job_status.needs_pods(job(status={**STARTED, "active": 1, "ready": 1}))
    assert job_status.needs_pods(job(status=ACTIVE))


def test_some_of_several_wait() -> None:
    status = {**STARTED, "active": 4, "ready": 2}
    pods = [
        pod(f"{NAME}-2-abcde", rank=2, conditions=[UNSCHEDULABLE]),
        pod(f"{NAME}-1-abcde", rank=1, node="n1", state=waiting("ContainerCreating")),
    ]
    seen = state_of(job(spec={"completions": 4}, status=status), pods)
    assert seen[0] == "Pending"
    assert seen[1].startswith("2 of 4 pods wait; rank 2: no node can take it now")


@pytest.mark.parametrize(
    "message",
    [
        'pods "x" is forbidden: exceeded quota: gpus, requested: requests.nvidia.com/gpu=8',
        'pods "x" is forbidden: violates PodSecurity "restricted:latest": allowPrivilege',
    ],
)
def test_pods_that_are_refused(message: str) -> None:
    """Quotas and policies refuse pods, not Jobs: only an event tells."""
    refused = job(status={})
    assert job_status.needs_events(refused, [], LATER)
    events = {"job-uid": [warning("job-uid", "FailedCreate", message)]}
    status, told = state_of(refused, [], events)
    assert status == "Pending"
    assert message in told
    [found] = [replica_to_come(refused, events)]
    issue = found["status"]["readiness_issue"]
    assert (issue["reason"], issue["message"]) == ("FailedCreate", message)


def test_a_new_job_needs_no_explanation() -> None:
    just_now = datetime(2026, 4, 20, 9, 0, 1, tzinfo=timezone.utc)
    assert not job_status.needs_events(job(), [], just_now)
    assert state_of(job()) == ("Pending", "its pod is being created")


def test_a_volume_that_does_not_come() -> None:
    stuck = pod(node="n1", state=waiting("ContainerCreating"))
    assert job_status.needs_events(job(status=ACTIVE), [stuck], LATER)
    events = {
        stuck["metadata"]["uid"]: [warning("", "FailedMount", "MountVolume.SetUp failed: no route")]
    }
    status, told = state_of(job(status=ACTIVE), [stuck], events)
    assert status == "Pending"
    assert "a volume cannot be mounted (FailedMount): MountVolume.SetUp failed" in told


def test_suspended() -> None:
    status, message = state_of(job(spec={"suspend": True}))
    assert status == "Paused"
    assert f"kubectl patch job {NAME} -n lab" in message


def test_in_a_queue() -> None:
    labels = {"kueue.x-k8s.io/queue-name": "team-a"}
    queued = job(spec={"suspend": True}, labels=labels)
    told = "couldn't assign flavors: insufficient unused quota for nvidia.com/gpu"
    assert state_of(queued, queued=told) == ("Pending", f"waits in queue team-a: {told}")


def test_half_made() -> None:
    half = job(spec={"suspend": True}, labels={"tao-sdk-submitting": "true"})
    assert state_of(half) == ("Pending", "being submitted")


def test_complete_only_when_a_condition_says_so() -> None:
    done = {**STARTED, "succeeded": 1, "completionTime": "2026-04-20T09:09:00Z"}
    assert state_of(job(status=done))[0] == "Running"
    criteria = {**done, "conditions": [condition("SuccessCriteriaMet", "CompletionsReached")]}
    assert state_of(job(status=criteria))[0] == "Running"
    seen = job_status.interpret(job(status={**done, "conditions": [condition("Complete")]}))
    assert (seen.state, seen.exit_code) == ("Complete", 0)
    assert (seen.started_at, seen.ended_at) == ("2026-04-20T09:00:01Z", "2026-04-20T09:09:00Z")


def test_failing_is_not_failed_while_its_pods_are_there() -> None:
    """A node that was lost confirms no end; whether its pod still writes, nobody knows."""
    target = condition("FailureTarget", "BackoffLimitExceeded", "too often")
    failing = job(status={**STARTED, "terminating": 1, "failed": 1, "conditions": [target]})
    assert state_of(failing) == (
        "Running",
        "failing (BackoffLimitExceeded: too often): its pods are being ended",
    )


def failed(reason: str = "BackoffLimitExceeded", message: str = "too often", **spec: Any) -> Any:
    told = [condition("FailureTarget", reason), condition("Failed", reason, message)]
    return job(spec=spec, status={**STARTED, "failed": 1, "conditions": told})


@pytest.mark.seed("003.5")
@pytest.mark.parametrize(
    ("end", "code", "err_class"),
    [
        (terminated(3), 3, "ERR_PROGRAM"),
        (terminated(137, "OOMKilled"), 137, "ERR_OOM"),
        # A child was killed for memory, and its parent ended as it liked.
        (terminated(3, "OOMKilled"), 3, "ERR_OOM"),
        (terminated(137), 137, "ERR_OOM"),
        (terminated(128, "StartError"), 128, "ERR_IMAGE"),
    ],
)
def test_failures_are_told_and_explained(end: Any, code: int, err_class: str) -> None:
    ended = pod(phase="Failed", node="n1", state=end)
    seen = job_status.interpret(failed(), [ended])
    assert (seen.state, seen.exit_code) == ("Error", code)
    assert f"ended with exit code {code}" in seen.message
    found = explain(evidence.conclude([ended], 1, evidence.condition_text(failed())))
    assert (found["exit_code"], found["err_class"]) == (code, err_class)


@pytest.mark.parametrize(
    ("ended", "err_class"),
    [
        (
            pod(
                phase="Failed",
                reason="Evicted",
                message="The node was low on resource: ephemeral-storage.",
            ),
            "ERR_INFRA",
        ),
        (
            pod(
                phase="Failed",
                state=terminated(143),
                conditions=[
                    condition("DisruptionTarget", "PreemptionByScheduler", "preempting to accom")
                ],
            ),
            "ERR_PREEMPTED",
        ),
        (
            pod(
                phase="Failed",
                state=terminated(137),
                conditions=[condition("DisruptionTarget", "DeletionByPodGC", "node not found")],
            ),
            "ERR_INFRA",
        ),
        (
            pod(
                phase="Failed",
                reason="UnexpectedAdmissionError",
                message="Pod Allocate failed due to requested number of devices unavailable",
            ),
            "ERR_INFRA",
        ),
    ],
)
def test_what_was_done_to_a_pod_is_not_the_programs_failure(ended: Any, err_class: str) -> None:
    assert explain(evidence.conclude([ended], 1, ""))["err_class"] == err_class


@pytest.mark.parametrize(
    ("stuck", "err_class"),
    [
        (pod(state=waiting("ImagePullBackOff", "Back-off pulling image")), "ERR_IMAGE"),
        (pod(state=waiting("ErrImagePull", "401 Unauthorized: unauthorized: x")), "ERR_CREDENTIAL"),
        (
            pod(state=waiting("CreateContainerConfigError", 'secret "a" not found')),
            "ERR_CREDENTIAL",
        ),
        (pod(conditions=[UNSCHEDULABLE]), "ERR_CAPACITY"),
    ],
)
def test_a_job_that_never_began_is_explained_as_well(stuck: Any, err_class: str) -> None:
    """Lesson W10: without a terminated container there was no explanation."""
    found = evidence.conclude([stuck], 1, "")
    assert explain(found)["err_class"] == err_class


def test_the_time_limit_of_the_job() -> None:
    told = failed("DeadlineExceeded", "Job was active longer than specified deadline")
    seen = job_status.interpret(told)
    assert "active longer than specified deadline" in seen.message
    found = explain(evidence.conclude([], 1, evidence.condition_text(told)))
    assert found["err_class"] == "ERR_TIMEOUT"


def test_the_first_rank_that_failed_is_named() -> None:
    """The others were stopped because of it, and their pods are gone or ended later."""
    pods = [
        pod(f"{NAME}-2-aaaaa", phase="Failed", rank=2, node="n2", state=terminated(9)),
        pod(
            f"{NAME}-0-aaaaa",
            phase="Failed",
            rank=0,
            node="n0",
            state=terminated(143, ended="2026-04-20T09:05:01Z"),
        ),
    ]
    seen = job_status.interpret(failed(completions=3), pods)
    assert seen.message == "rank 2 ended with exit code 9"
    found = explain(evidence.conclude(pods, 3, ""))
    assert (found["rank"], found["node"], found["exit_code"]) == (2, "n2", 9)
    events = {one["node_event_name"]: one["message"] for one in found["job_failure_by_node_event"]}
    assert "collateral" not in events["n2"]
    assert "collateral" in events["n0"]
    assert "collateral" in events["rank 1"]


@pytest.mark.seed("003.5")
def test_replicas_say_why_they_are_not_ready() -> None:
    """Lesson W11: unschedulable pods have no container status."""
    found = replica_of(pod(conditions=[UNSCHEDULABLE]), {})
    assert found["status"]["node"] == {"name": "", "node_group_id": ""}
    assert found["status"]["phase"] == "Pending"
    issue = found["status"]["readiness_issue"]
    assert "0/3 nodes are available" in issue["message"]
    running = pod(phase="Running", node="n1", state={"running": {"startedAt": "x"}})
    assert replica_of(running, {})["status"]["readiness_issue"] is None
    assert issue_of(running) is None
