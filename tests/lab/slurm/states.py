"""Bring a job into a state that Slurm has for it, the quickest way that is real.

Each function takes a lab and the id of a job that is running (unless it says otherwise) and
returns when the controller shows the state. They use the administrator's rights.
"""

from __future__ import annotations

from collections.abc import Mapping

from lab.processes import wait_until
from lab.slurm.lab import SlurmLab

SCRIPTS: Mapping[str, str] = {"COMPLETED": "true", "FAILED": "exit 7"}
"""States that a job's own script makes: the script to submit."""
USE_TOO_MUCH_MEMORY = "head -c 300M /dev/zero | tail -c 300M >/dev/null"
"""With `--mem=20M` it ends as OUT_OF_MEMORY, where `cgroups.available()`."""


def state_of(lab: SlurmLab, job: str) -> str:
    """What the controller says; "" when it has forgotten the job."""
    return _told_by_controller(lab, job).get("JobState", "")


def _told_by_controller(lab: SlurmLab, job: str) -> dict[str, str]:
    told = lab.run_as_root("scontrol", "-o", "show", "job", job, check=False)
    return dict(word.split("=", 1) for word in told.split() if "=" in word)


def accounted_states_of(lab: SlurmLab, job: str) -> list[str]:
    """What the accounting says of every attempt, the oldest first."""
    words = ("sacct", "-D", "-X", "-n", "-P", "-j", job, "-o", "State")
    return [line.split()[0] for line in lab.run_as_root(*words).splitlines()]


def is_accounted(lab: SlurmLab, job: str) -> bool:
    """Whether the accounting has what the controller knows: the state and when the job ended."""
    told = _told_by_controller(lab, job)
    state, end = told["JobState"], told["EndTime"]
    if state in {"PENDING", "RUNNING"}:
        end = "Unknown"  # the controller tells when the job will have to end
    words = ("sacct", "-X", "-n", "-P", "-j", job, "-o", "State,End")
    return lab.run_as_root(*words).splitlines() == [f"{state}|{end}"]


def wait_for_state(lab: SlurmLab, job: str, *states: str, seconds: float = 60) -> None:
    wait_until(
        lambda: state_of(lab, job) in states,
        f"job {job} does not get {' or '.join(states)}",
        seconds,
    )


def cancel(lab: SlurmLab, job: str) -> None:
    """CANCELLED; the job may be waiting as well."""
    lab.run_as_root("scancel", job)
    wait_for_state(lab, job, "CANCELLED")


def suspend(lab: SlurmLab, job: str) -> None:
    """SUSPENDED."""
    lab.run_as_root("scontrol", "suspend", job)
    wait_for_state(lab, job, "SUSPENDED")


def unsuspend(lab: SlurmLab, job: str) -> None:
    """RUNNING again."""
    lab.run_as_root("scontrol", "resume", job)
    wait_for_state(lab, job, "RUNNING")


def fail_node(lab: SlurmLab, job: str) -> str:
    """NODE_FAIL, or PENDING again if the job may be requeued; the node, which stays down."""
    node = node_of(lab, job)
    lab.node_down(node)
    wait_for_state(lab, job, "NODE_FAIL", "PENDING", "REQUEUED")
    return node


def requeue(lab: SlurmLab, job: str) -> None:
    """PENDING, not to start for two minutes: see `SlurmLab.release_requeued`."""
    lab.run_as_root("scontrol", "requeue", job)
    wait_for_state(lab, job, "PENDING")


def preempt(lab: SlurmLab, job: str) -> str:
    """PREEMPTED, then PENDING again; the id of the job that took the whole node."""
    words = ("--parsable", "-p", "urgent", "--exclusive", "--gres=gpu:8", "-o", "/dev/null")
    taken = f"--nodelist={node_of(lab, job)}"
    winner = lab.run_as_user("sbatch", *words, taken, "--wrap", "sleep 600").strip()
    wait_for_state(lab, winner, "RUNNING")
    wait_for_state(lab, job, "PENDING", "PREEMPTED")
    return winner


def time_out(lab: SlurmLab, job: str) -> None:
    """TIMEOUT; Slurm looks at the limits every half minute only."""
    lab.run_as_root("scontrol", "update", f"jobid={job}", "endtime=now+1")
    wait_for_state(lab, job, "TIMEOUT", seconds=120)


def node_of(lab: SlurmLab, job: str) -> str:
    """The first node of a running job."""
    node = lab.run_as_root("squeue", "-h", "-j", job, "-o", "%B").strip()
    assert node in lab.nodes, f"job {job} is not running: {node!r}"
    return node
