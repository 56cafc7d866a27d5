"""From what a cluster says to the state of a job: pure, on recorded text."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest

from tao_sdk.failures import Evidence, explain
from tao_sdk.models import JobState
from tao_sdk.platforms.backend import Attempt
from tao_sdk.platforms.remote.framing import Section
from tao_sdk.platforms.slurm.parse import exit_status, parse_answer, state_word
from tao_sdk.platforms.slurm.status import Verdict, judge

JOB = "0f5a"
NAME = f"tao-job-{JOB}"


def section(name: str, words: str = "", text: str = "") -> Section:
    return Section(name, words, text.encode())


def in_queue(state: str, reason: str = "None", *, id_: str = "77", name: str = NAME) -> str:
    """A line as `squeue -o '%i|%T|%r|%S|%N|%j'` prints it."""
    nodes = "" if state == "PENDING" else "node7"
    return f"{id_}|{state}|{reason}|N/A|{nodes}|{name}"


def accounted(state: str, code: str = "0:0", *, id_: str = "77", name: str = NAME) -> str:
    """A line of sacct."""
    return f"{id_}|{name}|{state}|{code}|node7"


def record(code: int, attempt: int = 1) -> Section:
    text = {
        "version": 1,
        "job_id": JOB,
        "rank": 0,
        "attempt": attempt,
        "exit_code": code,
        "started_at": "2026-04-20T07:00:00Z",
        "ended_at": "2026-04-20T07:09:37Z",
        "host": "node7",
    }
    return section("record", text=json.dumps(text))


def verdict(
    *queue: str,
    files: Sequence[Section] | None = None,
    accounting: Sequence[str] = (),
    controller: str = "",
    key: str = "77",
    cancel_requested: bool = False,
) -> Verdict:
    """The verdict on a job from what was said; `files` None is a job that the queue has alive."""
    told = [section("queue", text="\n".join(queue))]
    if files is not None:
        told += [section("job", JOB), *files]
    told.append(section("end-of-jobs"))
    if accounting:
        told.append(section("accounting", text="\n".join(accounting) + "\n"))
    if controller:
        told.append(section("controller", text=controller))
    return judge(JOB, key, parse_answer(told), cancel_requested=cancel_requested)


SUBMITTED = section("submissions", text="1 77\n")


def claim(
    code: str = "-",
    *,
    submission: int = 1,
    restart: int = 0,
    owner: str = "77",
    limit: str = "no",
    stopped: str = "no",
) -> Section:
    return section("claim", f"c0ffee.{submission}.{restart} {owner} {code} {limit} {stopped}")


def ended(state: str, code: str = "0:0", *more: Section, cancel_requested: bool = False) -> Verdict:
    """The verdict on a job that accounting alone knows."""
    return verdict(
        files=[SUBMITTED, *more],
        accounting=[accounted(state, code)],
        cancel_requested=cancel_requested,
    )


def err_class(found: Verdict) -> str:
    evidence = Evidence(exit_code=found.exit_code, reason=found.reason)
    return str(explain(evidence)["err_class"])


# -- alive


@pytest.mark.seed("002.13")
@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ("PENDING", "Pending"),
        ("CONFIGURING", "Pending"),
        ("RESIZING", "Pending"),
        ("REQUEUED", "Pending"),
        ("REQUEUE_HOLD", "Pending"),
        ("REQUEUE_FED", "Pending"),
        ("SPECIAL_EXIT", "Pending"),
        ("RESV_DEL_HOLD", "Pending"),
        ("RUNNING", "Running"),
        ("COMPLETING", "Running"),
        ("SIGNALING", "Running"),
        ("STAGE_OUT", "Running"),
        ("SUSPENDED", "Paused"),
        ("STOPPED", "Paused"),
    ],
)
def test_a_job_in_the_queue_is_what_the_queue_says(state: str, expected: str) -> None:
    found = verdict(in_queue(state))
    assert found.state is not None
    assert (found.state.value, found.native) == (expected, state)
    assert found.message


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("Resources", "waiting for free nodes (Resources)"),
        ("JobHeldUser", "held by its user: scontrol release it (JobHeldUser)"),
        ("BeginTime", "waiting for its start time (after a requeue, or between retries)"),
        ("ReqNodeNotAvail, UnavailableNodes:node7", "are down, drained or reserved"),
        ("SomethingNew", "waiting: SomethingNew"),
        ("None", "Queued as Slurm job 77"),
    ],
)
def test_a_waiting_job_says_why(reason: str, words: str) -> None:
    assert words in verdict(in_queue("PENDING", reason)).message


def test_a_state_of_a_later_slurm_is_no_end() -> None:
    found = verdict(in_queue("BRAND_NEW_STATE"))
    assert (found.state, found.message) == (JobState.RUNNING, "BRAND_NEW_STATE on node7")
    found = verdict(f"77|BRAND_NEW_STATE|Why|N/A||{NAME}")
    assert (found.state, found.message) == (
        JobState.PENDING,
        "in Slurm's state BRAND_NEW_STATE (Why)",
    )
    assert ended("BRAND_NEW_STATE").state is None, (
        "accounting has it, the queue does not: who knows"
    )
    assert ended("BRAND_NEW_STATE", "1:0", claim("3")).exit_code == 3


def test_the_expected_start_is_told() -> None:
    row = f"77|PENDING|Resources|2026-04-20T12:00:00||{NAME}"
    assert verdict(row).message.endswith("expected to start at 2026-04-20T12:00:00 (cluster time)")


# -- ended


@pytest.mark.seed("002.13")
@pytest.mark.parametrize(
    ("state", "code", "expected", "exit_code", "explained"),
    [
        ("FAILED", "7:0", "Error", 7, "ERR_PROGRAM"),
        ("FAILED", "0:11", "Error", 139, "ERR_PROGRAM"),
        ("FAILED", "124:0", "Error", 124, "ERR_PROGRAM"),
        ("OUT_OF_MEMORY", "0:125", "Error", None, "ERR_OOM"),
        ("TIMEOUT", "0:0", "Error", None, "ERR_TIMEOUT"),
        ("DEADLINE", "0:0", "Error", None, "ERR_TIMEOUT"),
        ("NODE_FAIL", "1:0", "Error", None, "ERR_INFRA"),
        ("BOOT_FAIL", "0:0", "Error", None, "ERR_INFRA"),
        ("PREEMPTED", "0:0", "Canceled", None, "ERR_PREEMPTED"),
        ("REVOKED", "0:0", "Canceled", None, "ERR_PREEMPTED"),
        ("CANCELLED", "0:0", "Canceled", None, "ERR_UNKNOWN"),
    ],
)
def test_every_end_has_its_state_and_its_class(
    state: str, code: str, expected: str, exit_code: int | None, explained: str
) -> None:
    found = ended(state, code)
    assert found.state is not None
    assert (found.state.value, found.exit_code) == (expected, exit_code)
    assert err_class(found) == explained


def test_a_completed_job_is_complete() -> None:
    found = ended("COMPLETED")
    assert (found.state, found.message, found.exit_code) == (JobState.COMPLETE, "completed", 0)


def test_cancelled_by_a_user_is_cancelled() -> None:
    """Lesson W1: sacct says `CANCELLED by 1000` for the allocation."""
    found = ended("CANCELLED by 1000")
    assert found.state is JobState.CANCELED
    assert "by user 1000" in found.message
    assert explain(Evidence(reason=found.reason))["cause"] == "cancelled by user 1000"


@pytest.mark.parametrize(
    ("text", "word"),
    [("CANCELLED by 1000", "CANCELLED"), ("RUNNING+", "RUNNING"), ("", ""), ("FAILED", "FAILED")],
)
def test_states_are_one_word(text: str, word: str) -> None:
    assert state_word(text) == word


@pytest.mark.parametrize(
    ("text", "expected"), [("7:0", (7, 0)), ("0:9", (0, 9)), ("", (0, 0)), ("x:y", (0, 0))]
)
def test_exit_codes_are_code_and_signal(text: str, expected: tuple[int, int]) -> None:
    assert exit_status(text) == expected


def test_what_the_job_left_is_more_exact_than_slurms_own_code() -> None:
    """srun passes a signal on as 128+n; Slurm keeps eight bits of what it saw itself."""
    assert ended("FAILED", "0:125", claim("139")).exit_code == 139


# -- status.json


@pytest.mark.seed("002.13")
@pytest.mark.parametrize(
    ("status_line", "expected"),
    [
        ('{"status": "FAILURE", "message": "disk is full"}', "Error"),
        ('{"status": "failure"}', "Error"),
        ('{"status": "SUCCESS"}', "Complete"),
        ('{"status": "RUNNING"}', "Complete"),
        ('{"status": "FAIL', "Complete"),
        ('["FAILURE"]', "Complete"),
        ("", "Complete"),
    ],
)
def test_a_completed_job_is_checked_against_status_json(status_line: str, expected: str) -> None:
    files = [SUBMITTED, claim("0"), section("status", text=f"{status_line}\n")]
    for told in (
        verdict(files=files, accounting=[accounted("COMPLETED")]),
        verdict(files=files),  # nothing but the record
    ):
        assert told.state is not None
        assert told.state.value == expected


def test_a_failure_in_status_json_is_explained_by_its_message() -> None:
    line = '{"status": "FAILURE", "message": "no GPU of that kind"}'
    found = ended("COMPLETED", "0:0", section("status", text=line))
    explained = explain(Evidence(exit_code=found.exit_code, reason=found.reason))
    assert explained["err_class"] == "ERR_PROGRAM"
    assert "no GPU of that kind" in explained["cause"]


# -- who is to be believed


@pytest.mark.parametrize("stale", ["PENDING", "RUNNING", "PREEMPTED", "NODE_FAIL"])
def test_accounting_never_overrules_the_queue(stale: str) -> None:
    """After a requeue sacct says PENDING, or how the attempt before ended."""
    assert verdict(in_queue("RUNNING"), accounting=[accounted(stale)]).state is JobState.RUNNING
    found = verdict(
        in_queue("COMPLETED"), files=[SUBMITTED, claim("0")], accounting=[accounted(stale)]
    )
    assert (found.state, found.exit_code) == (JobState.COMPLETE, 0)


def test_the_controller_is_believed_where_accounting_lags() -> None:
    line = (
        f"JobId=77 JobName={NAME} JobState=FAILED Reason=JobLaunchFailure ExitCode=0:9 "
        "Restarts=0 StartTime=x EndTime=y ReqNodeList=(null) NodeList=node7 BatchHost=node7"
    )
    found = verdict(
        in_queue("FAILED"),
        files=[SUBMITTED, claim()],
        accounting=[accounted("RUNNING")],
        controller=line,
    )
    assert (found.state, found.exit_code, found.nodes) == (JobState.ERROR, 137, "node7")


@pytest.mark.parametrize("state", ["RUNNING", "PENDING"])
def test_a_job_that_only_accounting_thinks_alive_is_not_alive(state: str) -> None:
    """Lag, or a runaway of the data base: otherwise somebody would wait for ever."""
    assert verdict(files=[SUBMITTED, claim()], accounting=[accounted(state)]).state is None
    found = verdict(files=[SUBMITTED, claim("3")], accounting=[accounted(state)])
    assert (found.state, found.exit_code) == (JobState.ERROR, 3)


def test_without_accounting_the_record_tells() -> None:
    """Lesson 6.2: sites without slurmdbd."""
    found = verdict(files=[SUBMITTED, claim("3"), record(3)])
    assert (found.state, found.exit_code) == (JobState.ERROR, 3)
    assert found.message == "Failed with exit code 3 (from the job's own record)"
    assert found.ended_at == "2026-04-20T07:09:37Z"
    assert verdict(files=[SUBMITTED, claim("0")]).state is JobState.COMPLETE


def test_without_any_word_nothing_is_claimed() -> None:
    assert verdict(files=[SUBMITTED, claim()]).state is None
    assert verdict(files=[]).state is None
    assert verdict().state is None


def test_a_number_given_out_again_is_somebody_elses() -> None:
    """Also while the other job is in the queue under that number."""
    other = "tao-job-another"
    files = [SUBMITTED, claim("3")]
    found = verdict(in_queue("RUNNING", name=other), files=files)
    assert (found.state, found.exit_code) == (JobState.ERROR, 3)
    rows = [accounted("FAILED", "3:0"), accounted("COMPLETED", name="somebody-elses")]
    assert verdict(files=[SUBMITTED], accounting=rows).exit_code == 3
    assert verdict(files=[SUBMITTED], accounting=rows[1:]).state is None


def test_tasks_of_arrays_are_known_by_their_number() -> None:
    array, files = "tao-array-1", [section("submissions", text="1 77_3\n"), claim(owner="77_3")]
    row = in_queue("RUNNING", id_="77_3", name=array)
    assert verdict(row, key="77_3").state is JobState.RUNNING
    rows = [accounted("FAILED", f"{n}:0", id_=f"77_{n}", name=array) for n in (2, 3, 4)]
    assert verdict(files=files, accounting=rows, key="77_3").exit_code == 3
    told = f"JobId=81 ArrayJobId=77 ArrayTaskId=3 JobName={array} JobState=FAILED ExitCode=5:0"
    assert verdict(files=files, controller=told, key="77_3").exit_code == 5


# -- several attempts


def test_the_last_submission_counts() -> None:
    files = [
        section("submissions", text="1 77\n2 80 infra node7\n"),
        claim(),
        claim("0", submission=2, owner="80"),
    ]
    rows = [accounted("NODE_FAIL"), accounted("COMPLETED", id_="80")]
    found = verdict(files=files, accounting=rows)
    assert (found.state, found.slurm_id) == (JobState.COMPLETE, "80")
    assert verdict(in_queue("PENDING", id_="80"), files=files).slurm_id == "80"


def test_of_two_copies_the_one_that_ran_counts() -> None:
    """The other found its claim taken, left, and is COMPLETED for Slurm."""
    files = [
        section("submissions", text="1 77\n2 80 infra\n2 81 infra\n"),
        claim(),
        claim("5", submission=2, owner="80"),
    ]
    rows = [accounted("FAILED", "5:0", id_="80"), accounted("COMPLETED", id_="81")]
    assert verdict(files=files, accounting=rows).exit_code == 5


def test_a_submission_that_nobody_noted_is_known_by_its_claim() -> None:
    """Its submitter died after sbatch had worked."""
    files = [SUBMITTED, claim(), claim("0", submission=2, owner="80")]
    rows = [accounted("NODE_FAIL"), accounted("COMPLETED", id_="80")]
    assert verdict(files=files, accounting=rows).state is JobState.COMPLETE


def test_attempts_are_told_apart_by_number_not_by_text() -> None:
    numbers = [*range(1, 12)]
    submissions = "".join(f"{n} {70 + n} infra\n" for n in numbers)
    claims = [claim(str(n), submission=n, owner=str(70 + n)) for n in numbers]
    found = verdict(files=[section("submissions", text=submissions), *claims], key="71")
    assert (found.slurm_id, found.exit_code) == ("81", 11)


def test_what_an_earlier_attempt_left_says_nothing_about_a_later_one() -> None:
    """Requeued, it kept its number; then its node was lost before it left anything."""
    files = [SUBMITTED, claim("143", limit="yes"), record(143), claim(restart=1)]
    found = verdict(files=files, accounting=[accounted("NODE_FAIL")])
    assert (found.exit_code, found.at_limit, found.ended_at) == (None, False, "")
    assert err_class(found) == "ERR_INFRA"
    newer = verdict(files=[*files, record(3, attempt=2)], accounting=[accounted("FAILED", "3:0")])
    assert newer.ended_at
    assert err_class(newer) == "ERR_PROGRAM"


def controller_says(code: str, restarts: int) -> str:
    return (
        f"JobId=77 JobName={NAME} JobState=FAILED Restarts={restarts} ExitCode={code} NodeList=n7"
    )


def test_an_attempt_that_its_node_refused_is_no_failure_of_the_program() -> None:
    """The batch script left no claim, or one of an earlier attempt only."""
    row = in_queue("FAILED", "NonZeroExitCode")
    for restarts, left in ((0, []), (1, [claim("143"), record(143)])):
        told = controller_says("1:0", restarts)
        found = verdict(row, files=[SUBMITTED, *left], controller=told)
        assert (found.exit_code, found.nodes) == (1, "n7")
        assert found.message.endswith("its batch script did not begin")
        assert err_class(found) == "ERR_INFRA"
    begun = verdict(
        row,
        files=[SUBMITTED, claim("143"), claim("3", restart=1)],
        controller=controller_says("3:0", 1),
    )
    assert begun.exit_code == 3
    assert err_class(begun) == "ERR_PROGRAM"


def test_one_that_stopped_when_warned_has_met_its_wall_time() -> None:
    found = ended("FAILED", "143:0", claim("143", limit="yes"))
    assert (found.state, found.at_limit) == (JobState.ERROR, True)
    assert found.message.startswith("Wall time reached")
    assert err_class(found) == "ERR_TIMEOUT"


def test_one_that_finished_when_warned_is_complete() -> None:
    assert ended("COMPLETED", "0:0", claim("0", limit="yes")).state is JobState.COMPLETE


# -- cancelled by us


@pytest.mark.parametrize("state", ["FAILED", "CANCELLED by 1000", "NODE_FAIL", "TIMEOUT"])
def test_one_that_we_stopped_is_cancelled(state: str) -> None:
    for found in (
        ended(state, "143:0", claim("143", stopped="yes"), cancel_requested=True),
        ended(state, "0:10", claim(), cancel_requested=True),  # before its script could hear of it
    ):
        assert (found.state, found.message) == (JobState.CANCELED, "cancelled")
        assert found.exit_code is None


def test_one_that_had_ended_before_its_cancellation_is_what_it_was() -> None:
    found = ended("COMPLETED", "0:0", claim("0"), cancel_requested=True)
    assert found.state is JobState.COMPLETE
    found = ended("FAILED", "7:0", claim("7"), cancel_requested=True)
    assert (found.state, found.exit_code) == (JobState.ERROR, 7)


def test_a_cancelled_task_that_slurm_never_kept_is_cancelled() -> None:
    assert verdict(files=[SUBMITTED], cancel_requested=True).state is JobState.CANCELED
    assert verdict(files=[SUBMITTED]).state is None


# -- for the retry policy


@pytest.mark.parametrize(
    ("state", "fault"),
    [
        ("NODE_FAIL", "infra"),
        ("BOOT_FAIL", "infra"),
        ("PREEMPTED", "preempted"),
        ("FAILED", ""),
        ("OUT_OF_MEMORY", "program"),
        ("TIMEOUT", "program"),
        ("DEADLINE", "program"),
        ("REVOKED", "program"),
        ("CANCELLED", "program"),
        ("COMPLETED", ""),
    ],
)
def test_whose_fault_slurm_says_it_was(state: str, fault: str) -> None:
    assert ended(state).fault == fault


def test_at_its_wall_time_the_program_is_at_fault() -> None:
    assert ended("FAILED", "143:0", claim("143", limit="yes")).fault == "program"


def test_one_node_can_be_blamed_and_several_cannot() -> None:
    assert ended("NODE_FAIL").node == "node7"
    assert ended("NODE_FAIL")._replace(nodes="node[7-8]").node == ""


def test_attempts_are_what_was_noted_and_claimed() -> None:
    """The second one's submitter died before it noted it; the first was submitted twice."""
    noted = section("submissions", text="1 77\n2 80 infra node7,node8\n3")
    told = [section("job", JOB), noted, claim(owner="78"), claim(submission=3, owner="81")]
    assert parse_answer(told).files[JOB].attempts == (
        Attempt(1, native_id="78"),
        Attempt(2, "infra", ("node7", "node8"), "80"),
        Attempt(3, native_id="81"),
    )


def test_noise_between_the_lines_is_left_out() -> None:
    found = verdict("slurm_load_jobs warning: x|y", in_queue("RUNNING"), "")
    assert found.state is JobState.RUNNING
