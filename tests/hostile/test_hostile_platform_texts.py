"""What platforms and jobs print, mutated: parsers answer or refuse with an error of ours."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from fuzzing import Findings, broken, counts, mutated, run_bounded

from tao_sdk.failures import Evidence, ReplicaEvidence, explain
from tao_sdk.platforms import volume_programs
from tao_sdk.platforms.brev import logs as brev_logs
from tao_sdk.platforms.brev import parse as brev_parse
from tao_sdk.platforms.brev import status as brev_status
from tao_sdk.platforms.common.times import container_time
from tao_sdk.platforms.docker import log_frames
from tao_sdk.platforms.docker import status as docker_status
from tao_sdk.platforms.gpus.discovery import parse_nvidia_smi
from tao_sdk.platforms.kubernetes import pods, status
from tao_sdk.platforms.kubernetes.evidence import conclude
from tao_sdk.platforms.kubernetes.log_lines import Place, TimedLines
from tao_sdk.platforms.lepton import log_lines
from tao_sdk.platforms.lepton import status as lepton_status
from tao_sdk.platforms.remote import result_listing
from tao_sdk.platforms.remote.framing import Call
from tao_sdk.platforms.slurm import logs as slurm_logs
from tao_sdk.platforms.slurm.parse import parse_answer, task_ids
from tao_sdk.platforms.slurm.status import judge

JOB, OTHER = "0f5a", "1c2d"
CORPUS = Path(__file__).parent.parent / "unit" / "failure_corpus"
RECORD = json.dumps(
    {
        "version": 1,
        "job_id": JOB,
        "rank": 0,
        "attempt": 1,
        "exit_code": 3,
        "started_at": "2026-04-20T07:00:00Z",
        "ended_at": "2026-04-20T07:09:37Z",
        "host": "node7",
    }
)
# What a platform says about one job may raise these: `isolation.py` keeps them from the others.
CONTAINED = (ValueError, TypeError, AttributeError, LookupError, ArithmeticError)


def answer_of(*sections: tuple[str, str]) -> str:
    """An answer in sections, as programs on a machine print it."""
    return "".join(f"\n@n {head}\n{text}" for head, text in (("begin", ""), *sections)) + (
        "\n@n end-of-answer\n"
    )


class Target(NamedTuple):
    """Recorded text, and everything that reads it."""

    text: str
    read: Callable[[str], object]
    allowed: Sequence[type] = ()


SLURM = answer_of(
    (
        "queue",
        f"77|RUNNING|None|N/A|node7|tao-job-{JOB}\n78_[0-2]|PENDING|(Priority)|N/A||tao-array-1\n",
    ),
    (f"job {JOB}", ""),
    ("submissions", "1 77\n2 79 NODE_FAIL node7,node8\n"),
    ("claim token.1.0 77 3 no no", ""),
    ("claim token.2.1 79 - yes yes", ""),
    ("record", RECORD),
    ("status", '{"status": "FAILURE", "message": "loss is nan"}'),
    ("credentials", ""),
    (f"job {OTHER}", ""),
    (
        "accounting",
        f"77|tao-job-{JOB}|FAILED|3:0|node7\n79+0|tao-job-{JOB}|CANCELLED by 1000|0:15|node[7-8]\n"
        "80_[0-2,5%1]|tao-array-1|TIMEOUT|0:0|None assigned\n",
    ),
    ("controller", f"JobId=79 JobName=tao-job-{JOB} JobState=FAILED ExitCode=3:0 Restarts=1\n"),
)
SLURM_LOG = answer_of(
    ("stream 77.out 0 400", "0: loss 0.5\n1: loss 0.4\n"), ("stream 77.err 0 9", "")
)
BREV = answer_of(
    (
        f"ended {JOB}",
        "code 3\nstarted 2026-04-20T07:00:00.5Z\nended 2026-04-20T07:01:00Z\noom true\n",
    ),
    (f"open {OTHER} running", "supervises"),
    ("unknown x", ""),
    (f"record {JOB}", RECORD),
    ("others 2", ""),
    ("silent Cannot connect to the Docker daemon", ""),
)
BREV_LOG = answer_of(("log 0 40", "line one\nline two\n"))
FRAMES = "".join(
    f"{chr(stream)}\0\0\0\0\0\0{chr(len(line))}{line}"
    for stream in (1, 2, 1)
    for line in ("2026-04-20T07:00:00.123456789Z loss 0.5\n",)
)
CONTAINER = {
    "Id": "be7b0a",
    "Names": [f"/tao-job-{JOB}"],
    "State": "exited",
    "Status": "Exited (137) 5 seconds ago",
    "Created": 1_776_668_400,
    "Labels": {"tao-sdk-job-id": JOB},
    "Image": "tao:1",
}
KUBERNETES_JOB = {
    "metadata": {"name": "j", "uid": "u", "creationTimestamp": "2026-04-20T09:00:00Z"},
    "spec": {"completions": 2, "parallelism": 2, "completionMode": "Indexed"},
    "status": {
        "active": 1,
        "failed": 1,
        "failedIndexes": "0,2-3",
        "startTime": "2026-04-20T09:00:01Z",
        "conditions": [
            {"type": "FailureTarget", "status": "True", "reason": "BackoffLimitExceeded"}
        ],
    },
}
POD = {
    "metadata": {
        "name": "j-0-x",
        "uid": "p",
        "creationTimestamp": "2026-04-20T09:00:00Z",
        "annotations": {"batch.kubernetes.io/job-completion-index": "0"},
        "labels": {"job-name": "j"},
    },
    "spec": {"nodeName": "node7"},
    "status": {
        "phase": "Failed",
        "conditions": [{"type": "PodScheduled", "status": "False", "message": "0/3 nodes"}],
        "containerStatuses": [
            {
                "name": "tao",
                "restartCount": 1,
                "state": {
                    "terminated": {
                        "exitCode": 137,
                        "reason": "OOMKilled",
                        "startedAt": "2026-04-20T09:01:00Z",
                        "finishedAt": "2026-04-20T09:05:00Z",
                    }
                },
            }
        ],
    },
}
EVENTS = {"p": [{"reason": "FailedMount", "message": "secret not found", "type": "Warning"}]}
LEPTON_JOB = {
    "metadata": {"id": "tao-job", "name": "tao-job", "created_at": 1_776_668_400_000},
    "status": {"state": "Failed", "ready": 1, "failed": 1, "completion_time": 1_776_668_500},
}
LEPTON_REPLICA = {
    "metadata": {"id": "tao-job-0-x"},
    "status": {"replica_status_reason": [{"reason": "ErrImagePull", "message": "no"}], "node": {}},
}
LEPTON_LINES = {"data": {"result": [{"values": [["1776668400000000000", "loss 0.5\n"]]}]}}


def read_slurm(text: str) -> None:
    sections = Call("n", b"").sections(text.encode("utf-8", "surrogatepass"))
    if sections is None:
        return
    answer = parse_answer(sections)
    for job_id in (JOB, OTHER):
        verdict = judge(job_id, "77", answer)
        explain(Evidence(verdict.exit_code, verdict.reason, verdict.message))


def read_sections(read: Callable[..., object], text: str) -> None:
    sections = Call("n", b"").sections(text.encode("utf-8", "surrogatepass"))
    if sections is not None:
        read(sections)


def read_brev(text: str) -> None:
    def read(sections: Any) -> None:
        answer = brev_status.parse_answer(sections)
        for job_id in (JOB, OTHER):
            brev_status.judge(job_id, answer, "gpu-1")
        for end in answer.ended.values():
            explain(end.evidence)

    read_sections(read, text)


def read_frames(text: str) -> None:
    data = text.encode("utf-8", "replace")
    reader = log_frames.LineReader(log_frames.THE_START)
    reader.take(log_frames.read_messages([data[:9], data[9:]]), 1000)
    reader.flush()


def read_containers(text: str) -> None:
    census = docker_status.Census.take(json.loads(text))
    for container in census.jobs.values():
        docker_status.interpret(container, canceled=False)


def read_kubernetes(text: str) -> None:
    job, one, events = json.loads(text)
    seen = status.interpret(job, [one], events)
    evidence = conclude(pods.in_order([one]), 2, seen.message)
    explain(evidence)
    status.replica_of(one, events)


def read_lepton(text: str) -> None:
    job, replica, lines = json.loads(text)
    lepton_status.interpret(job, canceled=False)
    lepton_status.replica_of(replica, "tao-job", 0)
    log_lines.read_lines(log_lines.parse_answer(lines, backward=True), log_lines.Position(), JOB)


def read_kubernetes_log(text: str) -> None:
    lines = TimedLines(Place("pod"), 64)
    lines.feed(text.encode("utf-8", "replace"))
    lines.flush()


def explain_text(text: str) -> None:
    found = explain(
        Evidence(
            1, text[:200], text, (ReplicaEvidence(0, "node", 1, reason=text), ReplicaEvidence(1))
        )
    )
    assert len(json.dumps(found)) < 100_000, "the explanation is as long as its evidence"


def as_json(read: Callable[[str], object], recorded: object) -> Target:
    """What an API answers about one job."""
    return Target(json.dumps(recorded), read, CONTAINED)


NOT_UNDERSTOOD = (brev_parse.NotUnderstoodError,)
BREV_LS = '{"workspaces":[{"name":"a","status":"RUNNING"}]}'
BREV_SEARCH = '[{"type":"g5","gpu_count":1,"price":1.5}]'
KUBERNETES_LOG = "2026-04-20T07:00:00.123456789Z loss 0.5\nno time\n"
ENTRIES = "f\x00644\x0012\x001776668400.5\x00./a\x00\x00"


def read_slurm_log(text: str) -> None:
    read_sections(lambda parts: slurm_logs.chunk_of(parts, {}, labelled=True, flush=True), text)


def read_brev_log(text: str) -> None:
    read_sections(partial(brev_logs.chunk_of, flush=True), text)


def read_entries(text: str) -> None:
    result_listing.parse_entries(text.encode("utf-8", "replace"))


TARGETS = {
    "slurm: squeue, sacct, scontrol, job files": Target(SLURM, read_slurm),
    "slurm: log": Target(SLURM_LOG, read_slurm_log),
    "slurm: cursor": Target("77.out=12,77.batch.err=3", slurm_logs.parse_cursor),
    "brev: supervisor, docker": Target(BREV, read_brev),
    "brev: log": Target(BREV_LOG, read_brev_log),
    "brev: cursor": Target("128", brev_logs.parse_cursor),
    "brev: ls": Target(BREV_LS, brev_parse.parse_instances, NOT_UNDERSTOOD),
    "brev: search": Target(BREV_SEARCH, brev_parse.parse_offers, NOT_UNDERSTOOD),
    "brev: version": Target("brev version v0.6.300", brev_parse.parse_version),
    "docker: log": Target(FRAMES, read_frames),
    "docker: cursor": Target("1:2026-04-20T07:00:00.5Z/1,-", log_frames.Position),
    "docker: time": Target("2026-04-20T07:00:00.123456789Z", container_time),
    "docker: list": as_json(read_containers, [CONTAINER]),
    "kubernetes: job, pod, events": as_json(read_kubernetes, [KUBERNETES_JOB, POD, EVENTS]),
    "kubernetes: log": Target(KUBERNETES_LOG, read_kubernetes_log),
    "lepton: job, replica, lines": as_json(read_lepton, [LEPTON_JOB, LEPTON_REPLICA, LEPTON_LINES]),
    "lepton: cursor": Target("1776668400000000000.1!~4+2", log_lines.Position.parse),
    "volumes: sizes": Target("12 ./a b\n0 ./c\n", volume_programs.parse_files),
    "results: entries": Target(ENTRIES, read_entries),
    "nvidia-smi": Target("0, GPU-1, 12, NVIDIA H200\n1, GPU-2, [N/A], x\n", parse_nvidia_smi),
}


def spoilt(target: Target, chance: random.Random) -> str:
    if target.text[0] in "[{" and chance.random() < 0.5:
        return json.dumps(mutated(json.loads(target.text), chance))
    text = target.text
    for _ in range(chance.choice([1, 1, 2, 5])):
        text = broken(text, chance)
    return text


def fuzz(count: int) -> None:
    """Every target so many times, and as many logs of jobs."""
    chance = random.Random(5)
    logs = [path.read_text("utf-8", "replace") for path in sorted(CORPUS.rglob("*.txt"))]
    explained = Findings("explained logs", timed=True)
    for _ in range(count):
        text = broken(chance.choice(logs), chance) + broken(chance.choice(logs)[-500:], chance)
        explained.attempt(text, partial(explain_text, text))
    explained.check()
    for what, target in TARGETS.items():
        found = Findings(what, timed=True)
        for _ in range(count):
            text = spoilt(target, chance)
            found.attempt(text, partial(target.read, text), target.allowed)
        found.check()


@counts(100, 10_000)
def test_spoilt_texts_end_in_sentences(count: int) -> None:
    run_bounded("test_hostile_platform_texts", count)


@pytest.mark.parametrize("what", TARGETS)
def test_the_recorded_texts_are_understood(what: str) -> None:
    TARGETS[what].read(TARGETS[what].text)


@pytest.mark.parametrize(
    "ids", ["77_[0-99999999999999999]", "77_[" + "0-9999999," * 1000 + "1]", "77_[5-1,²,-,--]"]
)
def test_a_huge_range_of_an_array_does_not_fill_the_memory(ids: str) -> None:
    line = f"{ids}|tao-array-1|CANCELLED|0:0|None\n"
    sections = Call("n", b"").sections(answer_of(("accounting", line)).encode())
    assert sections is not None
    answer = parse_answer(sections)
    assert sum(map(len, answer.ended.values())) <= 200_000
    assert bool(answer.silent) == ("9999999" in ids)


def test_the_tasks_of_an_array() -> None:
    assert list(task_ids("7_[0-2,5%1]")) == ["7_0", "7_1", "7_2", "7_5"]
    assert list(task_ids("7_3")) == ["7_3"]
    assert list(task_ids("")) == []
