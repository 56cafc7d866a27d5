"""What a job does: it runs, speaks, ends, is stopped, and finds its surroundings."""

from __future__ import annotations

import json
import threading

import pytest

from tao_sdk.errors import JobNotFoundError, UnknownOptionError, WaitTimeoutError
from tao_sdk.models import Job
from tao_sdk.platforms.conformance.lab import Lab, eventually, reference
from tao_sdk.result_record import ResultRecord

LONG = 90


class TestOutcomes:
    # seed 000.9, seed 000.18
    def test_success(self, lab: Lab) -> None:
        sdk = lab.sdk()
        job = sdk.create_job(**lab.job("echo fine"))
        status = job.wait(timeout=LONG)
        assert status.status == "Complete"
        assert job.status == "Complete"
        assert sdk.get_failure_analysis(job.id) is None
        row = sdk.store.get_job(job.id)
        assert row is not None
        assert row["exit_code"] == 0
        assert row["started_at"] <= row["ended_at"]

    # seed 000.19
    @pytest.mark.parametrize("code", [1, 3, 42, 124])
    def test_failure_has_its_exit_code_and_an_explanation(self, lab: Lab, code: int) -> None:
        sdk = lab.sdk()
        job = sdk.create_job(**lab.job(f"echo it went wrong; exit {code}"))
        assert job.wait(timeout=LONG).status == "Error"
        analysis = job.explain()
        assert analysis is not None
        assert analysis["exit_code"] == code
        assert analysis["err_class"] == "ERR_PROGRAM"
        assert analysis["suggestion"]
        assert any("it went wrong" in line for line in analysis["evidence"])
        assert set(analysis) >= {
            "cause",
            "node",
            "rank",
            "retriable",
            "job_failure_by_node_event",
        }

    def test_death_by_signal_is_128_plus_its_number(self, lab: Lab) -> None:
        job = lab.sdk().create_job(**lab.job("kill -SEGV $$"))
        assert job.wait(timeout=LONG).status == "Error"
        analysis = job.explain()
        assert analysis is not None
        assert analysis["exit_code"] == 139

    def test_command_that_does_not_exist(self, lab: Lab) -> None:
        job = lab.sdk().create_job(**lab.job("no-such-program-anywhere"))
        assert job.wait(timeout=LONG).status == "Error"
        analysis = job.explain()
        assert analysis is not None
        assert analysis["exit_code"] == 127
        assert "not found" in analysis["cause"]

    def test_running_is_seen(self, lab: Lab) -> None:
        sdk = lab.sdk()
        job = sdk.create_job(**lab.job("sleep 60"))
        eventually(lambda: sdk.get_job_status(job.id).status == "Running")
        with pytest.raises(WaitTimeoutError, match=f"go on: {job.id} is Running"):
            job.wait(timeout=0.1)
        assert job.cancel()

    def test_unknown_job(self, lab: Lab) -> None:
        sdk = lab.sdk()
        status = sdk.get_job_status("no-such-job")
        assert (status.status, status.message) == ("Unknown", "Job not found")
        assert sdk.get_job_logs("no-such-job") == ""
        assert sdk.get_job("no-such-job") is None
        assert sdk.cancel_job("no-such-job") is False
        assert sdk.get_failure_analysis("no-such-job") is None
        with pytest.raises(JobNotFoundError, match="no-such-job"):
            sdk.wait("no-such-job", timeout=1)

    def test_results_and_record(self, lab: Lab) -> None:
        sdk = lab.sdk()
        job = sdk.create_job(
            **lab.job('echo data > "$TAO_RESULTS_ROOT/$TAO_JOB_ID/out.txt"; exit 4')
        )
        job.wait(timeout=LONG)
        assert job.results_dir == sdk.get_job_results_dir(job.id)
        assert job.results_dir.endswith(job.id)
        [record] = sdk.backend.result_records(reference(sdk, job.id))
        assert isinstance(record, ResultRecord)
        assert (record.exit_code, record.rank, record.attempt) == (4, 0, 1)
        assert record.started_at <= record.ended_at

    # seed 003.7 (variables)
    def test_several_nodes(self, lab: Lab) -> None:
        if not lab.multi_node:
            pytest.skip("this platform has single-node jobs only")
        names = (
            "WORLD_SIZE NNODES NUM_GPU_PER_NODE NPROC_PER_NODE NODE_RANK MASTER_ADDR MASTER_PORT"
        )
        script = f'for n in {names}; do eval "echo $n=\\$$n"; done'
        sdk = lab.sdk()
        job = sdk.create_job(**lab.job(script), num_nodes=2)
        assert job.wait(timeout=LONG).status == "Complete"
        logs = sdk.get_job_logs(job.id)
        for rank in (0, 1):
            mine = [line for line in logs.splitlines() if f"[rank {rank}]" in line]
            said = dict(line.split("] ", 1)[1].split("=", 1) for line in mine)
            assert said["WORLD_SIZE"] == said["NNODES"] == "2"
            assert said["NUM_GPU_PER_NODE"] == said["NPROC_PER_NODE"] == "0"
            assert said["NODE_RANK"] == str(rank)
            assert said["MASTER_ADDR"]
            assert said["MASTER_PORT"].isdigit()
        assert len(sdk.get_job_replicas(job.id)) == 2

    def test_first_failing_rank_is_named_and_stops_the_others(self, lab: Lab) -> None:
        if not lab.multi_node:
            pytest.skip("this platform has single-node jobs only")
        sdk = lab.sdk()
        job = sdk.create_job(**lab.job('[ "$NODE_RANK" = 1 ] && exit 9; sleep 300'), num_nodes=3)
        assert job.wait(timeout=LONG).status == "Error"
        analysis = job.explain()
        assert analysis is not None
        assert (analysis["rank"], analysis["exit_code"]) == (1, 9)
        collateral = [
            event
            for event in analysis["job_failure_by_node_event"]
            if "collateral" in event["message"]
        ]
        assert len(collateral) == 2


class TestLogs:
    # seed 000.18
    def test_whole_and_tail(self, lab: Lab) -> None:
        sdk = lab.sdk()
        job = sdk.create_job(**lab.job("for i in 1 2 3 4 5; do echo line $i; done; echo oops >&2"))
        job.wait(timeout=LONG)
        whole = sdk.get_job_logs(job.id).splitlines()
        assert sorted(whole) == ["line 1", "line 2", "line 3", "line 4", "line 5", "oops"]
        assert sdk.get_job_logs(job.id, tail=2).splitlines() == whole[-2:]
        assert sdk.get_job_logs(job.id, tail=0) == ""
        assert "".join(sdk.iter_job_log_chunks(job.id, chunk_size=8)) == sdk.get_job_logs(job.id)

    # seed 000.2
    def test_follow_shows_lines_while_the_job_runs(self, lab: Lab) -> None:
        """The job waits for us to have seen its first line: no line, no end."""
        sdk = lab.sdk()
        job = sdk.create_job(
            **lab.job(
                'echo first; d="$TAO_RESULTS_ROOT/$TAO_JOB_ID"; '
                'while [ ! -e "$d/seen" ]; do sleep 0.05; done; echo last'
            )
        )
        lines = []
        for line in job.logs(follow=True):
            lines.append(line)
            if line == "first":
                lab.touch_result(job, "seen")
        assert lines == ["first", "last"]
        assert sdk.get_job_status(job.id).status == "Complete"

    def test_follow_from_now_on(self, lab: Lab) -> None:
        """`tail=0`: nothing of what was, everything that comes."""
        sdk = lab.sdk()
        job = sdk.create_job(
            **lab.job(
                'echo before; d="$TAO_RESULTS_ROOT/$TAO_JOB_ID"; '
                'while [ ! -e "$d/go" ]; do sleep 0.05; done; for i in 1 2 3; do echo $i; done'
            )
        )
        eventually(lambda: "before" in sdk.get_job_logs(job.id))
        lines: list[str] = []
        stream = sdk.stream_logs(job.id, tail=0)
        follower = threading.Thread(target=lambda: lines.extend(stream))
        follower.start()
        eventually(lambda: stream.cursor)
        lab.touch_result(job, "go")
        follower.join(LONG)
        assert lines == ["1", "2", "3"]

    def test_cursor_goes_on_where_it_stopped(self, lab: Lab) -> None:
        sdk = lab.sdk()
        job = sdk.create_job(**lab.job("for i in 1 2 3 4 5 6 7; do echo $i; done"))
        job.wait(timeout=LONG)
        stream = sdk.stream_logs(job.id, follow=False)
        head = [next(stream), next(stream), next(stream)]
        rest = list(lab.sdk().stream_logs(job.id, follow=False, cursor=stream.cursor))
        assert head + rest == ["1", "2", "3", "4", "5", "6", "7"]

    def test_line_without_end_and_strange_bytes(self, lab: Lab) -> None:
        sdk = lab.sdk()
        job = sdk.create_job(**lab.job(r"printf 'caf\303\251 \377 \360\237\230\200\rbar'"))
        job.wait(timeout=LONG)
        assert sdk.get_job_logs(job.id) == "café � 😀\rbar\n"


class TestCancel:
    def test_pending(self, lab: Lab) -> None:
        sdk = lab.sdk()
        job = lab.pending_job(sdk)
        if job is None:
            pytest.skip("this platform starts every job at once")
        status = sdk.get_job_status(job.id)
        assert status.status == "Pending"
        assert status.message, "why it waits must be said"
        assert job.cancel()
        assert job.status == "Canceled"
        assert lab.starts_of(job.id) == 0

    def test_running(self, lab: Lab) -> None:
        sdk = lab.sdk()
        job = sdk.create_job(**lab.job("echo up; sleep 600"))
        eventually(lambda: "up" in sdk.get_job_logs(job.id))
        assert job.cancel()
        assert job.status == "Canceled"
        assert sdk.get_job_status(job.id).status == "Canceled"
        assert "up" in sdk.get_job_logs(job.id)
        assert sdk.cancel_job(job.id) is True

    def test_grace_lets_a_trainer_save(self, lab: Lab) -> None:
        sdk = lab.sdk()
        job = sdk.create_job(
            **lab.job('trap "echo saved; exit 0" TERM; echo up; while :; do sleep 0.05; done')
        )
        eventually(lambda: "up" in sdk.get_job_logs(job.id))
        assert job.cancel()
        assert job.status == "Canceled"
        assert sdk.get_job_logs(job.id).count("saved") == 1

    def test_a_job_that_ignores_sigterm_is_killed(
        self, lab: Lab, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("TAO_GRACE_SECONDS", "0.5")
        sdk = lab.sdk()
        job = sdk.create_job(**lab.job('trap "" TERM; echo up; while :; do sleep 0.05; done'))
        eventually(lambda: "up" in sdk.get_job_logs(job.id))
        assert job.cancel()
        assert job.status == "Canceled"

    def test_ended_job_keeps_its_state(self, lab: Lab) -> None:
        sdk = lab.sdk()
        job = sdk.create_job(**lab.job("exit 5"))
        job.wait(timeout=LONG)
        assert sdk.cancel_job(job.id) is True
        assert sdk.get_job_status(job.id).status == "Error"


class TestEnvironment:
    # seed 000.11
    def test_what_a_job_finds(self, lab: Lab) -> None:
        sdk = lab.sdk()
        job = sdk.create_job(
            **lab.job('echo "$TAO_JOB_ID|$TAO_RESULTS_ROOT|$MINE"'), env_vars={"MINE": "a b'c\"$d"}
        )
        job.wait(timeout=LONG)
        job_id, root, mine = sdk.get_job_logs(job.id).strip().split("|")
        assert job_id == job.id
        assert root
        assert mine == "a b'c\"$d"

    # seed 000.4
    def test_credentials_arrive_under_their_inner_names(
        self, lab: Lab, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("ACCESS_KEY", "outer-access-key")
        monkeypatch.setenv("SECRET_KEY", "outer-secret-key")
        monkeypatch.setenv("HF_TOKEN", "outer-hf-token")
        sdk = lab.sdk()
        script = 'echo "$AWS_ACCESS_KEY_ID $AWS_SECRET_ACCESS_KEY $HF_TOKEN" | rev'
        job = sdk.create_job(**lab.job(script), env_vars={"HF_TOKEN": "callers-own-token"})
        job.wait(timeout=LONG)
        words = sdk.get_job_logs(job.id).strip()[::-1]
        assert words == "outer-access-key outer-secret-key callers-own-token"


class TestPlan:
    def test_a_plan_creates_nothing_and_is_what_runs(self, lab: Lab) -> None:
        sdk = lab.sdk()
        before = lab.jobs_in_reality()
        plan = sdk.plan(**lab.job("echo planned"))
        assert "echo planned" in plan.render()
        assert json.loads(json.dumps(plan.to_dict()))["job_id"] == plan.job_id
        assert sdk.list_jobs() == []
        assert lab.jobs_in_reality() == before
        job = sdk.submit(plan)
        assert job.id == plan.job_id
        assert job.wait(timeout=LONG).status == "Complete"
        assert sdk.get_job_logs(job.id) == "planned\n"

    def test_unknown_keyword(self, lab: Lab) -> None:
        with pytest.raises(UnknownOptionError, match="did you mean 'num_nodes'") as caught:
            lab.sdk().create_job(**lab.job("true"), num_node=2)
        assert isinstance(caught.value, TypeError)

    def test_hooks_are_called(self, lab: Lab) -> None:
        called = threading.Event()
        seen: list[str] = []

        def completed(job: Job) -> None:
            seen.append(job.id)
            called.set()

        sdk = lab.sdk()
        sdk.poll_interval = 0.05
        try:
            job = sdk.create_job(
                **lab.job("echo Epoch 10/10"),
                hooks={
                    "on_epoch_milestone": lambda _job, epoch, total: seen.append(
                        f"{epoch}/{total}"
                    ),
                    "on_complete": completed,
                },
            )
            assert called.wait(LONG)
            assert seen == ["10/10", job.id]
        finally:
            sdk.close()


class TestData:
    # seed 000.10
    def test_inputs_are_brought_and_outputs_taken_away(self, lab: Lab) -> None:
        given, made = f"{lab.scratch}/in/numbers", f"{lab.scratch}/out"
        asked = lab.data_job(f"mkdir -p {made} && sort -r {given} > {made}/sorted")
        if asked is None:
            pytest.skip("this lab has no image with Python")
        uri = lab.offer_data("numbers", b"1\n3\n2\n")
        sdk = lab.sdk()
        job = sdk.create_job(**asked, inputs={given: uri}, outputs=[made])
        assert job.wait(timeout=LONG).status == "Complete", sdk.get_job_logs(job.id)
        assert lab.read_result(job, "out/sorted") == b"3\n2\n1\n"

    def test_a_plan_says_what_is_brought_and_taken_away(self, lab: Lab) -> None:
        asked = lab.data_job("true")
        if asked is None:
            pytest.skip("this lab has no image with Python")
        plan = lab.sdk().plan(**asked, inputs={"/data/x": "s3://bucket/x"}, outputs=["/out"])
        text = plan.render()
        assert "s3://bucket/x" in text
        assert "/out" in text
