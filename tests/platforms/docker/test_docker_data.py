"""Data in and out of containers: the demo trainer, an object store, nothing pretended."""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from docker_lab import DockerLab

from lab.docker.proxy import Proxy
from lab.docker.python_image import SPEC, python_image, trainer_image
from lab.s3 import SECRET_KEY, Bucket, fresh_bucket
from tao_sdk.platforms.conformance import eventually
from tao_sdk.platforms.docker import DockerSDK
from tao_sdk.script_runner import build_entrypoint

LONG = 120
EXAMPLES = Path(__file__).parents[3] / "examples"
TINY = {"num_samples": 400, "image_size": 12, "seed": 7}


@pytest.fixture
def bucket(lab: DockerLab, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bucket]:
    """A bucket that this process and containers reach under the same address."""
    lab.sdk().backend.prepare()
    form = "{{(index .IPAM.Config 0).Gateway}}"
    gateway = lab.engine.docker("network", "inspect", "tao_default", "-f", form).strip()
    with fresh_bucket("rclone") as bucket:
        host, port = bucket.url.removeprefix("http://").split(":")
        door = Proxy(gateway, (host, int(port)))
        for name, value in bucket.env.items():
            if name != "HOME":
                monkeypatch.setenv(name, value)
        monkeypatch.setenv("S3_ENDPOINT_URL", f"http://{gateway}:{door.port}")
        monkeypatch.setenv("S3_BUCKET_NAME", bucket.name)
        yield bucket
        door.close()


def run_trainer(*words: str) -> str:
    """The trainer on this machine, for data and to compare with."""
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(EXAMPLES)}
    command = [sys.executable, "-m", "tiny_trainer", *words]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=LONG)
    assert done.returncode == 0, done.stderr
    return done.stdout


def training(bucket: Bucket, before: str = "", **train: Any) -> str:
    """A training on data in the bucket; `before` may set `$more`, further values of its spec."""
    specs = {
        "results_dir": "",
        "dataset": {"path": f"{bucket.uri}/digits"},
        "train": {"num_epochs": 3, "resume_training_checkpoint_path": "", **train},
    }
    return build_entrypoint(
        command=f"{before} dino train -e {{config_path}} $more",
        specs=specs,
        inputs={"dataset.path": {"type": "folder"}},
        outputs={"results_dir": {"type": "folder"}},
        config_format="yaml",
    )["command"]


def put_digits(bucket: Bucket, folder: Path) -> None:
    run_trainer("dataset", f"results_dir={folder}", "dataset.num_samples=400")
    for path in folder.iterdir():
        bucket.put(f"digits/{path.name}", path.read_bytes())


def weights_of(log: str) -> str:
    found = re.search(r"weights have sha256 (\w+)", log)
    assert found, log
    return found[1]


class TestTraining:
    def test_with_an_object_store_in_and_out(
        self, lab: DockerLab, bucket: Bucket, tmp_path: Path
    ) -> None:
        put_digits(bucket, tmp_path / "digits")
        sdk = lab.sdk()
        job = sdk.create_job(image=trainer_image(lab.engine), command=training(bucket), gpu_count=0)
        lab.engine.docker("wait", f"tao-job-{job.id}")
        log = sdk.get_job_logs(job.id)
        lab.engine.docker("rm", f"tao-job-{job.id}")
        status = job.wait(timeout=LONG)
        assert status.status == "Complete", "the record in the bucket tells it"
        assert job.results_dir == f"{bucket.uri}/results/{job.id}"
        names = [f"model_epoch_{epoch:03d}.safetensors" for epoch in (1, 2, 3)]
        assert sdk.get_checkpoints(job.id) == [f"{job.results_dir}/results_dir/{n}" for n in names]
        assert sdk.list_path(job.results_dir) == ["results_dir/", "tao_result.json"]
        here = run_trainer(
            *("train", f"results_dir={tmp_path}/here", "train.num_epochs=3"),
            f"dataset.path={tmp_path}/digits",
        )
        assert weights_of(log) == weights_of(here)
        assert sdk.delete_job_artifacts(job.id)
        assert not sdk.check_path(f"{bucket.uri}/results/{job.id}")

    def test_a_second_attempt_goes_on_where_the_first_was_killed(
        self, lab: DockerLab, bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        put_digits(bucket, tmp_path / "digits")
        monkeypatch.setenv("TAO_SYNC_SECONDS", "0.1")
        sdk = lab.sdk()
        hang = "more='train.fail_at_epoch=2 train.fail_with=hang'"
        command = training(bucket, f"[ -e /tmp/again ] || {hang}; touch /tmp/again;")
        job = sdk.create_job(image=trainer_image(lab.engine), command=command, gpu_count=0)
        name = f"tao-job-{job.id}"
        first = f"results/{job.id}/results_dir/model_epoch_001.safetensors"
        eventually(lambda: first in bucket.list_keys(), LONG)
        lab.engine.docker("kill", name)
        assert job.wait(timeout=LONG).status == "Error"
        lab.engine.docker("start", name)
        assert lab.engine.docker("wait", name).strip() == "0"
        log = sdk.get_job_logs(job.id)
        assert "Epoch 1/3" in log.partition("resum")[0]
        assert "Epoch 1/3" not in log.partition("resum")[2]
        here = run_trainer(
            *("train", f"results_dir={tmp_path}/here", "train.num_epochs=3"),
            f"dataset.path={tmp_path}/digits",
        )
        assert weights_of(log) == weights_of(here)
        assert sdk.delete_job_artifacts(job.id)

    def test_cancelled_it_saves_and_delivers(
        self, lab: DockerLab, bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        put_digits(bucket, tmp_path / "digits")
        monkeypatch.setenv("TAO_GRACE_SECONDS", "20")
        monkeypatch.setenv("TAO_DELIVERY_SECONDS", "40")
        monkeypatch.setenv("TAO_SYNC_SECONDS", "0")
        sdk = lab.sdk()
        command = training(bucket, epoch_seconds=30)
        job = sdk.create_job(image=trainer_image(lab.engine), command=command, gpu_count=0)
        described = json.loads(lab.engine.docker("inspect", f"tao-job-{job.id}"))[0]
        assert described["Config"]["StopTimeout"] == 70, "whoever stops it"
        eventually(lambda: "Training an MLP" in sdk.get_job_logs(job.id), LONG)
        assert not any(key.startswith("results/") for key in bucket.list_keys())
        assert job.cancel()
        assert job.status == "Canceled"
        [saved] = sdk.get_checkpoints(job.id)
        assert "model_epoch_000_step_" in saved
        assert json.loads(bucket.read(f"results/{job.id}/tao_result.json"))["exit_code"] == 143
        assert sdk.delete_job_artifacts(job.id)

    def test_one_that_does_not_listen_is_killed_and_delivered_all_the_same(
        self, lab: DockerLab, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("TAO_GRACE_SECONDS", "0.5")
        sdk = lab.sdk()
        job = sdk.create_job(
            image=python_image(lab.engine),
            command='trap "" TERM; echo half > /tmp/out; echo up; while :; do sleep 0.1; done',
            gpu_count=0,
            outputs=["/tmp/out"],
        )
        eventually(lambda: "up" in sdk.get_job_logs(job.id), LONG)
        assert job.cancel()
        assert bucket.read(f"results/{job.id}/out") == b"half\n"
        assert sdk.delete_job_artifacts(job.id)


class TestPayloads:
    def test_a_spec_of_a_megabyte(self, lab: DockerLab) -> None:
        blob = random.Random(1).randbytes(1 << 19).hex()
        command = build_entrypoint(
            command="python3 -c \"import json; print(len(json.load(open('{config_path}'))['x']))\"",
            specs={"x": blob},
            config_format="json",
        )["command"]
        assert len(command) > 500_000
        sdk = lab.sdk()
        job = sdk.create_job(**lab.data_job(command))
        assert job.wait(timeout=LONG).status == "Complete", sdk.get_job_logs(job.id)
        assert str(1 << 20) in sdk.get_job_logs(job.id).splitlines()

    def test_secrets_are_in_the_environment_and_nowhere_else(
        self, lab: DockerLab, bucket: Bucket
    ) -> None:
        """Lesson C1: keys travelled in the command line."""
        bucket.put("in", b"data")
        plan = lab.sdk().plan(
            **lab.data_job("cat /data/in"),
            inputs={"/data/in": f"{bucket.uri}/in"},
            env_vars={"MY_TOKEN": "token-of-the-job"},
        )
        sdk = lab.sdk()
        job = sdk.submit(plan)
        assert job.wait(timeout=LONG).status == "Complete", sdk.get_job_logs(job.id)
        described = json.loads(lab.engine.docker("inspect", f"tao-job-{job.id}"))[0]
        inside = described["Config"].pop("Env")
        assert f"AWS_SECRET_ACCESS_KEY={SECRET_KEY}" in inside
        for secret in (SECRET_KEY, "token-of-the-job"):
            for text in (json.dumps(described), plan.render(), json.dumps(plan.to_dict())):
                assert secret not in text

    def test_another_user_has_a_place_to_work(self, lab: DockerLab, bucket: Bucket) -> None:
        bucket.put("in", b"data")
        sdk = lab.sdk()
        job = sdk.create_job(
            image=python_image(lab.engine),
            command="cat /tmp/in > /tmp/out",
            gpu_count=0,
            container_user="1234:1234",
            inputs={"/tmp/in": f"{bucket.uri}/in"},
            outputs=["/tmp/out"],
        )
        assert job.wait(timeout=LONG).status == "Complete", sdk.get_job_logs(job.id)
        assert bucket.read(f"results/{job.id}/out") == b"data"
        assert sdk.delete_job_artifacts(job.id)


@pytest.mark.seed("004.13", "004.3")
def test_the_sample_of_the_documentation(lab: DockerLab, bucket: Bucket) -> None:
    """Word for word, but for the names of the image and of the data."""
    bucket.put("coco/train.json", b"{}")
    trainer = trainer_image(lab.engine)
    assert SPEC == "/tmp/spec.yaml"

    sdk = DockerSDK()
    job = sdk.create_job(
        image=trainer,
        command="dino train -e /tmp/spec.yaml",
        gpu_count=1,
        inputs={"/data/train.json": f"{bucket.uri}/coco/train.json"},
        outputs=["/results/"],
    )
    status = sdk.get_job_status(job.id)
    logs = sdk.get_job_logs(job.id, tail=200)

    assert status.status in ("Pending", "Running", "Complete")
    assert isinstance(logs, str)
    assert sdk.wait(job.id, timeout=LONG).status == "Complete", sdk.get_job_logs(job.id)
    assert "Execution status: PASS" in sdk.get_job_logs(job.id, tail=200)
    delivered = [key for key in bucket.list_keys() if key.startswith(f"results/{job.id}/")]
    assert any(key.endswith("model_epoch_005.safetensors") for key in delivered)
    assert sdk.delete_job_artifacts(job.id)
