"""Precision: every log of the corpus is explained by the right cause.

`pytest -s` shows the table of hits and misses.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from failure_corpus import Case, read_cases
from hypothesis import given, settings
from hypothesis import strategies as st

from tao_sdk.failures import Evidence, explain
from tao_sdk.failures.catalogue import BY_ID, CATALOGUE
from tao_sdk.failures.judge import Diagnosis, diagnose

CASES = read_cases()
POSITIVES = [case for case in CASES if not case.near_miss]
NEAR_MISSES = [case for case in CASES if case.near_miss]
TEMPTING = {"ERR_INFRA", "ERR_PREEMPTED", "ERR_OOM"}

HEALTHY = st.lists(
    st.sampled_from(
        [
            "Epoch 3: 41%|████      | 205/500 [01:22<01:58,  2.49it/s, loss=0.412]",
            "step 118 loss=2.4410 lr=1.2e-04 grad_norm=0.91",
            "[2026-02-03 10:11:12,345][__main__][INFO] - epoch 1 begins",
            "dgx1:120:151 [1] NCCL INFO Connected all rings",
            "INFO: loaded 118287 images, 12 corrupt ones skipped",
            "WARNING: Grad strides do not match bucket view strides.",
            "/usr/lib/python3.10/site.py:12: UserWarning: lr_scheduler.step() before optimizer",
            "train_loss: 0.31 val_mAP: 0.512",
            "Saving checkpoint to /results/model_003.pth",
            "GPU available: True (cuda), used: True",
            "seed 42, precision bf16, timeout 1800 s, retry policy: none",
        ]
    ),
    max_size=12,
)
SHUTDOWN = st.lists(
    st.sampled_from(
        [
            "wandb: Waiting for W&B process to finish... (failed 1).",
            "wandb: Find logs at: ./wandb/run-20260301/logs",
            "[2026-02-03 10:11:40,001][TAO Toolkit][INFO] - Sending telemetry data.",
            "Telemetry data couldn't be sent, but the command ran successfully.",
            "[WARNING]: <urlopen error [Errno -2] Name or service not known>",
            "Execution status: FAIL",
            "Set the environment variable HYDRA_FULL_ERROR=1 for a complete stack trace.",
            "/usr/lib/python3.10/multiprocessing/resource_tracker.py:224: UserWarning: "
            "resource_tracker: There appear to be 12 leaked semaphore objects to clean up",
            "[W ProcessGroupNCCL.cpp:1250] Warning: WARNING: process group has NOT been destroyed",
            "Cleaning up temporary files",
            "Exception ignored in: <function Client.__del__ at 0x7f11>\n"
            "Traceback (most recent call last):\n"
            '  File "/workspace/client.py", line 9, in __del__\n'
            "AttributeError: 'NoneType' object has no attribute 'close'",
        ]
    ),
    max_size=5,
)


def verdict(evidence: Evidence) -> Diagnosis:
    return diagnose(evidence)


def is_right(case: Case) -> bool:
    found = verdict(case.evidence)
    right_rank = case.rank is None or case.rank == found.rank
    return found.cause.id == case.cause and right_rank


def test_the_corpus_is_large_and_its_headers_are_true() -> None:
    assert len(CASES) >= 150
    assert len(NEAR_MISSES) >= 50
    for case in CASES:
        assert BY_ID[case.cause].err_class.value == case.err_class, case.name


def test_table_of_hits_and_misses() -> None:
    """Lessons F8 and W8: all positives right; no near-miss retried or called out of memory."""
    hits, totals = Counter[str](), Counter[str]()
    wrong, dangerous = [], []
    for case in CASES:
        family = case.name.partition("/")[0]
        found = verdict(case.evidence)
        totals[family] += 1
        if is_right(case):
            hits[family] += 1
        else:
            wrong.append(f"{case.name}: {case.cause} expected, {found.cause.id} found")
        if case.near_miss and found.cause.err_class.value in TEMPTING:
            dangerous.append(f"{case.name}: {found.cause.id} ({case.near_miss})")
    print(f"\n{'family':<14}{'logs':>6}{'right':>7}")
    for family, total in sorted(totals.items()):
        print(f"{family:<14}{total:>6}{hits[family]:>7}")
    causes = {case.cause for case in POSITIVES}
    print(f"{'all':<14}{len(CASES):>6}{hits.total():>7}")
    print(f"{len(causes)} of {len(CATALOGUE)} causes, {len(NEAR_MISSES)} near-misses")
    print("\n".join([*wrong, *dangerous]))
    assert dangerous == []
    assert wrong == []


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_explanation_is_whole(case: Case) -> None:
    """Lesson F9: one shape, whatever the failure."""
    found = explain(case.evidence)
    assert set(found) == {
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
    assert found["err_class"] == case.err_class
    assert found["cause"].strip()
    assert "{" not in found["cause"].replace("${", "") or "ForeignNode" in found["cause"]
    assert found["suggestion"]
    assert found["retriable"] is (case.err_class in ("ERR_INFRA", "ERR_PREEMPTED"))
    quotable = case.evidence.log_tail.strip() or case.evidence.reason
    assert found["evidence"] or not quotable or case.cause == "no-failure"


@settings(max_examples=300, deadline=None)
@given(case=st.sampled_from(CASES), before=HEALTHY, after=SHUTDOWN)
def test_healthy_lines_around_it_change_nothing(
    case: Case, before: list[str], after: list[str]
) -> None:
    log = "\n".join([*before, case.evidence.log_tail.rstrip("\n"), *after])
    found = verdict(replace(case.evidence, log_tail=log))
    assert found.cause.id == case.cause
    if case.rank is not None:
        assert found.rank == case.rank


@settings(max_examples=100, deadline=None)
@given(
    first=st.sampled_from([case for case in POSITIVES if "Traceback" in case.evidence.log_tail]),
    steps=st.integers(min_value=50, max_value=60),
    case=st.sampled_from([case for case in POSITIVES if "Traceback" in case.evidence.log_tail]),
)
def test_what_was_recovered_from_is_not_the_cause(first: Case, steps: int, case: Case) -> None:
    """An earlier attempt's error, then training, then this one's error."""
    progress = [f"step {step} loss={1 / (step + 1):.4f}" for step in range(steps)]
    log = "\n".join([first.evidence.log_tail, *progress, case.evidence.log_tail])
    found = verdict(replace(case.evidence, log_tail=log))
    assert found.cause.id == case.cause


@settings(max_examples=100, deadline=None)
@given(
    case=st.sampled_from([case for case in POSITIVES if case.evidence.log_tail.strip()]),
    rank=st.integers(min_value=0, max_value=7),
)
def test_a_rank_before_every_line_changes_nothing(case: Case, rank: int) -> None:
    lines = case.evidence.log_tail.splitlines()
    log = "\n".join(f"[rank {rank}] {line}" for line in lines)
    found = verdict(replace(case.evidence, log_tail=log))
    assert found.cause.id == case.cause
