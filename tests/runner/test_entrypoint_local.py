"""The whole command on the local platform, through `create_job` and the command line."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from entrypoints import entrypoint, files_below, until
from stores import Bucket

from lab.faults import Fault, FaultProxy
from tao_sdk import LocalSDK
from tao_sdk.progress import ProgressReader
from tao_sdk.result_record import ResultRecord

LONG = 60


@pytest.fixture
def sdk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalSDK]:
    monkeypatch.setenv("TAO_SDK_STATE_DIR", str(tmp_path / "state"))
    for name in ("TAO_RESULTS_ROOT", "S3_BUCKET_NAME", "AWS_ACCESS_KEY_ID", "AWS_ENDPOINT_URL"):
        monkeypatch.delenv(name, raising=False)
    with LocalSDK(work_dir=tmp_path / "jobs") as made:
        yield made


@pytest.fixture
def store(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> Bucket:
    """The bucket, with its credentials in the client's environment."""
    for name, value in bucket.env.items():
        monkeypatch.setenv(name, value)
    return bucket


@pytest.mark.seed("000.10", "000.11", "000.12")
def test_inputs_come_and_outputs_are_on_the_mount(
    sdk: LocalSDK, store: Bucket, tmp_path: Path
) -> None:
    """Lesson F10: the documented `inputs=` and `outputs=` are no TypeError; they work."""
    store.put({"in/a": b"A", "in/deep/b": b"B"})
    data, out = tmp_path / "data", tmp_path / "out"
    job = sdk.create_job(
        command=f"mkdir {out}; cat {data}/a {data}/deep/b > {out}/all; echo $TAO_JOB_ID",
        gpu_count=0,
        inputs={str(data): "s3://bucket/in"},
        outputs=[str(out)],
    )
    assert job.wait(timeout=LONG).status == "Complete", sdk.get_job_logs(job.id)
    results = Path(job.results_dir)
    assert results.name == job.id
    assert (results / "out" / "all").read_bytes() == b"AB"
    assert job.id in sdk.get_job_logs(job.id).splitlines()
    record = (results / "tao_result.json").read_text()
    assert ResultRecord.parse(record, job.id)
    assert json.loads(record)["staged"] == {"files": 2, "bytes": 2}
    assert json.loads(record)["delivered"]["files"] == 1, "the shim took the richer record"


def test_progress_is_understood(sdk: LocalSDK, store: Bucket, tmp_path: Path) -> None:
    """What the runner prints is what `ProgressReader`, and with it `tao-sdk logs`, shows."""
    store.put({f"in/{number}": b"x" * 1000 for number in range(5)})
    job = sdk.create_job(
        command="echo Epoch 3/10 loss=0.5",
        gpu_count=0,
        inputs={str(tmp_path / "data"): "s3://bucket/in"},
        outputs={str(tmp_path / "data"): "s3://bucket/out"},
    )
    job.wait(timeout=LONG)
    reader, seen = ProgressReader(), []
    for line in sdk.get_job_logs(job.id).splitlines():
        if reader.feed(line):
            seen.append(reader.progress)
    stages = list(dict.fromkeys(progress.stage for progress in seen))
    assert stages == ["staging", "running", "delivering"]
    staged = [progress for progress in seen if progress.stage == "staging"][-1]
    assert (staged.bytes_done, staged.bytes_total, staged.files_done) == (5000, 5000, 5)
    assert staged.fraction == 1
    running = [progress for progress in seen if progress.stage == "running"]
    assert (3, 10) in {(progress.epoch, progress.epochs) for progress in running}
    words = [sys.executable, "-m", "tao_sdk.cli", "logs", job.id]
    shown = subprocess.run(words, capture_output=True, text=True, timeout=LONG)
    assert shown.returncode == 0, shown.stderr
    assert "tao-runner: staged 5 files" in shown.stdout
    assert store.below("out") == {str(number): b"x" * 1000 for number in range(5)}


def test_a_cancelled_job_delivers_what_it_has(
    sdk: LocalSDK, store: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lesson A6: after the grace period the platform waits for the delivery, too."""
    monkeypatch.setenv("TAO_GRACE_SECONDS", "0.3")
    monkeypatch.setenv("TAO_DELIVERY_SECONDS", "30")
    out = tmp_path / "out"

    def slowly(number: int, method: str, target: str) -> Fault | None:
        return Fault(delay=1.5) if method == "PUT" else None

    with FaultProxy(store.url, slowly) as proxy:
        monkeypatch.setenv("S3_ENDPOINT_URL", proxy.url)
        job = sdk.create_job(
            command=f"trap '' TERM; mkdir {out}; echo 1 > {out}/epoch_1.pth; touch {out}/ready; "
            "while :; do sleep 0.05; done",
            gpu_count=0,
            outputs={str(out): "s3://bucket/kept"},
        )
        until(lambda: (out / "ready").exists(), "running")
        assert job.cancel()
        assert job.wait(timeout=LONG).status == "Canceled"
    assert store.below("kept") == {"epoch_1.pth": b"1\n", "ready": b""}


def test_a_spec_of_a_megabyte(sdk: LocalSDK) -> None:
    """Lesson B1: larger than the kernel's limit for one word even when it is packed."""
    dice = random.Random(1)
    spec = {"c": [f"{dice.getrandbits(128):032x}" for _ in range(32_000)]}
    command = entrypoint(
        command="""python3 -c 'import json; print(len(json.load(open("{config_path}"))["c"]))'""",
        specs=spec,
        config_format="json",
    )
    assert len(json.dumps(spec)) > 1024 * 1024
    assert len(command) > 128 * 1024
    job = sdk.create_job(command=command, gpu_count=0)
    assert job.wait(timeout=LONG).status == "Complete", sdk.get_job_logs(job.id)
    assert "32000" in sdk.get_job_logs(job.id).splitlines()


def test_several_ranks(sdk: LocalSDK, store: Bucket, tmp_path: Path) -> None:
    """Lesson A3: one stages for all; each leaves a record."""
    store.put({"in/a": b"A"})
    data = tmp_path / "data"
    job = sdk.create_job(
        command=f'echo "rank $NODE_RANK sees $(cat {data}/a)"',
        gpu_count=0,
        num_nodes=3,
        inputs={str(data): "s3://bucket/in"},
    )
    assert job.wait(timeout=LONG).status == "Complete", sdk.get_job_logs(job.id)
    log = sdk.get_job_logs(job.id)
    assert all(f"rank {rank} sees A" in log for rank in range(3))
    assert log.count("tao-runner: staged 1 file") == 1
    names = {path.name for path in Path(job.results_dir).glob("tao_result*")}
    assert names == {"tao_result.json", "tao_result.1.json", "tao_result.2.json"}


def test_ranks_that_link_the_same_data(sdk: LocalSDK, tmp_path: Path) -> None:
    """Lesson A9: none stumbles over the link that another one has just made."""
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw" / "a").write_text("A")
    links = {str(tmp_path / "links" / str(n)): f"file://{tmp_path}/raw" for n in range(50)}
    job = sdk.create_job(
        command=f"cat {tmp_path}/links/*/a | wc -c", gpu_count=0, num_nodes=4, inputs=links
    )
    assert job.wait(timeout=LONG).status == "Complete", sdk.get_job_logs(job.id)
    assert sorted(path.name for path in (tmp_path / "links").iterdir()) == sorted(
        map(str, range(50))
    )


def test_a_plan_shows_what_the_runner_will_do(sdk: LocalSDK) -> None:
    """What is packed can be read before it is run, and nothing is created."""
    plan = sdk.plan(
        command="train", gpu_count=0, inputs={"/data": "s3://bucket/in"}, outputs=["/out"]
    )
    shown = {artefact.name: artefact.text for artefact in plan.artefacts}
    assert "s3://bucket/in" in shown["runner payload"]
    assert sdk.list_jobs() == []


def test_words_are_wrapped_like_texts(sdk: LocalSDK, tmp_path: Path) -> None:
    job = sdk.create_job(
        command=["sh", "-c", f'mkdir {tmp_path}/out; echo "$1" > {tmp_path}/out/x', "-", "a 'b'"],
        gpu_count=0,
        outputs=[f"{tmp_path}/out"],
    )
    assert job.wait(timeout=LONG).status == "Complete", sdk.get_job_logs(job.id)
    assert files_below(Path(job.results_dir) / "out") == {"x": b"a 'b'\n"}


def test_a_failure_of_the_runner_is_explained(sdk: LocalSDK, store: Bucket, tmp_path: Path) -> None:
    """What stopped it, where, and what to do; not just "exit code 1"."""
    job = sdk.create_job(
        command="true", gpu_count=0, inputs={str(tmp_path / "d"): "s3://bucket/missing"}
    )
    assert job.wait(timeout=LONG).status == "Error"
    why = sdk.get_failure_analysis(job.id)
    assert why is not None
    assert why["err_class"] == "ERR_DATA"
    assert "s3://bucket/missing" in why["cause"]


def test_no_setting_of_ours_reaches_the_record_or_the_store(
    sdk: LocalSDK, store: Bucket, tmp_path: Path
) -> None:
    """Lesson E1: credentials of the client are in the job's environment, and in no file."""
    secret = store.env["SECRET_KEY"]
    store.put({"in/a": b"A"})
    job = sdk.create_job(
        command='test -n "$AWS_SECRET_ACCESS_KEY"',
        gpu_count=0,
        inputs={str(tmp_path / "d"): "s3://bucket/in"},
    )
    assert job.wait(timeout=LONG).status == "Complete", sdk.get_job_logs(job.id)
    found = [path for path, data in files_below(tmp_path).items() if secret.encode() in data]
    assert found == []
