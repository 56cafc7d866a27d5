"""The demo trainer and the samples of the documentation, in real pods of a real cluster."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import urllib3
from kubernetes_sdk import LONG, isolate, job_name, opened

import tao_sdk
from lab.docker.python_image import SPEC
from lab.kubernetes import (
    ALICE,
    KubernetesLab,
    KubeVariant,
    Namespace,
    RefusedError,
    shared_cluster,
)
from lab.kubernetes.images import PYTHON, TRAINER
from lab.s3 import ACCESS_KEY, SECRET_KEY, Bucket
from tao_sdk.models import Job
from tao_sdk.platforms.conformance import eventually
from tao_sdk.platforms.kubernetes import KubernetesSDK
from tao_sdk.script_runner import build_entrypoint

MANY_GPUS = KubeVariant(nodes=2, gpus_per_node=16)
"""What the samples ask for: four times eight."""
SAMPLE_NAMESPACE, PULL_SECRET = "tao-jobs", "ngc-pull-secret"
EPOCHS = 3


@pytest.fixture(scope="session")
def big() -> Iterator[KubernetesLab]:
    with shared_cluster(MANY_GPUS) as cluster:
        for node in cluster.nodes:
            labels = {"metadata": {"labels": {"gpu-type": "h100"}}}
            cluster.admin.patch(f"/api/v1/nodes/{node}", labels)
        yield KubernetesLab(cluster)


@pytest.fixture
def namespace(big: KubernetesLab) -> Iterator[Namespace]:
    with big.namespace() as namespace:
        yield namespace


@pytest.fixture
def sdk(
    namespace: Namespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[KubernetesSDK]:
    with opened(namespace, tmp_path, monkeypatch) as sdk:
        yield sdk


@pytest.fixture
def bucket(
    big: KubernetesLab, sdk: KubernetesSDK, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Bucket]:
    """The bucket of this machine's settings; pods reach it at the same address."""
    with big.bucket() as bucket:
        monkeypatch.setenv("ACCESS_KEY", ACCESS_KEY)
        monkeypatch.setenv("SECRET_KEY", SECRET_KEY)
        monkeypatch.setenv("S3_ENDPOINT_URL", bucket.url)
        monkeypatch.setenv("S3_BUCKET_NAME", bucket.name)
        monkeypatch.setenv("CLOUD_REGION", "us-east-1")
        yield bucket


def training(**train: Any) -> str:
    """A training of some epochs on generated digits."""
    specs = {
        "results_dir": "",
        "dataset": {"num_samples": 500, "image_size": 8, "batch_size": 32},
        "train": {"num_epochs": EPOCHS, "resume_training_checkpoint_path": "", **train},
    }
    return build_entrypoint(
        command="dino train -e {config_path}",
        specs=specs,
        outputs={"results_dir": {"type": "folder"}},
        config_format="yaml",
    )["command"]


def complete(sdk: KubernetesSDK, job: Job) -> str:
    """Insist on success; the log."""
    status = job.wait(timeout=LONG)
    log = sdk.get_job_logs(job.id)
    assert status.status == "Complete", f"{status.message}\n{log}"
    return log


def check_two_ranks(log: str) -> None:
    digests = re.findall(r"\[rank (\d)\] .*weights have sha256 (\w+)", log)
    assert {rank for rank, _ in digests} == {"0", "1"}, log
    assert len({digest for _, digest in digests}) == 1, "both ranks hold the same weights"


@pytest.mark.seed("003.7", "003.9")
def test_two_pods_train_on_a_shared_volume(sdk: KubernetesSDK, namespace: Namespace) -> None:
    """Lesson 6.2: MASTER_PORT is yours to choose, and what both write is in one place."""
    folder = namespace.add_volume("results")
    job = sdk.create_job(
        image=TRAINER,
        command=training(num_nodes=2),
        gpu_count=8,
        num_nodes=2,
        mounts=["pvc://results:/results"],
        env_vars={"MASTER_PORT": "29611"},
        # One pod for each node, as GPUs would have it anyway where nodes have eight.
        overlay=spread(),
    )
    check_two_ranks(complete(sdk, job))
    replicas = sdk.get_job_replicas(job.id)
    assert [one["rank"] for one in replicas] == [0, 1]
    assert {one["status"]["node"]["name"] for one in replicas} == {"node0", "node1"}
    names = [f"model_epoch_{epoch:03}.safetensors" for epoch in range(1, EPOCHS + 1)]
    found = sdk.get_checkpoints(job.id)
    assert [path.rpartition("/")[2] for path in found] == names
    assert all(path.startswith(f"pvc://{namespace.name}@results/{job.id}/") for path in found)
    assert {path.name for path in (folder / job.id).rglob("*.safetensors")} == set(names)
    # Whatever becomes of the Job, the volume tells how it ended.
    assert sdk.delete_job_artifacts(job.id)
    assert not (folder / job.id).exists()


def spread() -> dict[str, Any]:
    """No two pods of the job on one node."""
    rule = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"tao-toolkit": "true"}},
    }
    return {"spec": {"template": {"spec": {"topologySpreadConstraints": [rule]}}}}


@pytest.mark.seed("003.7")
def test_two_pods_train_with_an_object_store(
    sdk: KubernetesSDK, namespace: Namespace, bucket: Bucket
) -> None:
    job = sdk.create_job(image=TRAINER, command=training(num_nodes=2), gpu_count=8, num_nodes=2)
    check_two_ranks(complete(sdk, job))
    assert job.results_dir == f"{bucket.uri}/results/{job.id}"
    names = [f"model_epoch_{epoch:03}.safetensors" for epoch in range(1, EPOCHS + 1)]
    found = sdk.get_checkpoints(job.id)
    assert [path.rpartition("/")[2] for path in found] == names
    assert SECRET_KEY not in namespace.kubectl("get", "jobs,pods,configmaps", "-o", "yaml")
    assert sdk.delete_job_artifacts(job.id)
    assert not [key for key in bucket.list_keys() if job.id in key]


@pytest.mark.seed("003.5", "003.6")
def test_stopped_while_it_trains_it_saves_and_its_log_stays(
    sdk: KubernetesSDK, namespace: Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lesson 6.2: cancelling destroys evidence."""
    monkeypatch.setenv("TAO_GRACE_SECONDS", "30")
    folder = namespace.add_volume("results")
    job = sdk.create_job(
        image=TRAINER,
        command=training(num_epochs=1000, epoch_seconds=0.4),
        gpu_count=0,
        mounts=["pvc://results:/results"],
    )
    eventually(lambda: "Epoch 1/1000" in sdk.get_job_logs(job.id), LONG)
    assert job.cancel()
    assert job.status == "Canceled"
    assert "Epoch 1/1000" in sdk.get_job_logs(job.id)
    assert not namespace.api.exists(f"{namespace.jobs}/{job_name(job)}")
    saved = [path.name for path in (folder / job.id).rglob("*.safetensors")]
    assert any(re.search(r"_step_\d+\.safetensors$", name) for name in saved), saved


INSIDE = """
from tao_sdk.platforms.kubernetes import KubernetesSDK
with KubernetesSDK() as sdk:
    command = "echo hello from $TAO_JOB_ID"
    job = sdk.create_job(image="tao-lab/busybox:1", command=command, gpu_count=0)
    print(job.wait(timeout=100).status, sdk.get_job_logs(job.id) == f"hello from {job.id}\\n")
    print(sdk.backend.transport.access.namespace)
"""


@pytest.mark.seed("003.1")
def test_a_job_that_submits_jobs(sdk: KubernetesSDK, namespace: Namespace) -> None:
    """A pod has no kubeconfig: it uses the token of its service account, once it has one."""
    namespace.service_account("robot")
    code = namespace.add_volume("code")
    for package in (tao_sdk, urllib3):
        shutil.copytree(
            Path(package.__file__).parent,
            code / package.__name__,
            ignore=shutil.ignore_patterns("__pycache__"),
        )
    (code / "inside.py").write_text(INSIDE)
    job = sdk.create_job(
        image=PYTHON,
        command="TAO_SDK_STATE_DIR=/tmp/state PYTHONPATH=/code python3 /code/inside.py",
        gpu_count=0,
        service_account="robot",
        service_account_token=True,
        mounts=["pvc://code:/code:ro"],
    )
    assert complete(sdk, job) == f"Complete True\n{namespace.name}\n"


# -- the samples of the documentation, word for word but for image and bucket


@pytest.fixture
def tao_jobs(big: KubernetesLab) -> Namespace:
    """The namespace of the samples, with its Secret for the registry. It stays."""
    found = Namespace(big.cluster, SAMPLE_NAMESPACE)
    if not big.cluster.admin.exists(found.path):
        there_already(found.open)
    there_already(lambda: found.add_registry_secret(PULL_SECRET))
    return found


def there_already(make: Any) -> None:
    """Make something, unless another test process was faster."""
    try:
        make()
    except RefusedError as refused:
        if refused.code != 409:
            raise


@pytest.mark.seed("003.1", "003.2", "003.3", "003.5", "003.8")
def test_the_first_sample(
    tao_jobs: Namespace, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    isolated = {"ACCESS_KEY", "SECRET_KEY", "S3_ENDPOINT_URL", "S3_BUCKET_NAME", "CLOUD_REGION"}
    kept = {name: os.environ[name] for name in isolated}
    isolate(monkeypatch, tao_jobs.kubeconfig(ALICE))
    for name, value in kept.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("NGC_KEY", "made-up-key")
    bucket.put("coco/train.json", b"{}")
    assert SPEC == "/tmp/spec.yaml"

    sdk = KubernetesSDK()  # auto-detects auth
    job = sdk.create_job(
        image=TRAINER,
        command="dino train -e /tmp/spec.yaml",
        gpu_count=1,
        env_vars={"NGC_KEY": os.environ["NGC_KEY"]},
        inputs={"/data/train.json": f"s3://{bucket.name}/coco/train.json"},
        outputs=["/results/"],
        namespace="tao-jobs",  # optional override
        image_pull_secret="ngc-pull-secret",  # noqa: S106 - optional, pre-created
        node_selector={"gpu-type": "h100"},  # optional
    )

    status = sdk.get_job_status(job.id)
    assert status.status in {"Pending", "Running", "Complete", "Error", "Canceled", "Unknown"}
    logs = sdk.get_job_logs(job.id, tail=200)  # concatenates logs from all pods of the Job
    assert isinstance(logs, str)
    # For stuck-Pending jobs — replica diagnostics:
    for r in sdk.get_job_replicas(job.id):
        issue = r["status"].get("readiness_issue")
        if issue:
            print(issue["reason"], issue["message"])
    spec = tao_jobs.job(job_name(job))["spec"]
    assert (spec["backoffLimit"], spec["ttlSecondsAfterFinished"]) == (0, 3600)
    pod = spec["template"]["spec"]
    assert pod["restartPolicy"] == "Never"
    assert pod["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == "1"
    assert sdk.wait(job.id, timeout=LONG).status == "Complete", sdk.get_job_logs(job.id)
    assert "Execution status: PASS" in sdk.get_job_logs(job.id, tail=200)
    # On failure:
    assert sdk.get_failure_analysis(job.id) is None
    delivered = [key for key in bucket.list_keys() if key.startswith(f"results/{job.id}/")]
    assert any(key.endswith("model_epoch_005.safetensors") for key in delivered)

    sdk.cancel_job(job.id)
    assert sdk.get_job_status(job.id).status == "Complete"
    assert sdk.delete_job_artifacts(job.id)
    sdk.close()


@pytest.mark.seed("003.7")
def test_the_sample_of_several_nodes(sdk: KubernetesSDK, bucket: Bucket) -> None:
    bucket.put("coco/train.json", b"{}")
    job = sdk.create_job(
        image=TRAINER,
        command="dino train -e /tmp/spec.yaml",  # TAO entrypoint reads spec.train.num_nodes
        gpu_count=8,  # GPUs per node
        num_nodes=4,  # 4 x 8 = 32 GPUs total
        inputs={"/data/train.json": f"s3://{bucket.name}/coco/train.json"},
        outputs=["/results/"],
    )
    log = complete(sdk, job)
    assert len(set(re.findall(r"\[rank \d\] .*weights have sha256 (\w+)", log))) == 1
    assert all(f"[rank {rank}] " in log for rank in range(4))


TORCHRUN = """
import os, socket, sys, time
given = dict(word[2:].split("=") for word in sys.argv[1:] if word.startswith("--"))
rank, count = int(given["node-rank"]), int(given["nnodes"])
assert given["nproc-per-node"] == os.environ["NUM_GPU_PER_NODE"] == "8"
assert sys.argv[-1] == "train.py"
place = given["master-addr"], int(given["master-port"])
if rank == 0:
    with socket.create_server(("", place[1])) as server:
        peers = sorted(server.accept()[0].recv(1) for _ in range(count - 1))
    print("rendezvous of", count, [int(peer) for peer in peers])
else:
    deadline = time.monotonic() + 60
    while True:
        try:
            with socket.create_connection(place, 5) as peer:
                peer.sendall(str(rank).encode())
            break
        except OSError:
            assert time.monotonic() < deadline
            time.sleep(0.1)
"""


@pytest.mark.seed("003.7")
def test_the_sample_of_torchrun(sdk: KubernetesSDK, namespace: Namespace) -> None:
    """Its launcher is played by a program that meets its peers where torchrun would."""
    launcher = {
        "kind": "ConfigMap",
        "metadata": {"name": "launcher"},
        "data": {
            "torchrun": '#!/bin/sh\nexec python3 /usr/local/sbin/torchrun.py "$@"\n',
            "torchrun.py": TORCHRUN,
        },
    }
    namespace.api.create(f"{namespace.path}/configmaps", launcher)
    job = sdk.create_job(
        image=PYTHON,
        command="torchrun --nnodes=$NNODES --nproc-per-node=$NPROC_PER_NODE "
        "--node-rank=$NODE_RANK "
        "--master-addr=$MASTER_ADDR --master-port=$MASTER_PORT train.py",
        gpu_count=8,
        num_nodes=4,
        overlay=with_launcher(),
    )
    log = complete(sdk, job)
    assert "[rank 0] rendezvous of 4 [1, 2, 3]" in log


def with_launcher() -> dict[str, Any]:
    """What the image would bring along, on the search path of programs."""
    volume = {"name": "launcher", "configMap": {"name": "launcher", "defaultMode": 0o755}}
    mount = {"name": "launcher", "mountPath": "/usr/local/sbin"}
    container = {"name": "tao", "volumeMounts": [mount]}
    return {"spec": {"template": {"spec": {"volumes": [volume], "containers": [container]}}}}
