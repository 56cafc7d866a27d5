"""What stopped the runner is recognised: the log of a real failure, explained as a client does."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from entrypoints import Container, Ended, entrypoint
from stores import Bucket

from lab.faults import Fault, FaultProxy
from lab.hub import Hub
from tao_sdk.failures import Evidence, explain
from tao_sdk.failures.judge import diagnose

ONCE = {"TAO_TRANSFER_ATTEMPTS": "1", "TAO_STALL_SECONDS": "1"}


def cause_of(ended: Ended) -> str:
    """The id of the cause; the explanation must quote the runner and say what to do."""
    evidence = Evidence(exit_code=ended.code, log_tail=ended.out + ended.err)
    found, told = diagnose(evidence), explain(evidence)
    assert told["suggestion"]
    assert "tao-runner: error: " in " ".join(told["evidence"])
    return found.cause.id


def staging(box: Container, uri: str, env: dict[str, str]) -> Ended:
    target = box.folder / "data" / Path(uri).name
    return box.run("echo ran", env=env, inputs={str(target): uri})


def test_no_credentials(box: Container, bucket: Bucket) -> None:
    env = {"S3_ENDPOINT_URL": bucket.url, "AWS_EC2_METADATA_DISABLED": "true"}
    ended = staging(box, "s3://bucket/in", env)
    assert cause_of(ended) == "staging-credentials"
    assert "ACCESS_KEY" in ended.error
    half = staging(box, "s3://bucket/in", {**env, "ACCESS_KEY": "a", "TAO_ATTEMPT": "2"})
    assert "SECRET_KEY" in half.error
    assert cause_of(half) == "staging-credentials"


def test_a_wrong_key(box: Container, bucket: Bucket) -> None:
    ended = staging(box, "s3://bucket/in", {**bucket.env, "SECRET_KEY": "not-the-right-secret"})
    assert cause_of(ended) == "staging-credentials"
    assert "not-the-right-secret" not in ended.err


@pytest.mark.parametrize("uri", ["s3://bucket/missing", "s3://no-such-bucket/x"])
def test_not_there(box: Container, bucket: Bucket, uri: str) -> None:
    assert cause_of(staging(box, uri, bucket.env)) == "staging-not-found"


def test_hubs(box: Container) -> None:
    with Hub() as hub:
        hub.add("models", "org/closed", {"a": b"1"}, gated=True)
        gated = staging(box, "hf_model://org/closed", {"HF_ENDPOINT": hub.url})
        assert cause_of(gated) == "staging-credentials"
        env = {"HF_ENDPOINT": hub.url, "TAO_ATTEMPT": "2", "HF_TOKEN": "hf_known_to_the_hub"}
        hub.tokens.add("hf_known_to_the_hub")
        assert cause_of(staging(box, "hf_model://org/nothing", env)) == "staging-not-found"


def test_nobody_answers(box: Container, bucket: Bucket) -> None:
    env = {**bucket.env, **ONCE, "S3_ENDPOINT_URL": "http://127.0.0.1:1"}
    ended = staging(box, "s3://bucket/in", env)
    assert cause_of(ended) == "staging-unreachable"
    assert "127.0.0.1:1" in ended.error


def test_the_store_keeps_failing(box: Container, bucket: Bucket) -> None:
    with FaultProxy(bucket.url, lambda *_: Fault(status=503)) as proxy:
        env = {**bucket.env, **ONCE, "S3_ENDPOINT_URL": proxy.url}
        assert cause_of(staging(box, "s3://bucket/in", env)) == "staging-unreachable"


def test_a_damaged_archive(box: Container, bucket: Bucket) -> None:
    bucket.put({"x.tar.gz": b"\x1f\x8b\x08\x00 this is no archive"})
    assert cause_of(staging(box, "s3://bucket/x.tar.gz", bucket.env)) == "staging-bad-data"


def test_a_disk_without_room(box: Container, bucket: Bucket) -> None:
    """A limit of the shell stands for the end of the disk."""
    bucket.put({"big": os.urandom(300_000)})
    command = entrypoint(command="echo ran", inputs={f"{box.folder}/d": "s3://bucket/big"})
    assert cause_of(box.run(f"ulimit -f 1; {command}", env=bucket.env)) == "staging-no-space"


def test_a_variable_that_is_missing(box: Container) -> None:
    ended = box.run("x {config_path}", specs={"key": "${env:NOT_THERE}"})
    assert cause_of(ended) == "runner-refused"


def test_an_image_without_python(box: Container) -> None:
    tools = box.folder / "bin"
    tools.mkdir()
    (tools / "bash").symlink_to("/bin/bash")
    ended = box.run(entrypoint(command="true"), env={"PATH": str(tools)})
    assert ended.code == 127
    assert cause_of(ended) == "runner-no-python"


@pytest.mark.parametrize(
    ("fault", "cause"),
    [(Fault(status=500), "delivery-failed"), (Fault(status=403), "delivery-denied")],
)
def test_results_that_did_not_arrive(
    box: Container, bucket: Bucket, fault: Fault, cause: str
) -> None:
    out = box.folder / "out"
    with FaultProxy(bucket.url, lambda n, method, t: fault if method == "PUT" else None) as proxy:
        env = {**bucket.results, **ONCE, "S3_ENDPOINT_URL": proxy.url}
        ended = box.run(f"echo 1 > {out}", env=env, outputs=[str(out)])
        assert ended.code == 74
        assert cause_of(ended) == cause


PROGRAM = "import sys; print('Epoch 1/3 loss=0.5'); open(sys.argv[1], 'w'); {}['missing']"


@pytest.mark.parametrize("delivery", ["works", "fails"])
def test_the_commands_own_failure_comes_first(
    box: Container, bucket: Bucket, delivery: str
) -> None:
    """Whatever the runner says after it about the delivery."""
    out = box.folder / "out.txt"
    (box.cwd / "train.py").write_text(PROGRAM)

    def script(number: int, method: str, target: str) -> Fault | None:
        return Fault(status=500) if delivery == "fails" and method == "PUT" else None

    with FaultProxy(bucket.url, script) as proxy:
        ended = box.run(
            f"python3 train.py {out}",
            env={**bucket.results, **ONCE, "S3_ENDPOINT_URL": proxy.url},
            outputs=[str(out)],
        )
    assert ended.code == 1
    told = explain(Evidence(exit_code=1, log_tail=ended.out + ended.err))
    assert "KeyError" in told["cause"]


def test_a_stop_is_a_stop(box: Container, bucket: Bucket, tmp_path: Path) -> None:
    """SIGTERM while staging is nobody's mistake."""
    with FaultProxy(bucket.url, lambda *_: Fault(stall_after=0)) as proxy:
        process = box.start(
            entrypoint(command="true", inputs={str(tmp_path / "d"): "s3://bucket/in"}),
            {**bucket.env, "S3_ENDPOINT_URL": proxy.url},
        )
        while not proxy.requests:
            assert process.poll() is None
        process.terminate()
        ended = box.end(process)
    assert diagnose(Evidence(exit_code=ended.code, log_tail=ended.err)).cause.id == "terminated"
