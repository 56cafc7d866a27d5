"""Several ranks of one job, as a whole."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from entrypoints import JOB, Container, Ended, container, entrypoint, until
from stores import Bucket

from lab.faults import Fault, FaultProxy
from lab.transfers import noise

RANKS = range(4)


@contextlib.contextmanager
def hosts(tmp_path: Path, count: int, *, shared: bool) -> Iterator[list[Container]]:
    """Containers with one file system, or with one each."""
    with contextlib.ExitStack() as stack:
        yield [
            stack.enter_context(container(tmp_path / ("all" if shared else f"host-{rank}")))
            for rank in range(count)
        ]


def run_on(
    boxes: list[Container], command: str, env: dict[str, str], *, attempt: int = 1
) -> list[Ended]:
    """All ranks at once, the last one first."""
    started = [
        (box, box.start(command, {**env, "NODE_RANK": str(rank), "TAO_ATTEMPT": str(attempt)}))
        for rank, box in reversed(list(enumerate(boxes)))
    ]
    return [box.end(process) for box, process in reversed(started)]


def test_one_stages_and_all_see_everything(tmp_path: Path, bucket: Bucket) -> None:
    """Lesson A3: on a shared file system nobody starts on half a file, and each file comes once."""
    content = noise(600_000)
    bucket.put({"in/data.bin": content, **{f"in/{n}.txt": b"%d" % n for n in range(8)}})

    def slowly(number: int, method: str, target: str) -> Fault | None:
        return Fault(delay=0.2) if "/in/" in target else None

    with hosts(tmp_path, len(RANKS), shared=True) as boxes, FaultProxy(bucket.url, slowly) as proxy:
        command = entrypoint(
            command="cat $(sed -n 's/^d = \"\\(.*\\)\"/\\1/p' {config_path})/* | sha256sum",
            specs={"d": "s3://bucket/in"},
            inputs=["d"],
        )
        root = str(boxes[0].root)
        env = {**bucket.env, "S3_ENDPOINT_URL": proxy.url, "TAO_RESULTS_ROOT": root}
        ended = run_on(boxes, command, env)
        assert [each.code for each in ended] == [0] * 4, "\n".join(e.err for e in ended)
        assert len({each.out for each in ended}) == 1
        assert proxy.count("GET", "/in/data.bin") == 1
        assert sum("which stages the inputs" in each.err for each in ended) == 3
        for rank in RANKS:
            assert boxes[0].record(rank)["rank"] == rank


def test_ranks_with_disks_of_their_own_each_stage(tmp_path: Path, bucket: Bucket) -> None:
    """Lesson A3: nobody waits for what will never appear on its own disk."""
    bucket.put({"in/a": b"1"})
    with hosts(tmp_path, 2, shared=False) as boxes, FaultProxy(bucket.url) as proxy:
        command = entrypoint(
            command="true {config_path}", specs={"d": "s3://bucket/in"}, inputs=["d"]
        )
        ended = run_on(boxes, command, {**bucket.env, "S3_ENDPOINT_URL": proxy.url})
        assert [each.code for each in ended] == [0, 0]
        assert proxy.count("GET", "/in/a") == 2


def test_when_the_stager_fails_all_say_why(tmp_path: Path, bucket: Bucket) -> None:
    """Lesson A3: the cause, in every log; and the next attempt tries again."""
    with hosts(tmp_path, 3, shared=True) as boxes:
        command = entrypoint(
            command="echo ran {config_path}", specs={"d": "s3://bucket/late"}, inputs=["d"]
        )
        env = {**bucket.env, "TAO_RESULTS_ROOT": str(boxes[0].root)}
        for each in run_on(boxes, command, env):
            assert (each.code, each.out) == (1, "")
            assert "s3://bucket/late" in each.error
        bucket.put({"late/a": b"1"})
        ended = run_on(boxes, command, env, attempt=2)
        assert [each.code for each in ended] == [0, 0, 0], ended[0].err


def test_those_who_wait_give_up_in_time(tmp_path: Path, bucket: Bucket) -> None:
    """Lesson A3: after TAO_STAGE_WAIT_SECONDS, naming whom they waited for."""
    bucket.put({"in/a": b"1"})
    with (
        hosts(tmp_path, 2, shared=True) as boxes,
        FaultProxy(bucket.url, lambda *_: Fault(stall_after=0)) as proxy,
    ):
        command = entrypoint(
            command="true {config_path}", specs={"d": "s3://bucket/in"}, inputs=["d"]
        )
        env = {**bucket.env, "S3_ENDPOINT_URL": proxy.url, "TAO_RESULTS_ROOT": str(boxes[0].root)}
        stager = boxes[0].start(command, env)
        until(lambda: proxy.requests, "staging")
        ended = boxes[1].run(
            command, env={**env, "NODE_RANK": "1", "TAO_STAGE_WAIT_SECONDS": "0.3"}
        )
        assert ended.code == 1
        assert "waiting for rank 0 on" in ended.error
        assert "TAO_STAGE_WAIT_SECONDS" in ended.error
        stager.terminate()
        assert boxes[0].end(stager).code == 143


def test_what_was_staged_onto_another_disk_comes_again(tmp_path: Path, bucket: Bucket) -> None:
    """Lesson A3: the job's folder is shared, the place that the input goes to is not."""
    bucket.put({"in/a": b"1", "ann": b'[{"v": "a"}]'})
    with hosts(tmp_path, 1, shared=True) as (box,), FaultProxy(bucket.url) as proxy:
        own = {name: {"container_path": str(box.folder / name)} for name in ("d", "ann")}
        own["d"]["selective"] = {"annotation": "ann", "format": "json", "keys": ["v"]}
        command = entrypoint(
            command=f"cat {box.folder}/d/a {{config_path}}",
            specs={"d": "s3://bucket/in", "ann": "s3://bucket/ann"},
            inputs=own,
        )
        env = {**bucket.env, "S3_ENDPOINT_URL": proxy.url, "TAO_RESULTS_ROOT": str(box.root)}
        first = box.run(command, env=env)
        shutil.rmtree(box.folder / "d")  # so it looks to a rank with a disk of its own
        shutil.rmtree(box.folder / "ann")
        second = box.run(command, env={**env, "NODE_RANK": "1"})
        third = box.run(command, env={**env, "NODE_RANK": "2"})
        assert first.out == second.out == third.out
        assert "comes here as well" in second.err
        assert "staged" not in third.err, "what is visible is not brought again"
        assert proxy.count("GET", "/in/a") == 2


@pytest.mark.parametrize("how", ["killed", "stopped"])
def test_the_next_attempt_does_not_wait_for_the_last_one(
    tmp_path: Path, bucket: Bucket, how: str
) -> None:
    """Lesson A3: the holder of the turn is gone, whatever it left behind."""
    bucket.put({"in/a": b"1"})
    with hosts(tmp_path, 2, shared=True) as boxes:
        command = entrypoint(
            command="echo ran {config_path}", specs={"d": "s3://bucket/in"}, inputs=["d"]
        )
        env = {**bucket.env, "TAO_RESULTS_ROOT": str(boxes[0].root)}
        with FaultProxy(bucket.url, lambda *_: Fault(stall_after=0)) as proxy:
            process = boxes[0].start(command, {**env, "S3_ENDPOINT_URL": proxy.url})
            until(lambda: proxy.requests, "staging")
            process.kill() if how == "killed" else process.terminate()
            boxes[0].end(process)
        env["TAO_STAGE_WAIT_SECONDS"] = "5"
        ended = run_on(boxes, command, env, attempt=2)
        assert [each.code for each in ended] == [0, 0], ended[0].err + ended[1].err


def test_ranks_do_not_overwrite_each_others_results(tmp_path: Path, bucket: Bucket) -> None:
    """Rank 0 delivers to the destination, the others below it by their number."""
    with hosts(tmp_path, 3, shared=False) as boxes:
        command = entrypoint(
            command="out=$(sed -n 's/^out = \"\\(.*\\)\"/\\1/p' {config_path}); "
            'echo "$NODE_RANK" > "$out/log.txt"',
            specs={"out": ""},
            outputs=["out"],
        )
        ended = run_on(boxes, command, bucket.results)
        assert [each.code for each in ended] == [0, 0, 0], ended[1].err
    found = {key: bucket.read(key) for key in bucket.names()}
    records = {key for key in found if "tao_result" in key}
    assert {key: found[key] for key in set(found) - records} == {
        f"results/{JOB}/out/log.txt": b"0\n",
        f"results/{JOB}/out/rank1/log.txt": b"1\n",
        f"results/{JOB}/out/rank2/log.txt": b"2\n",
    }
    assert {json.loads(found[key])["rank"] for key in records} == {0, 1, 2}


def test_each_rank_has_a_spec_of_its_own(tmp_path: Path) -> None:
    """Lesson A3: none reads what another is just writing."""
    with hosts(tmp_path, 4, shared=True) as boxes:
        command = entrypoint(command="cat {config_path}", specs={"x": "y" * 100_000})
        ended = run_on(boxes, command, {"TAO_RESULTS_ROOT": str(boxes[0].root)})
        assert [len(each.out) for each in ended] == [100_007] * 4
        assert len(list(boxes[0].work.glob("spec*.toml"))) == 4
