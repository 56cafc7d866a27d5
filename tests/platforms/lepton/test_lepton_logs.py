"""Logs of jobs of a played workspace: of any length, followed, gone on with elsewhere."""

from __future__ import annotations

import threading
from contextlib import closing

import pytest
from lepton_lab import LeptonLab

from lab.follower import Follower
from lab.lepton import LeptonServer
from tao_sdk.platforms.conformance import eventually
from tao_sdk.platforms.conformance.lab import reference
from tao_sdk.platforms.lepton import LeptonSDK

LONG = 60.0
FOUR_STEPS = (
    'd="$TAO_RESULTS_ROOT/$TAO_JOB_ID"; for i in 1 2 3 4; do echo "at $i"; '
    'while [ ! -e "$d/$i" ]; do sleep 0.02; done; done; echo end'
)
"""Each one waits for a result of its number."""


class TestLogs:
    def test_far_more_than_a_page(self, sdk: LeptonSDK, lab: LeptonLab) -> None:
        job = sdk.create_job(**lab.job("seq 1 12345"))
        assert job.wait(timeout=LONG).status == "Complete"
        expected = [str(number) for number in range(1, 12346)]
        assert list(job.logs()) == expected
        assert sdk.get_job_logs(job.id, tail=7000).splitlines() == expected[-7000:]
        stream = sdk.stream_logs(job.id, follow=False)
        head = [next(stream) for _ in range(6001)]
        rest = list(lab.sdk().stream_logs(job.id, follow=False, cursor=stream.cursor))
        assert head + rest == expected

    def test_a_running_job_is_followed_by_a_stream(
        self, sdk: LeptonSDK, lab: LeptonLab, server: LeptonServer
    ) -> None:
        job = sdk.create_job(
            **lab.job(
                'echo first; d="$TAO_RESULTS_ROOT/$TAO_JOB_ID"; '
                'while [ ! -e "$d/go" ]; do sleep 0.05; done; '
                "for i in $(seq 40); do echo $i; echo; sleep 0.05; done"
            )
        )
        follower = Follower(job.logs(follow=True))
        live = f"/jobs/{job.backend_job_id}/replicas/{server.job_of(job.id).workers[0].id}/log"
        eventually(lambda: f"GET {live}" in server.calls())
        asked = server.calls().count("GET /logs")
        lab.touch_result(job, "go")
        expected = ["first"] + [text for n in range(1, 41) for text in (str(n), "")]
        assert follower.all(LONG) == expected
        assert server.calls().count(f"GET {live}") == 1
        assert server.calls().count("GET /logs") - asked <= 2, "what is left at the end"

    def test_any_thread_ends_a_read_that_waits(
        self, sdk: LeptonSDK, lab: LeptonLab, server: LeptonServer
    ) -> None:
        job = sdk.create_job(**lab.job("echo up; sleep 600"))
        [source] = sdk.backend.log_sources(reference(sdk, job.id))
        reader = source.open("", tail=None, follow=True)
        assert [line.text for line in next(reader).lines] == ["up"]
        ended = []
        thread = threading.Thread(target=lambda: ended.append(next(reader, None)))
        thread.start()
        eventually(lambda: any(call.endswith("/log") for call in server.calls()))
        reader.close()
        thread.join(LONG)
        assert ended == [None]
        assert job.cancel()

    def test_nothing_is_asked_while_a_stream_is_silent(
        self, sdk: LeptonSDK, lab: LeptonLab, server: LeptonServer
    ) -> None:
        job = sdk.create_job(**lab.job(FOUR_STEPS))
        [source] = sdk.backend.log_sources(reference(sdk, job.id))
        with closing(source.open("", tail=None, follow=True)) as reader:
            assert [line.text for line in next(reader).lines] == ["at 1"]
            lab.touch_result(job, "1")
            assert [line.text for line in next(reader).lines] == ["at 2"]
            opened = len(server.requests)
            for number in (2, 3):
                lab.touch_result(job, str(number))
                assert [line.text for line in next(reader).lines] == [f"at {number + 1}"]
            assert len(server.requests) == opened
            lab.touch_result(job, "4")
            assert [line.text for chunk in reader for line in chunk.lines] == ["end"]

    def test_a_stream_that_breaks_loses_and_repeats_nothing(
        self, sdk: LeptonSDK, lab: LeptonLab, server: LeptonServer
    ) -> None:
        job = sdk.create_job(**lab.job(FOUR_STEPS))
        follower = Follower(job.logs(follow=True))
        worker = server.job_of(job.id).workers[0]
        eventually(lambda: any(call.endswith("/log") for call in server.calls()))
        for number in (1, 2, 3):
            with server.cut():
                lab.touch_result(job, str(number))
                eventually(lambda n=number: len(worker.lines) > n)
            eventually(lambda n=number: f"at {n + 1}" in follower.lines)
        lab.touch_result(job, "4")
        assert follower.all(LONG) == ["at 1", "at 2", "at 3", "at 4", "end"]

    def test_a_log_followed_by_a_stream_is_gone_on_with_elsewhere(
        self, sdk: LeptonSDK, lab: LeptonLab, server: LeptonServer
    ) -> None:
        job = sdk.create_job(**lab.job(FOUR_STEPS))
        stream = sdk.stream_logs(job.id, follow=True)
        assert next(stream) == "at 1"
        thread = threading.Thread(
            target=lambda: eventually(lambda: "/log" in str(server.calls()), LONG)
        )
        thread.start()
        seen = []
        follower = threading.Thread(target=lambda: seen.append(next(stream)))
        follower.start()
        eventually(lambda: any(call.endswith("/log") for call in server.calls()))
        lab.touch_result(job, "1")
        follower.join(LONG)
        thread.join(LONG)
        assert seen == ["at 2"]
        cursor = stream.cursor
        stream.close()
        for number in (2, 3, 4):
            lab.touch_result(job, str(number))
        job.wait(timeout=LONG)
        rest = list(lab.sdk().stream_logs(job.id, follow=False, cursor=cursor))
        assert rest == ["at 3", "at 4", "end"]

    @pytest.mark.parametrize("skips", [0, 1])
    def test_several_workers_are_followed(
        self, sdk: LeptonSDK, lab: LeptonLab, server: LeptonServer, skips: int
    ) -> None:
        """Also if a stream is not the log that was read: it is not used then."""
        server.faults.live_skips = skips
        script = (
            'echo a; echo b; d="$TAO_RESULTS_ROOT/$TAO_JOB_ID"; '
            'while [ ! -e "$d/go" ]; do sleep 0.05; done; '
            'for i in 1 2 3 4 5; do echo "$NODE_RANK says $i"; sleep 0.1; done'
        )
        job = sdk.create_job(**lab.job(script), num_nodes=2)
        follower = Follower(job.logs(follow=True))
        eventually(lambda: sum(call.endswith("/log") for call in server.calls()) >= 2)
        lab.touch_result(job, "go")
        lines = follower.all(LONG)
        for rank in (0, 1):
            said = [f"{rank} says {number}" for number in range(1, 6)]
            mine = [line.partition("] ")[2] for line in lines if line.startswith(f"[rank {rank}]")]
            assert mine == ["a", "b", *said]

    def test_what_is_kept_may_be_behind(
        self, sdk: LeptonSDK, lab: LeptonLab, server: LeptonServer
    ) -> None:
        server.faults.log_lag = 1.5
        job = sdk.create_job(**lab.job("echo one; echo two"))
        assert job.wait(timeout=LONG).status == "Complete"
        assert sdk.get_job_logs(job.id) == "one\ntwo\n"

    def test_records_and_empty_lines(self, sdk: LeptonSDK, lab: LeptonLab) -> None:
        for script, expected in (
            ("echo a; echo", "a\n\n"),
            ("echo", "\n"),
            ("true", ""),
            ("printf a", "a\n"),
            (
                "echo tao-sdk-result; echo 'tao-sdk-result {}'",
                "tao-sdk-result\ntao-sdk-result {}\n",
            ),
        ):
            job = sdk.create_job(**lab.job(script))
            job.wait(timeout=LONG)
            assert sdk.get_job_logs(job.id) == expected
