"""Launches that train: in a container of the Docker lab, on the clusters of the SLURM and
Kubernetes labs, on instances of the lab's Brev.

Root mode, the preflight as it is, results where the launch says.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "conformance"))

from brev_lab import BrevLab
from common_lab import isolated
from docker_lab import DockerLab
from kubernetes_lab import KubernetesPlatformLab

from lab.brev import brev_cloud
from lab.docker import shared_engine
from lab.docker.python_image import trainer_image
from lab.kubernetes import WITH_NODES, KubernetesLab
from lab.kubernetes import shared_cluster as shared_kubernetes
from lab.kubernetes.images import TRAINER
from lab.slurm import shared_cluster, slurm_lab
from tao_sdk.launch import GateClosedError, LaunchPlan, examine, launch, reports
from tao_sdk.launch.launching import platform_sdk
from tao_sdk.launch.review import review_json
from tao_sdk.models import TERMINAL_STATES
from tao_sdk.skills.layout import PACKAGED_BANK

pytest.importorskip("numpy")

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
SMALL = {"dataset.num_samples": 300, "dataset.image_size": 8, "num_epochs": 2}
LONG = 240.0


def make_data(folder: Path) -> Path:
    words = [f"results_dir={folder}", "dataset.num_samples=300", "dataset.image_size=8"]
    subprocess.run(
        [sys.executable, "-m", "tiny_trainer", "dataset", *words],
        cwd=EXAMPLES,
        check=True,
        capture_output=True,
    )
    return next(folder.rglob("images.npz")).parent


def training(platform: str, data: Path, **more: object) -> LaunchPlan:
    return LaunchPlan(
        "tiny-trainer",
        platform=platform,
        train_root=str(data),
        specs=SMALL,
        gpus=0,
        automl="off",
        bank=PACKAGED_BANK,
        **more,  # type: ignore[arg-type]  # keywords of several types
    )


@pytest.fixture
def docker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[DockerLab]:
    with shared_engine() as engine, isolated(monkeypatch, DockerLab(tmp_path, engine)) as lab:
        yield lab


def test_docker_sees_the_root_and_delivers_into_the_folder(docker: DockerLab) -> None:
    data, results = make_data(docker.folder / "data"), docker.folder / "delivered"
    results.mkdir()
    plan = training("local-docker", data, image=trainer_image(docker.engine), results=str(results))
    assert review_json(plan)["mounts"] == [f"{data}:{data}:ro", f"{results}:/results"]
    job = launch(plan, state_file=docker.state_file)
    assert job.wait(timeout=LONG).status == "Complete", docker.sdk().get_job_logs(job.id)
    assert list(results.rglob("model_epoch_002.safetensors"))


def test_docker_without_the_data_stays_closed(docker: DockerLab) -> None:
    plan = training("local-docker", Path("/no/such/data"), image=trainer_image(docker.engine))
    gate = examine(plan)
    assert [condition.id for condition in gate.closed()] == ["datasets"]
    with pytest.raises(GateClosedError, match="no/such/data"):
        launch(plan, state_file=docker.state_file)


def test_slurm_trains_from_shared_storage_and_is_reported_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with shared_cluster() as cluster, slurm_lab(cluster) as lab:
        for name, value in lab.environment().items():
            monkeypatch.setenv(name, value)
        data = make_data(lab.shared / "data")
        subprocess.run(["chmod", "-R", "a+rX", str(lab.shared / "data")], check=True)
        plan = training("slurm", data, image=str(lab.images["trainer"]))
        state_file = tmp_path / "state.json"
        job = launch(plan, state_file=state_file)
        sdk = platform_sdk(plan, state_file)
        try:
            seen = [status.status for status in reports(sdk, job.id, minutes=0.01)]
            assert seen[-1] == "Complete", sdk.get_job_logs(job.id)
            assert not set(seen[:-1]) & set(TERMINAL_STATES)
            assert "Epoch 2/2" in sdk.get_job_logs(job.id)
        finally:
            sdk.cancel_job(job.id)


@pytest.fixture
def pods(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[KubernetesPlatformLab]:
    with (
        shared_kubernetes(WITH_NODES) as cluster,
        KubernetesLab(cluster).namespace() as namespace,
        isolated(monkeypatch, KubernetesPlatformLab(tmp_path, namespace)) as lab,
    ):
        yield lab


def test_kubernetes_wants_proof_of_a_mount_and_then_trains(pods: KubernetesPlatformLab) -> None:
    made = make_data(pods.starts / "data")
    subprocess.run(["chmod", "-R", "a+rX", str(pods.starts / "data")], check=True)
    data = Path("/starts") / made.relative_to(pods.starts)
    mounts = {"mounts": ["pvc://results:/results", "pvc://starts:/starts"]}
    plan = training("kubernetes", data, image=TRAINER, options=mounts)

    closed = examine(plan)
    assert [condition.id for condition in closed.closed()] == ["datasets"]
    with pytest.raises(GateClosedError, match="cannot be checked from here"):
        launch(plan, state_file=pods.state_file)
    assert not pods.namespace.api.get(pods.namespace.jobs)["items"]
    assert not pods.state_file.exists()

    job = launch(plan.set(confirmed_mounts=True), state_file=pods.state_file)
    seen = [status.status for status in reports(pods.sdk(), job.id, minutes=0.01)]
    assert seen[-1] == "Complete", pods.sdk().get_job_logs(job.id)
    assert list((pods.results / job.id).rglob("model_epoch_002.safetensors"))


@pytest.fixture
def rented(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[BrevLab]:
    with (
        shared_engine() as engine,
        brev_cloud(engine) as cloud,
        isolated(monkeypatch, BrevLab(tmp_path, cloud)) as lab,
    ):
        yield lab


def on_brev(lab: BrevLab, **options: object) -> LaunchPlan:
    made = make_data(lab.starts / "data")
    mounts = [f"{lab.results}:/results", f"{lab.starts}:/starts"]
    return training(
        "brev",
        Path("/starts") / made.relative_to(lab.starts),
        image=trainer_image(lab.cloud.engine),
        options={"mounts": mounts, **options},
        confirmed_mounts=True,
    )


def test_brev_trains_on_an_instance_that_is_there(rented: BrevLab) -> None:
    job = launch(on_brev(rented, instance_id="box"), state_file=rented.state_file)
    assert job.wait(timeout=LONG).status == "Complete", rented.sdk().get_job_logs(job.id)
    assert list((rented.results / job.id).rglob("model_epoch_002.safetensors"))


def test_brev_without_the_instance_stays_closed(rented: BrevLab) -> None:
    """Before anything is made: an instance that was stopped, and a GPU that nobody offers."""
    rented.sdk().stop_instance("box")
    plan = on_brev(rented, instance_id="box")
    with pytest.raises(GateClosedError, match="instance box is stopped"):
        launch(plan, state_file=rented.state_file)
    other = plan.set(options={"instance_id": "", "gpu_type": "H200"})
    with pytest.raises(GateClosedError, match="Brev offers no 'H200'"):
        launch(other, state_file=rented.state_file)
    assert rented.cloud.ever_made() == ["box"]
    assert rented.sdk().list_jobs() == []
