"""Several processes working together: NCCL, Gloo, rendezvous, launchers.

Most of these are collateral: when one rank dies, the others lose their connections to it. They
are the cause only when nothing else explains the end of the job.
"""

from __future__ import annotations

from tao_sdk.failures.cause import Cause, Standing, raised
from tao_sdk.failures.err_class import ErrClass

_NETWORK = "run again on other nodes; with NCCL_DEBUG=INFO the log tells which link or rank it was"

CAUSES = (
    Cause(
        id="nccl-timeout",
        err_class=ErrClass.INFRA,
        cause="NCCL gave up waiting for another rank[ in {operation}][ after {timeout} ms]",
        suggestion="see whether one rank stopped or fell behind before this; if none did, "
        + _NETWORK,
        log=(
            r"Watchdog caught collective operation timeout: WorkNCCL\((?:[^)\n]{0,80}OpType="
            r"(?P<operation>\w+))?(?:[^)\n]{0,120}Timeout\(ms\)=(?P<timeout>\d+))?",
            r"Some NCCL operations have failed or timed out",
            raised(r"\w*Error", r".{0,120}Process group watchdog thread terminated with exception"),
            r"NCCL watchdog thread terminated with exception: (?!CUDA error)",
        ),
        standing=Standing.COLLATERAL,
        specificity=70,
        sample="[rank3]:[E ProcessGroupNCCL.cpp:607] [Rank 3] Watchdog caught collective operation "
        "timeout: WorkNCCL(SeqNum=7753, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, "
        "Timeout(ms)=600000) ran for 600061 milliseconds before timing out.",
    ),
    Cause(
        id="nccl-remote-exited",
        err_class=ErrClass.INFRA,
        cause="NCCL lost the connection to another rank",
        suggestion="see which rank ended first, and why; if none did, " + _NETWORK,
        log=(
            r"\bncclRemoteError: A call failed possibly due to a network error or a remote "
            r"process exiting prematurely",
            raised(r"\w*Error", r"NCCL error in: .{1,200}, remote process exited or there was a "),
            raised(r"\w*Error", r"NCCL communicator was aborted on rank (?P<other>\d+)"),
        ),
        standing=Standing.COLLATERAL,
        specificity=65,
        sample="ncclRemoteError: A call failed possibly due to a network error or a remote process "
        "exiting prematurely.",
    ),
    Cause(
        id="nccl-system-error",
        err_class=ErrClass.INFRA,
        cause="NCCL failed in a system call: as a rule the network between the nodes",
        suggestion="check NCCL_SOCKET_IFNAME and that every node reaches every other; else "
        + _NETWORK,
        log=(
            raised(r"\w*Error", r"NCCL error in: .{1,200}, unhandled system error"),
            r"\bncclSystemError: System call ",
        ),
        standing=Standing.COLLATERAL,
        specificity=60,
        sample="torch.distributed.DistBackendError: NCCL error in: ../torch/csrc/distributed/c10d/"
        "NCCLUtils.hpp:219, unhandled system error (run with NCCL_DEBUG=INFO for details)",
    ),
    Cause(
        id="nccl-cuda-error",
        err_class=ErrClass.INFRA,
        cause="NCCL failed in a call to CUDA",
        suggestion="look for an earlier CUDA error in the log; if there is none, run again on "
        "other GPUs with NCCL_DEBUG=INFO",
        log=(
            raised(r"\w*Error", r"NCCL error in: .{1,200}, unhandled cuda error"),
            r"\bncclUnhandledCudaError: Call to CUDA function failed",
        ),
        standing=Standing.COLLATERAL,
        specificity=60,
        sample="ncclUnhandledCudaError: Call to CUDA function failed.",
    ),
    Cause(
        id="nccl-internal-error",
        err_class=ErrClass.INFRA,
        cause="NCCL found itself in a state that it does not know",
        suggestion="run again with NCCL_DEBUG=INFO; if it comes back, try another NCCL version",
        log=(
            raised(r"\w*Error", r"NCCL error in: .{1,200}, internal error"),
            r"\bncclInternalError: Internal check failed",
        ),
        standing=Standing.COLLATERAL,
        specificity=55,
        sample="ncclInternalError: Internal check failed.",
    ),
    Cause(
        id="nccl-duplicate-gpu",
        err_class=ErrClass.PROGRAM,
        cause="two ranks use the same GPU[ (ranks {one} and {other})]",
        suggestion="start one process per GPU and let each use cuda:$LOCAL_RANK",
        log=(
            r"Duplicate GPU detected : rank (?P<one>\d+) and rank (?P<other>\d+) both on",
            raised(r"\w*Error", r"NCCL error in: .{1,200}, invalid usage"),
        ),
        specificity=75,
        sample="Duplicate GPU detected : rank 0 and rank 1 both on CUDA device 3b000",
    ),
    Cause(
        id="infiniband",
        err_class=ErrClass.INFRA,
        cause="an InfiniBand or RoCE link failed",
        suggestion="run again on other nodes, and report these two",
        log=(
            r"NCCL WARN NET/IB ?: Got completion from peer .{0,120}(?:error|status=)",
            r"NET/IB ?: .{0,60}Got async event ?: port error",
            r"ibv_\w+ .{0,80}transport retry counter exceeded",
        ),
        specificity=70,
        even_as_warning=True,
        sample="node7:411:502 [3] NCCL WARN NET/IB : Got completion from peer 10.1.0.9<4217> with "
        "error 12, opcode 0, len 0, vendor err 129",
    ),
    Cause(
        id="gloo-peer-lost",
        err_class=ErrClass.INFRA,
        cause="Gloo lost the connection to another rank, or gave up waiting for it",
        suggestion="see which rank ended first, and why; if none did, check that the nodes reach "
        "each other (GLOO_SOCKET_IFNAME)",
        log=(
            raised(
                r"\w*Error",
                r"\[[^\]\n]{0,160}gloo/transport/tcp/\w+\.cc:\d+\] "
                r"(?:Connection closed by peer|Timed out waiting|Read error|Write error|"
                r"Connection reset)",
            ),
            raised(r"\w*Error", r"Gloo connectFullMesh failed"),
            raised(
                r"\w*Error",
                r"\[\d+\] is setting up NCCL communicator and retrieving ncclUniqueId",
            ),
        ),
        standing=Standing.COLLATERAL,
        specificity=60,
        sample="RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection "
        "closed by peer [10.0.0.2]:21871",
    ),
    Cause(
        id="rendezvous-timeout",
        err_class=ErrClass.INFRA,
        cause="not every rank came to the start[: {joined} joined]",
        suggestion="see what the missing ranks were doing; check that all nodes got the same "
        "MASTER_ADDR and MASTER_PORT and that the port is open between them",
        log=(
            raised(
                r"\w*Error",
                r"Timed out after \d+ seconds waiting for clients\. (?P<joined>\d+/\d+) clients",
            ),
            raised("RendezvousTimeoutError"),
            raised(r"\w*Error", r"Timed out initializing process group in store based barrier"),
            raised(
                r"\w*Error",
                r"The client socket has timed out after \d+ ?m?s while trying to connect to ",
            ),
            raised(r"\w*Error", r"wait timeout after \d+ms, keys: "),
        ),
        standing=Standing.COLLATERAL,
        specificity=65,
        sample="torch.distributed.DistStoreError: Timed out after 901 seconds waiting for clients. "
        "1/2 clients joined.",
    ),
    Cause(
        id="rendezvous-refused",
        err_class=ErrClass.INFRA,
        cause="the first rank cannot be reached[ at {address}]",
        suggestion="see whether rank 0 started; check MASTER_ADDR and MASTER_PORT and that the "
        "port is open between the nodes",
        log=(
            raised(
                r"\w*Error",
                r"The client socket has failed to connect to any network address of "
                r"\((?P<address>[^)\n]{1,100})\)",
            ),
            raised("RendezvousConnectionError"),
            raised(r"\w*Error", r".{0,80}The connection to the C10d store has failed"),
            r"socketStartConnect: Connect to (?P<address>\S{1,80}) failed ?: Connection refused",
            raised(
                "DistNetworkError",
                r"(?:failed to recv|Connection reset by peer|Connection was likely closed)",
            ),
        ),
        standing=Standing.COLLATERAL,
        specificity=65,
        sample="torch.distributed.DistNetworkError: The client socket has failed to connect to any "
        "network address of (node01, 29500). The client socket has failed to connect to "
        "10.0.0.1:29500 (errno: 111 - Connection refused).",
    ),
    Cause(
        id="address-in-use",
        err_class=ErrClass.PROGRAM,
        cause="the port[ {port}] is taken by another program on that node",
        suggestion="use another port (MASTER_PORT, or --rdzv-endpoint with port 0), or end the "
        "program that holds it",
        log=(
            raised(
                r"\w*Error",
                r"The server socket has failed to (?:bind|listen) "
                r"(?=(?:.{0,150}?(?:port: |\]:|0:)(?P<port>\d+))?)"
                r".{0,400}(?:EADDRINUSE|[Aa]ddress already in use)",
            ),
            raised(r"\w*Error", r".{0,60}\[Errno 98\].{0,40}[Aa]ddress already in use"),
            r"Bind for \S{1,40}:(?P<port>\d+) failed: port is already allocated",
            r"bind: address already in use",
        ),
        reason=(r"Bind for \S{1,40}:(?P<port>\d+) failed: port is already allocated",),
        specificity=75,
        sample="torch.distributed.DistNetworkError: The server socket has failed to listen on any "
        "local network address. port: 29500, useIpv6: false, code: -98, name: EADDRINUSE, "
        "message: address already in use",
    ),
    Cause(
        id="collective-mismatch",
        err_class=ErrClass.PROGRAM,
        cause="the ranks called different collective operations",
        suggestion="look for a branch that only some ranks take (logging, validation, an uneven "
        "number of batches) around a collective call",
        log=(
            raised(r"\w*Error", r"Detected mismatch between collectives on ranks"),
            raised(r"\w*Error", r".{0,80}Mismatched? tensor (?:shapes|sizes) .{0,40}across ranks"),
        ),
        specificity=75,
        sample="RuntimeError: Detected mismatch between collectives on ranks. Rank 0 is running "
        "collective: CollectiveFingerPrint(SequenceNumber=9, OpType=ALLREDUCE)",
    ),
    Cause(
        id="ddp-unused-parameters",
        err_class=ErrClass.PROGRAM,
        cause="some parameters took no part in the loss, which DistributedDataParallel refuses",
        suggestion="set find_unused_parameters=True (Lightning: "
        "strategy=ddp_find_unused_parameters_true), or freeze those parameters",
        log=(raised("RuntimeError", r"Expected to have finished reduction in the prior"),),
        specificity=75,
        sample="RuntimeError: Expected to have finished reduction in the prior iteration before "
        "starting a new one.",
    ),
    Cause(
        id="launcher-child-failed",
        err_class=ErrClass.PROGRAM,
        cause="a process started by the launcher failed[ with exit code {status}]",
        suggestion="find that process's own message in the log; for torchrun decorate main() with "
        "@record to see its traceback",
        log=(
            raised("ChildFailedError"),
            raised(
                "CalledProcessError",
                r"Command .{1,400} returned non-zero exit status (?P<status>\d+)",
            ),
            raised("ProcessRaisedException|ProcessExitedException"),
            raised("DeadSignal|RayTaskError|WorkerCrashedError|ActorDiedError"),
            r"^mpirun (?:noticed|detected) that ",
        ),
        standing=Standing.ECHO,
        specificity=15,
        sample="torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ",
    ),
)
