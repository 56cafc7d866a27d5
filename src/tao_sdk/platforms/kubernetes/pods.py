"""What the status of a pod says: why it waits, how it ended. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from tao_sdk.platforms.kubernetes.naming import CONTAINER, INDEX_ANNOTATION

Pod = Mapping[str, Any]

# Reasons of Kubernetes, and what they mean.
_WORDS = {
    "Unschedulable": "no node can take it now",
    "SchedulingGated": "its scheduling is held back",
    "ImagePullBackOff": "the image cannot be pulled",
    "ErrImagePull": "the image cannot be pulled",
    "ErrImageNeverPull": "the image is not on the node, and must not be pulled",
    "InvalidImageName": "the name of the image is invalid",
    "CreateContainerConfigError": "a Secret or ConfigMap that it needs does not exist",
    "CreateContainerError": "its container cannot be created",
    "RunContainerError": "its container cannot be started",
    "CrashLoopBackOff": "its container ends again and again",
    "FailedMount": "a volume cannot be mounted",
    "FailedAttachVolume": "a volume cannot be attached to the node",
    "FailedCreatePodSandBox": "the node cannot set it up",
    "FailedCreate": "its pod is refused",
}
# Every pod waits for these.
_ORDINARY = frozenset({"ContainerCreating", "PodInitializing"})
# Only the user can remove these causes.
STUCK = frozenset(_WORDS) - {"SchedulingGated"}


class Issue(NamedTuple):
    """Why a pod does not run: a reason of Kubernetes, and its message."""

    reason: str
    message: str

    def __str__(self) -> str:
        words = _WORDS.get(self.reason)
        text = f"{words} ({self.reason})" if words else self.reason
        return f"{text}: {self.message}" if self.message else text


class End(NamedTuple):
    """How a pod's container ended."""

    exit_code: int | None
    ended_at: str
    reason: str
    """Empty for "Error" and "Completed", which say no more than the exit code."""
    event: str = ""
    """A reason of Kubernetes in one word: OOMKilled, Evicted."""


def name_of(pod: Pod) -> str:
    return str(pod["metadata"]["name"])


def rank_of(pod: Pod) -> int:
    index = (pod["metadata"].get("annotations") or {}).get(INDEX_ANNOTATION, "0")
    return int(index) if index.isdigit() else 0


def node_of(pod: Pod) -> str:
    return str(pod["spec"].get("nodeName") or "")


def phase_of(pod: Pod) -> str:
    return str(_status(pod).get("phase") or "Pending")


def in_order(pods: Sequence[Pod]) -> list[Pod]:
    """By rank; pods of one rank in the order of their creation."""
    return sorted(
        pods, key=lambda pod: (rank_of(pod), pod["metadata"]["creationTimestamp"], name_of(pod))
    )


def issue_of(pod: Pod, events: Sequence[Mapping[str, Any]] = ()) -> Issue | None:
    """Why a pod does not run yet; None if nothing is wrong."""
    if phase_of(pod) not in ("Pending", "Unknown"):
        return None
    status = _status(pod)
    for condition in status.get("conditions") or ():
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            return Issue(condition.get("reason") or "Pending", condition.get("message") or "")
    for container in _containers(pod):
        waiting = (container.get("state") or {}).get("waiting") or {}
        if waiting and waiting.get("reason") not in _ORDINARY:
            return Issue(waiting.get("reason") or "Pending", waiting.get("message") or "")
    if status.get("reason"):
        return Issue(status["reason"], status.get("message") or "")
    return issue_from(events)


def issue_from(events: Sequence[Mapping[str, Any]]) -> Issue | None:
    """The latest warning among some events."""
    return latest([event for event in events if event.get("type") == "Warning"])


def latest(events: Sequence[Mapping[str, Any]]) -> Issue | None:
    """The latest event."""
    if not events:
        return None
    last = max(events, key=_when)
    return Issue(last.get("reason") or "Warning", last.get("message") or "")


def is_being_made(pod: Pod) -> bool:
    """Whether a node is setting it up, and its status reports no trouble."""
    return phase_of(pod) == "Pending" and bool(node_of(pod)) and issue_of(pod) is None


def end_of(pod: Pod) -> End:
    """How it ended, as far as its status tells."""
    status = _status(pod)
    ended = _terminated(pod)
    reasons: list[tuple[Any, Any]] = []
    if ended:
        reasons.append((_word(ended), ended.get("message")))
    reasons.append((status.get("reason"), status.get("message")))
    reasons += [
        (condition.get("reason"), condition.get("message"))
        for condition in status.get("conditions") or ()
        if condition["type"] == "DisruptionTarget" and condition["status"] == "True"
    ]
    issue = None if ended else issue_of(pod)
    if issue is not None:
        reasons.append((issue.reason, issue.message))
    code = ended.get("exitCode") if ended else None
    return End(
        exit_code=None if code is None else int(code),
        ended_at=str(ended.get("finishedAt") or "") if ended else "",
        reason="; ".join(dict.fromkeys(filter(None, (_joined(*words) for words in reasons)))),
        event=next((word for word, _ in reasons if word), ""),
    )


def started_at(pod: Pod) -> str:
    """When its container began; "" before that."""
    for container in _containers(pod):
        if container["name"] == CONTAINER:
            state = container.get("state") or {}
            running = state.get("running") or state.get("terminated") or {}
            return str(running.get("startedAt") or "")
    return ""


def created_at(pod: Pod) -> str:
    return str(pod["metadata"]["creationTimestamp"])


def has_begun(pod: Pod) -> bool:
    """Whether it has a log."""
    return bool(started_at(pod))


def has_ended(pod: Pod) -> bool:
    """Whether nothing more is written to its log."""
    if phase_of(pod) in ("Succeeded", "Failed"):
        return True
    states = {one["name"]: one.get("state") or {} for one in _containers(pod)}
    is_final = pod["spec"].get("restartPolicy") == "Never"
    return is_final and "terminated" in states.get(CONTAINER, {})


def _terminated(pod: Pod) -> Mapping[str, Any] | None:
    """The end of our container, or of another one whose failure kept ours from running."""
    ends = {
        container["name"]: (container.get("state") or {}).get("terminated")
        for container in _containers(pod)
    }
    if ours := ends.get(CONTAINER):
        return dict(ours)
    return next((dict(end) for end in ends.values() if end and end.get("exitCode")), None)


def _word(ended: Mapping[str, Any]) -> str:
    reason = str(ended.get("reason") or "")
    return "" if reason in ("Error", "Completed") else reason


def _containers(pod: Pod) -> list[Mapping[str, Any]]:
    status = _status(pod)
    return [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]


def _status(pod: Pod) -> Mapping[str, Any]:
    return pod.get("status") or {}


def _joined(reason: str | None, message: str | None) -> str:
    return ": ".join(text for text in (reason, (message or "").strip()) if text)


def _when(event: Mapping[str, Any]) -> str:
    series = event.get("series") or {}
    return str(
        series.get("lastObservedTime")
        or event.get("lastTimestamp")
        or event.get("eventTime")
        or event["metadata"].get("creationTimestamp")
        or ""
    )
