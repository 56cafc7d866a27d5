"""Memory of the machine: RAM, shared memory, limits."""

from __future__ import annotations

from tao_sdk.failures.cause import Cause, Standing, raised
from tao_sdk.failures.err_class import ErrClass

_LESS_MEMORY = (
    "ask for more memory, or use less: fewer data-loader workers, a smaller batch, no whole "
    "dataset held in memory"
)

CAUSES = (
    Cause(
        id="host-oom-killed",
        err_class=ErrClass.OOM,
        cause="killed because the memory limit was reached[ (process {process})]",
        suggestion=_LESS_MEMORY,
        log=(
            r"slurmstepd: error: Detected \d+ oom[-_]kill event",
            # Without control groups Slurm itself looks at the sizes of processes.
            r"^slurmstepd\S{0,80}: error: (?:Step(?:Id=| )?\S{1,40} )?"
            r"[Ee]xceeded (?:job )?memory limit",
            r"(?:Memory cgroup out of memory|Out of memory): Kill(?:ed)? process \d+ "
            r"\((?P<process>[^)\n]{1,40})\)",
            r"Some of your processes may have been killed by the cgroup out-of-memory handler",
            r"^srun: error: \S{1,80}: tasks? [\d,-]{1,40}: Out Of Memory",
            raised("OutOfMemoryError", r"Task was killed due to the node running low on memory"),
            raised(r"OutOfMemoryError", r"Task \S{1,80} was killed due to .{0,40}low on memory"),
        ),
        reason=(r"\bOOMKilled\b", r"\bOUT_OF_ME(?:MORY)?\b", r"\boom[-_]kill(?:ed)?\b"),
        standing=Standing.DECISIVE,
        specificity=90,
        even_as_warning=True,
        sample="slurmstepd: error: Detected 1 oom_kill event in StepId=4242.0. Some of the step "
        "tasks have been OOM Killed.",
    ),
    Cause(
        id="host-oom-sigkill",
        err_class=ErrClass.OOM,
        cause="killed (exit 137): as a rule the machine ran out of memory",
        suggestion=f"{_LESS_MEMORY}; if memory was plentiful, someone or something else killed it",
        exit_codes=(137,),
        sample="Epoch 3: loss=0.41",
    ),
    Cause(
        id="host-out-of-memory",
        err_class=ErrClass.OOM,
        cause="the machine's memory is exhausted[: {size} more were wanted]",
        suggestion=_LESS_MEMORY,
        log=(
            raised("MemoryError", r"(?:Unable to allocate (?P<size>[\d.]+ \w+))?"),
            raised(r"_ArrayMemoryError", r"Unable to allocate (?P<size>[\d.]+ \w+)"),
            raised("RuntimeError", r".{0,80}DefaultCPUAllocator: (?:can't|not enough) "),
            raised("OSError|RuntimeError", r".{0,80}\[Errno 12\] Cannot allocate memory"),
            r"^(?:[\w./-]{1,80}: ){1,3}.{0,80}Cannot allocate memory$",
            r"what\(\): {1,4}std::bad_alloc",
            r"terminate called after throwing an instance of 'std::bad_alloc'",
            r"(?:fatal error|std::bad_alloc): (?:runtime: )?out of memory",
        ),
        specificity=75,
        sample="OSError: [Errno 12] Cannot allocate memory",
    ),
    Cause(
        id="dataloader-worker-oom",
        err_class=ErrClass.OOM,
        cause="a data-loader worker was killed: as a rule the machine ran out of memory",
        suggestion=f"lower num_workers first; otherwise {_LESS_MEMORY}",
        log=(
            raised("RuntimeError", r"DataLoader worker \(pid \d+\) is killed by signal: Killed"),
            raised("BrokenProcessPool|TerminatedWorkerError", r".{0,200}SIGKILL\(-9\)"),
        ),
        specificity=80,
        sample="RuntimeError: DataLoader worker (pid 8243) is killed by signal: Killed.",
    ),
    Cause(
        id="shm-too-small",
        err_class=ErrClass.OOM,
        cause="the memory shared between processes (/dev/shm) is too small",
        suggestion="give the container more shared memory (docker: --shm-size=16g or --ipc=host; "
        "kubernetes: a memory-backed volume at /dev/shm), or lower num_workers",
        log=(
            r"insufficient shared memory \(shm\)",
            raised("RuntimeError", r"DataLoader worker \(pid \d+\) is killed by signal: Bus error"),
            raised(
                r"\w*Error",
                r"unable to (?:allocate shared memory ?\(shm\) for|write to|open shared memory "
                r"object|mmap \d+ bytes from|resize) (?:file )?</torch_",
            ),
            raised("OSError", r"\[Errno 28\] No space left on device: '?/dev/shm"),
            r"(?:failed to extend|Error while creating shared memory segment) /dev/shm/nccl-",
            r"\B/dev/shm/\S{1,80}: No space left on device",
        ),
        specificity=90,
        even_as_warning=True,
        sample="ERROR: Unexpected bus error encountered in worker. This might be caused by "
        "insufficient shared memory (shm).",
    ),
    Cause(
        id="locked-memory-limit",
        err_class=ErrClass.CAPACITY,
        cause="the limit on locked memory (memlock) is too low for InfiniBand",
        suggestion="start the container with unlimited memlock (docker: --ulimit memlock=-1; on "
        "SLURM ask the administrators to propagate it)",
        log=(
            r"Call to ibv_(?:reg_mr|create_cq|create_qp)\S* failed with error Cannot allocate",
            r"RLIMIT_MEMLOCK (?:too low|soft limit)",
        ),
        specificity=70,
        even_as_warning=True,
        sample="node1:71:90 [0] NCCL WARN Call to ibv_reg_mr failed with error Cannot allocate "
        "memory",
    ),
    Cause(
        id="process-limit",
        err_class=ErrClass.CAPACITY,
        cause="no more processes or threads may be started",
        suggestion="lower num_workers and OMP_NUM_THREADS, or raise the limit (docker: "
        "--pids-limit=-1; ulimit -u)",
        log=(
            raised("RuntimeError", r"can't start new thread"),
            raised("BlockingIOError|OSError", r"\[Errno 11\] Resource temporarily unavailable$"),
            r"fork: (?:retry: )?Resource temporarily unavailable",
            r"OpenBLAS blas_thread_init: pthread_create failed",
            r"libgomp: Thread creation failed: Resource temporarily unavailable",
        ),
        specificity=65,
        sample="RuntimeError: can't start new thread",
    ),
)
