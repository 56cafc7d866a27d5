"""What happens to rented instances, and to jobs on them."""

from __future__ import annotations

from tao_sdk.failures.cause import Cause, Standing
from tao_sdk.failures.err_class import ErrClass

CAUSES = (
    Cause(
        id="instance-gpus",
        err_class=ErrClass.CAPACITY,
        cause="the instance has not the GPUs that the job wants: {what}",
        suggestion="ask for as many as it has (gpu_count=), or let a fitting one be made: "
        "gpu_type= in place of instance_id=",
        reason=(
            r"(?P<what>not enough GPUs: \d+ asked for, and the instance has \d+)",
            r"(?P<what>the instance has no GPUs)",
        ),
        standing=Standing.DECISIVE,
        specificity=85,
        sample="not enough GPUs: 8 asked for, and the instance has 2",
    ),
    Cause(
        id="instance-not-offered",
        err_class=ErrClass.CAPACITY,
        cause="no such instance can be had at present: {what}",
        suggestion="try another GPU (gpu_type=; `brev search` lists them), or later",
        reason=(r"(?P<what>Brev has no \S{1,80} to give)", r"(?P<what>Brev offers no \S{1,80})"),
        standing=Standing.DECISIVE,
        specificity=85,
        sample="not submitted: Brev has no p4d.24xlarge to give: insufficient capacity",
    ),
    Cause(
        id="instance-not-ready",
        err_class=ErrClass.INFRA,
        cause="the instance did not come up: {what}",
        suggestion="run it again; if a type of instance is slow to start, raise BREV_READY_SECONDS",
        reason=(
            r"(?P<what>instance \S{1,80} was not ready within \d{1,9}(?:\.\d{1,3})? s)",
            r"(?P<what>instance \S{1,80} is of no use)",
        ),
        standing=Standing.DECISIVE,
        specificity=80,
        sample="not submitted: instance tao-1234 was not ready within 600 s: deploying",
    ),
    Cause(
        id="instance-gone",
        err_class=ErrClass.INFRA,
        cause="its instance is gone, and the job with it: {what}",
        suggestion="a user or a lifetime (max_hours=) deleted it, or the cloud took it back: run "
        "the job again; results in a bucket outlive their instance",
        reason=(r"(?P<what>its instance \S{1,80} is gone)",),
        standing=Standing.DECISIVE,
        specificity=80,
        sample="vanished: its instance tao-1234 is gone, and its log",
    ),
    Cause(
        id="instance-failed",
        err_class=ErrClass.INFRA,
        cause="the instance failed, and the job with it: {what}",
        suggestion="run the job again; results in a bucket outlive their instance",
        reason=(r"(?P<what>its instance \S{1,80} failed \(Brev says \S{1,40}\))",),
        standing=Standing.DECISIVE,
        specificity=80,
        sample="its instance tao-1234 failed (Brev says FAILURE), and the job with it",
    ),
    Cause(
        id="instance-container-removed",
        err_class=ErrClass.INFRA,
        cause="the job's container was removed from its instance",
        suggestion="run it again; `docker system prune` on an instance takes jobs along",
        reason=(r"its container was removed, and it left no word",),
        standing=Standing.DECISIVE,
        specificity=80,
        sample="its container was removed, and it left no word",
    ),
)
