"""What schedulers and clouds do to jobs."""

from __future__ import annotations

from tao_sdk.failures.cause import Cause, Standing
from tao_sdk.failures.err_class import ErrClass

_SLURM_CANCEL = (
    r"^(?:slurmstepd(?:-\S{1,80})?: )?error: "
    r"\*\*\* (?:JOB|STEP) \S{1,40} ON \S{1,80} CANCELLED AT \S{1,40}"
)

CAUSES = (
    Cause(
        id="wall-time",
        err_class=ErrClass.TIMEOUT,
        cause="the time limit of the job was reached",
        suggestion="ask for more time, or make the job shorter; with checkpoints it can go on from "
        "the last one",
        log=(_SLURM_CANCEL + r" DUE TO TIME LIMIT", r"Job step aborted: .{0,80}DUE TO TIME LIMIT"),
        reason=(
            r"\bTIMEOUT\b",
            r"\bDEADLINE\b",
            r"\bDeadlineExceeded\b",
            r"\bTimeLimit\b",
            r"active longer than specified deadline",
        ),
        standing=Standing.DECISIVE,
        specificity=80,
        even_as_warning=True,
        sample="slurmstepd: error: *** JOB 494583 ON node7 CANCELLED AT 2026-04-20T09:09:37 DUE TO "
        "TIME LIMIT ***",
    ),
    Cause(
        id="preempted",
        err_class=ErrClass.PREEMPTED,
        cause="the scheduler took the machine for a more important job, or the cloud took it back",
        suggestion="run again: it goes on from the last checkpoint; a higher priority or an "
        "on-demand machine is not taken away",
        log=(
            _SLURM_CANCEL + r" DUE TO PREEMPTION",
            r"^(?:\S{1,60}: )?(?:Spot|spot) instance (?:interruption|termination) notice",
        ),
        reason=(
            r"\bPREEMPTED\b",
            r"\bREVOKED\b",
            r"\bPreempt(?:ed|ing|ionByScheduler|ionByKubeScheduler)\b",
            r"\b[Ss]pot ?(?:[Ii]nstance ?)?(?:[Ii]nterrupt|[Tt]erminat|[Rr]eclaim|[Pp]reempt)",
            r"imminent node shutdown",
            r"\b(?:NodeShutdown|TerminationByKubelet)\b",
            r"\bEvictionByEvictionAPI\b",
        ),
        standing=Standing.DECISIVE,
        specificity=80,
        even_as_warning=True,
        sample="slurmstepd: error: *** JOB 77 ON node7 CANCELLED AT 2026-04-20T09:09:37 DUE TO "
        "PREEMPTION ***",
    ),
    Cause(
        id="evicted-own-limit",
        err_class=ErrClass.CAPACITY,
        cause="evicted because it wrote more than it may ({what})",
        suggestion="write results to a mounted volume rather than into the container, or ask for "
        "more ephemeral storage",
        reason=(
            r"(?P<what>[Uu]sage of EmptyDir volume \"[^\"\n]{1,80}\" exceeds the limit)",
            r"(?P<what>[Pp]od ephemeral local storage usage exceeds the total limit)",
            r"(?P<what>[Cc]ontainer \S{1,80} exceeded its local ephemeral storage limit)",
        ),
        standing=Standing.DECISIVE,
        specificity=90,
        sample='Evicted: Usage of EmptyDir volume "scratch" exceeds the limit "10Gi".',
    ),
    Cause(
        id="evicted",
        err_class=ErrClass.INFRA,
        cause="evicted from its node[, which was low on {what}]",
        suggestion="run again: it goes to another node; requests close to real use make eviction "
        "less likely",
        reason=(
            r"(?s)\bEvicted\b(?:.{0,200}low on resource: (?P<what>[\w-]+))?",
            r"[Tt]he node was low on resource: (?P<what>[\w-]+)",
            r"\bThe node had condition: \[(?P<what>\w+)\]",
        ),
        standing=Standing.DECISIVE,
        specificity=75,
        sample="Evicted: The node was low on resource: memory.",
    ),
    Cause(
        id="node-lost",
        err_class=ErrClass.INFRA,
        cause="the node failed or was lost",
        suggestion="run again on another node; it goes on from the last checkpoint",
        log=(
            _SLURM_CANCEL + r" DUE TO NODE FAILURE",
            r"^srun: error: Node failure on \S{1,80}",
            r"^srun: error: Task launch for \S{1,60} failed on node \S{1,80}: ",
            r"slurmstepd: error: execve\(\): \S{1,120}slurm_script: No such file or directory",
            r"^srun: error: Aborting, io error with slurmstepd on node",
        ),
        reason=(
            r"\bNODE_FAIL\b",
            r"\bBOOT_FAIL\b",
            r"\bLAUNCH_FAILED\b",
            r"\bNodeLost\b",
            r"\bNodeNotReady\b",
            r"\bDeletionBy(?:PodGC|TaintManager)\b",
            r"\bNodeAffinityNodeGone\b",
            r"[Nn]ode \S{0,80} ?(?:was lost|is not responding|went down|no longer exists)",
            r"\b(?:NodeController|TaintManager)Eviction\b",
        ),
        standing=Standing.DECISIVE,
        specificity=85,
        even_as_warning=True,
        sample="slurmstepd: error: *** JOB 77 ON node7 CANCELLED AT 2026-04-20T09:09:37 DUE TO "
        "NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS ***",
    ),
    Cause(
        id="slurm-controller-away",
        err_class=ErrClass.INFRA,
        cause="Slurm's controller did not answer while the job's processes were being started",
        suggestion="run again; if it comes back, tell the cluster's support",
        log=(
            r"^srun: error: .{0,200}Unable to contact slurm controller",
            r"^srun: error: .{0,200}Unable to (?:confirm allocation|create step) for job .{0,80}"
            r"(?:Socket timed out|contact slurm controller)",
        ),
        standing=Standing.DECISIVE,
        specificity=80,
        sample="srun: error: Unable to confirm allocation for job 1: Unable to contact slurm "
        "controller (connect failure)",
    ),
    Cause(
        id="container-lost",
        err_class=ErrClass.INFRA,
        cause="the node lost track of the container: as a rule an eviction or a reboot",
        suggestion="run again; if it comes back, look for evictions on that node (kubectl describe "
        "node)",
        reason=(r"\bContainerStatusUnknown\b", r"could not be located when the pod was"),
        standing=Standing.DECISIVE,
        specificity=60,
        sample="ContainerStatusUnknown: The container could not be located when the pod was "
        "terminated",
    ),
    Cause(
        id="gpu-not-allocated",
        err_class=ErrClass.INFRA,
        cause="the node could not hand out the GPUs that it had promised",
        suggestion="run again on another node; the device plugin of this one or a GPU is not well",
        reason=(r"\bUnexpectedAdmissionError\b", r"Pod Allocate failed due to"),
        standing=Standing.DECISIVE,
        specificity=70,
        sample="UnexpectedAdmissionError: Pod Allocate failed due to requested number of devices "
        "unavailable for nvidia.com/gpu. Requested: 1, Available: 0",
    ),
    Cause(
        id="cancelled",
        err_class=ErrClass.UNKNOWN,
        cause="cancelled[ by user {user}]",
        suggestion="if that was not you, ask the administrators who or what cancelled it",
        log=(_SLURM_CANCEL + r"(?: DUE TO JOB REQUEUE)? ?\*\*\*",),
        reason=(
            r"\bCANCELLED(?: by (?P<user>\w+))?\b",
            r"^(?:Canceled|Cancelled)\b",
        ),
        specificity=60,
        even_as_warning=True,
        sample="slurmstepd: error: *** JOB 77 ON node7 CANCELLED AT 2026-04-20T09:09:37 ***",
    ),
    Cause(
        id="capacity-refused",
        err_class=ErrClass.CAPACITY,
        cause="not enough free resources: {what}",
        suggestion="wait for GPUs (when_busy='wait'), or ask for fewer",
        log=(
            r"^sbatch: error: (?:Batch job submission failed: )?(?P<what>Requested node "
            r"configuration is not available|.{0,60}(?:QOSMax|AssocMax|AssocGrp)[^\n]{0,80})",
        ),
        reason=(
            r"(?P<what>\d+ of \d+ GPUs? wanted, \d+ free)",
            r"(?P<what>Insufficient (?:nvidia\.com/gpu|cpu|memory|ephemeral-storage))",
            r"(?P<what>\d+/\d+ nodes are available[^\n]{0,160})",
            r"(?P<what>exceeded quota: [^\n]{1,160})",
            r"(?P<what>Requested node configuration is not available)",
            r"(?P<what>\b(?:QOSMax|AssocMax|AssocGrp|QOSGrp)\w+)",
            r"(?P<what>InsufficientInstanceCapacity|no (?:instance )?capacity[^\n]{0,80})",
            r"(?P<what>\bUnschedulable\b)",
            r"(?P<what>\d+ GPUs? (?:are )?wanted[^\n]{0,80}(?:has|have|there are) (?:only )?\d+)",
        ),
        specificity=70,
        sample="0/5 nodes are available: 5 Insufficient nvidia.com/gpu.",
    ),
    Cause(
        id="scheduler-refused",
        err_class=ErrClass.PROGRAM,
        cause="the scheduler refused the job: {what}",
        suggestion="correct account, partition, QOS, time limit or constraints; sinfo and sacctmgr "
        "show what you may use",
        log=(
            r"^s(?:batch|run): error: "
            r"(?:Batch job submission failed: |Unable to allocate resources: )?"
            r"(?P<what>(?:Invalid (?:account|partition|qos|QOS|generic)|invalid partition|"
            r"User's group not permitted|Job violates)[^\n]{0,120})",
        ),
        reason=(
            r"(?P<what>(?:Invalid (?:account|partition|qos|generic resource)|invalid partition "
            r"specified)[^\n]{0,120})",
            r"^(?P<what>[^\n]{0,120}\((?:PartitionTimeLimit|PartitionNodeLimit|PartitionConfig|"
            r"BadConstraints|DependencyNeverSatisfied)\))",
        ),
        specificity=72,
        sample="sbatch: error: Batch job submission failed: Invalid account or account/partition "
        "combination specified",
    ),
    Cause(
        id="cluster-forbidden",
        err_class=ErrClass.CREDENTIAL,
        cause="the cluster does not let this user do that: {what}",
        suggestion="ask for the right to create and watch Jobs, Pods and Secrets in that "
        "namespace, or choose another namespace",
        reason=(
            r"(?P<what>User \"[^\"\n]{1,100}\" cannot \w+ resource \"[^\"\n]{1,60}\")",
            r"(?P<what>admission webhook \"[^\"\n]{1,100}\" denied the request[^\n]{0,120})",
            r"(?P<what>ValidatingAdmissionPolicy '[^'\n]{1,100}'.{0,120} denied request"
            r"[^\n]{0,120})",
        ),
        specificity=75,
        sample='jobs.batch is forbidden: User "dev" cannot create resource "jobs" in API group '
        '"batch" in the namespace "prod"',
    ),
)
