"""How evidence is weighed: facts, reasons, logs, ranks, secrets."""

from __future__ import annotations

from typing import Any

import pytest

from tao_sdk.failures import Evidence, ReplicaEvidence, explain
from tao_sdk.failures.judge import diagnose
from tao_sdk.result_record import ResultRecord
from tao_sdk.secrets import Secret

CUDA_OOM = (
    "Traceback (most recent call last):\n"
    '  File "/workspace/train.py", line 7, in step\n'
    "    loss.backward()\n"
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 1 has a total"
)
KEY_ERROR = (
    "Traceback (most recent call last):\n"
    '  File "/workspace/train.py", line 9, in main\n'
    "    cfg['missing']\n"
    "KeyError: 'missing'"
)
NCCL = (
    "[E ProcessGroupNCCL.cpp:458] [Rank 0] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=1, OpType=ALLREDUCE, Timeout(ms)=1800000) ran for 1800887 milliseconds"
)


def cause_of(**facts: Any) -> str:
    return diagnose(Evidence(**facts)).cause.id


def of_rank(rank: int, log: str) -> str:
    return "\n".join(f"[rank {rank}] {line}" for line in log.splitlines())


# ---------------------------------------------------------------- facts beat hints


@pytest.mark.parametrize(
    ("facts", "cause"),
    [
        ({"exit_code": 137, "reason": "OOMKilled", "log_tail": CUDA_OOM}, "host-oom-killed"),
        ({"exit_code": 1, "reason": "OOMKilled", "log_tail": KEY_ERROR}, "host-oom-killed"),
        ({"exit_code": 137, "log_tail": CUDA_OOM}, "gpu-out-of-memory"),
        ({"exit_code": 137, "log_tail": NCCL}, "host-oom-sigkill"),
        ({"exit_code": 137, "memory_sufficed": True}, "killed-not-for-memory"),
        ({"exit_code": 137, "memory_sufficed": True, "log_tail": NCCL}, "killed-not-for-memory"),
        ({"exit_code": 137, "memory_sufficed": True, "log_tail": CUDA_OOM}, "gpu-out-of-memory"),
        ({"exit_code": 139, "log_tail": NCCL}, "segmentation-fault"),
        ({"exit_code": 134, "log_tail": NCCL}, "nccl-timeout"),
        ({"exit_code": 1, "log_tail": f"{KEY_ERROR}\n{NCCL}"}, "python-exception"),
        ({"exit_code": 1, "log_tail": f"{CUDA_OOM}\n{KEY_ERROR}"}, "python-exception"),
        ({"exit_code": 1, "log_tail": f"{KEY_ERROR}\n{CUDA_OOM}"}, "gpu-out-of-memory"),
        ({"exit_code": 0, "log_tail": CUDA_OOM}, "no-failure"),
        ({"exit_code": 0, "reason": "Completed", "log_tail": KEY_ERROR}, "no-failure"),
        ({"exit_code": 0, "reason": "TIMEOUT"}, "wall-time"),
        ({"exit_code": 0, "reason": "status.json: FAILURE"}, "reported-failure"),
        ({"exit_code": 0, "reason": "FAILURE", "log_tail": CUDA_OOM}, "gpu-out-of-memory"),
        ({"exit_code": 0, "signal": 9}, "host-oom-sigkill"),
        ({"exit_code": None, "signal": 11}, "segmentation-fault"),
        ({"exit_code": 1, "reason": "PREEMPTED", "log_tail": KEY_ERROR}, "preempted"),
        ({"exit_code": 143}, "terminated"),
        ({"exit_code": 130}, "interrupted"),
        ({"exit_code": 159}, "killed-by-signal"),
        ({"exit_code": 255}, "exit-code"),
        ({"log_tail": CUDA_OOM}, "gpu-out-of-memory"),
        ({}, "vanished"),
    ],
)
def test_facts_beat_hints(facts: dict[str, Any], cause: str) -> None:
    assert cause_of(**facts) == cause


def test_a_chain_of_tracebacks_is_one_moment() -> None:
    """What was raised while handling it does not hide what it was."""
    handled = "\n\nDuring handling of the above exception, another exception occurred:\n\n"
    assert cause_of(exit_code=1, log_tail=CUDA_OOM + handled + KEY_ERROR) == "gpu-out-of-memory"


@pytest.mark.parametrize("between", [2, 3])
def test_three_lines_of_progress_mean_that_it_recovered(between: int) -> None:
    """One or two lines are bars drawn once more, or ranks that are still well."""
    progress = "\n".join(f"step {number} loss=0.5" for number in range(between))
    log = f"{CUDA_OOM}\n{progress}\nthe end"
    wanted = "gpu-out-of-memory" if between < 3 else "exit-code"
    assert cause_of(exit_code=1, log_tail=log) == wanted


def test_a_line_that_stands_alone_counts_only_near_the_end() -> None:
    complaint = "cp: error writing '/cache/x': No space left on device"
    near = "\n".join([complaint, *["doing other things"] * 20])
    far = "\n".join([complaint, *["doing other things"] * 400])
    assert cause_of(exit_code=1, log_tail=near) == "disk-full"
    assert cause_of(exit_code=1, log_tail=far) == "exit-code"


def test_the_generic_explanation_quotes_the_last_error_line() -> None:
    found = explain(Evidence(exit_code=3, log_tail="begin\nERROR: 3 problems in the spec\nbye"))
    assert found["cause"] == "the command ended with exit code 3: 3 problems in the spec"
    assert found["evidence"] == ["begin", "ERROR: 3 problems in the spec", "bye"]


def test_a_python_exception_is_named_with_its_frame() -> None:
    found = explain(Evidence(exit_code=1, log_tail=KEY_ERROR))
    assert found["cause"] == "KeyError: 'missing' (in train.py:9, in main)"
    assert found["evidence"] == ["KeyError: 'missing'"]


def test_the_frame_is_of_the_users_own_code() -> None:
    log = KEY_ERROR.replace(
        "KeyError", '  File "/usr/lib/python3.11/ast.py", line 5, in get\nKeyError'
    )
    assert "train.py:9" in explain(Evidence(exit_code=1, log_tail=log))["cause"]


def test_what_follows_a_harmless_traceback_is_not_part_of_it() -> None:
    ignored = "Exception ignored in: <function f>\n" + KEY_ERROR
    log = f"{ignored}\ncp: error writing '/results/x': No space left on device"
    assert cause_of(exit_code=1, log_tail=log) == "disk-full"


# ---------------------------------------------------------------- jobs that never ran, or are gone


def test_never_submitted_is_worth_another_try() -> None:
    found = explain(Evidence(never_started=True, reason="never submitted: its client was gone"))
    assert (found["err_class"], found["retriable"]) == ("ERR_INFRA", True)
    assert found["cause"] == "never submitted: its client was gone"


@pytest.mark.parametrize(
    ("reason", "err_class"),
    [
        ("not submitted: 2 of 4 GPUs wanted, 1 free; see when_busy", "ERR_CAPACITY"),
        ("not submitted: manifest for x:1 not found: manifest unknown", "ERR_IMAGE"),
        ("not submitted: something this catalogue has never heard of", "ERR_UNKNOWN"),
    ],
)
def test_a_refused_submission_is_not_retried(reason: str, err_class: str) -> None:
    found = explain(Evidence(never_started=True, reason=reason))
    assert (found["err_class"], found["retriable"]) == (err_class, False)
    assert found["cause"]


def test_killed_from_outside_is_not_guessed_from_the_log() -> None:
    reason = (
        "killed together with its supervisor (by the kernel's out-of-memory killer, or by hand)"
    )
    found = explain(Evidence(killed_from_outside=True, reason=reason, log_tail=KEY_ERROR))
    assert found["err_class"] == "ERR_UNKNOWN"
    assert found["cause"] == reason
    assert "out-of-memory" in found["suggestion"]


def test_but_the_kernel_is_believed() -> None:
    log = "[12.3] Out of memory: Killed process 42 (python3) total-vm:1kB"
    assert cause_of(killed_from_outside=True, log_tail=log) == "host-oom-killed"


# ---------------------------------------------------------------- several ranks


def replicas(*codes: int | None, at: tuple[str, ...] = ()) -> tuple[ReplicaEvidence, ...]:
    return tuple(
        ReplicaEvidence(
            rank=rank,
            node=f"node{rank}",
            exit_code=code,
            ended_at=at[rank] if at else f"2026-01-01T00:00:0{rank}Z",
        )
        for rank, code in enumerate(codes)
    )


def test_the_first_failing_rank_is_named_and_the_others_are_collateral() -> None:
    log = of_rank(0, NCCL) + "\n" + of_rank(1, KEY_ERROR) + "\n" + of_rank(2, NCCL)
    ended = ("2026-01-01T00:10:00Z", "2026-01-01T00:00:01Z", "2026-01-01T00:10:02Z")
    found = explain(Evidence(1, log_tail=log, replicas=replicas(1, 1, 1, at=ended)))
    assert found["cause"] == "rank 1: KeyError: 'missing' (in train.py:9, in main)"
    assert (found["rank"], found["node"], found["err_class"]) == (1, "node1", "ERR_PROGRAM")
    assert found["evidence"] == ["[rank 1] KeyError: 'missing'"]
    events = found["job_failure_by_node_event"]
    assert [event["node_event_name"] for event in events] == ["node0", "node1", "node2"]
    assert ["collateral" in event["message"] for event in events] == [True, False, True]


def test_the_first_ranks_lines_are_preferred() -> None:
    log = of_rank(0, KEY_ERROR) + "\n" + of_rank(1, CUDA_OOM)
    ended = ("2026-01-01T00:00:09Z", "2026-01-01T00:00:01Z")
    found = explain(Evidence(1, log_tail=log, replicas=replicas(1, 1, at=ended)))
    assert (found["rank"], found["err_class"]) == (1, "ERR_OOM")


def test_when_the_clock_does_not_tell_the_log_does() -> None:
    log = of_rank(0, NCCL) + "\n" + of_rank(1, KEY_ERROR)
    same = ("2026-01-01T00:00:01Z",) * 2
    found = explain(Evidence(1, log_tail=log, replicas=replicas(1, 1, at=same)))
    assert (found["rank"], found["node"], found["err_class"]) == (1, "node1", "ERR_PROGRAM")


def test_a_rank_that_was_asked_to_stop_is_never_the_first() -> None:
    same = ("2026-01-01T00:00:01Z",) * 3
    found = explain(Evidence(143, replicas=replicas(143, 143, 7, at=same)))
    assert (found["rank"], found["exit_code"]) == (2, 7)
    assert "exit code 7" in found["cause"]


def test_a_rank_killed_first_explains_what_the_others_print() -> None:
    """What a lost peer makes other programs raise is unknown to any catalogue."""
    log = of_rank(0, KEY_ERROR) + "\n" + of_rank(1, "step 1")
    ended = ("2026-01-01T00:00:09Z", "2026-01-01T00:00:01Z")
    found = explain(Evidence(1, log_tail=log, replicas=replicas(1, 137, at=ended)))
    assert (found["rank"], found["err_class"], found["exit_code"]) == (1, "ERR_OOM", 137)


def test_a_replicas_own_reason_counts() -> None:
    pods = (
        ReplicaEvidence(0, "n0", 1, "2026-01-01T00:00:05Z", "Error"),
        ReplicaEvidence(1, "n1", 137, "2026-01-01T00:00:01Z", "OOMKilled"),
    )
    found = explain(Evidence(1, replicas=pods, log_tail=of_rank(0, NCCL)))
    assert (found["rank"], found["node"], found["err_class"]) == (1, "n1", "ERR_OOM")
    assert found["job_failure_by_node_event"][1] == {
        "node_event_name": "n1",
        "message": "OOMKilled",
    }


def test_records_tell_where_the_platform_does_not() -> None:
    def record(rank: int, code: int, second: int) -> ResultRecord:
        end = f"2026-01-01T00:00:{second:02}Z"
        return ResultRecord("job", code, "2026-01-01T00:00:00Z", end, f"host{rank}", rank)

    found = explain(Evidence(records=(record(0, 143, 9), record(1, 5, 3), record(2, 0, 1))))
    assert (found["rank"], found["node"], found["exit_code"]) == (1, "host1", 5)
    assert len(found["job_failure_by_node_event"]) == 2


def test_one_replica_of_many_processes_names_the_process() -> None:
    log = CUDA_OOM.replace("\n", "\n[rank5]: ")
    found = explain(Evidence(1, log_tail=f"[rank5]: {log}", replicas=replicas(1)))
    assert (found["rank"], found["err_class"]) == (5, "ERR_OOM")


def test_what_a_launcher_says_about_rank_node_and_signal() -> None:
    log = (
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n"
        "Root Cause (first observed failure):\n[0]:\n  time      : 2026-01-01_00:00:01\n"
        "  host      : dgx-07\n  rank      : 11 (local_rank: 3)\n  exitcode  : -11 (pid: 1)\n"
    )
    found = explain(Evidence(exit_code=1, log_tail=log))
    assert found["cause"] == "rank 11: native code crashed (segmentation fault)"
    assert (found["rank"], found["node"], found["exit_code"]) == (11, "dgx-07", 1)


def test_interleaved_tracebacks_of_two_ranks_are_told_apart() -> None:
    one = [f"[rank0]: {line}" for line in CUDA_OOM.splitlines()]
    two = [f"[rank1]: {line}" for line in KEY_ERROR.splitlines()]
    mixed = [line for pair in zip(one, two, strict=True) for line in pair]
    found = explain(Evidence(exit_code=1, log_tail="\n".join(mixed)))
    assert found["cause"] == "rank 0: GPU 1 out of memory: 2.00 GiB more were wanted"


# ---------------------------------------------------------------- what is quoted


def test_secrets_are_taken_out_of_every_text() -> None:
    url = "https://user:hunter2hunter2@files.example.org/w.pth"
    log = f"FileNotFoundError: [Errno 2] No such file or directory: '{url}'"
    pod = ReplicaEvidence(0, "n", 1, reason=f"cannot fetch {url}")
    found = explain(Evidence(1, reason=f"failed at {url}", log_tail=log, replicas=(pod,)))
    assert "hunter2" not in str(found)
    assert "files.example.org" in found["cause"]


def test_known_secrets_too() -> None:
    log = "ValueError: no such token: hf_abcdefghijkl"
    found = explain(Evidence(exit_code=1, log_tail=log), secrets=[Secret("hf_abcdefghijkl")])
    assert "hf_abcdefghijkl" not in str(found)
    assert "[secret]" in str(found["evidence"])


def test_long_lines_are_cut() -> None:
    found = explain(Evidence(exit_code=1, log_tail="x" * 10_000))
    assert [len(line) for line in found["evidence"]] == [500]


@pytest.mark.parametrize(
    "junk", ["\x00\x01\x02", "\ud800", "\x1b[31mred\x1b[0m", "\r\r\r", "[" * 9]
)
def test_any_text_can_be_explained(junk: str) -> None:
    found = explain(Evidence(exit_code=1, log_tail=f"{junk}\n{junk * 50}", reason=junk))
    assert found["err_class"] == "ERR_PROGRAM"
