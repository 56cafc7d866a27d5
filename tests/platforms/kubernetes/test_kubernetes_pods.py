"""Jobs in real pods: what only kubelets and containers can show."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from common_lab import isolated
from kubernetes_lab import KubernetesPlatformLab

from lab.docker.images import BUSYBOX
from lab.kubernetes import Namespace
from lab.kubernetes.api import name_of
from lab.kubernetes.images import PRIVATE, PYTHON
from tao_sdk.models import Job
from tao_sdk.platforms.conformance import eventually
from tao_sdk.platforms.conformance.lab import reference
from tao_sdk.platforms.kubernetes import KubernetesSDK
from tao_sdk.platforms.kubernetes.client import KubernetesClient

LONG = 90


@pytest.fixture
def lab(
    real: Namespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[KubernetesPlatformLab]:
    with isolated(monkeypatch, KubernetesPlatformLab(tmp_path, real)) as lab:
        yield lab


def run(sdk: KubernetesSDK, command: str, **keywords: Any) -> Job:
    job = sdk.create_job(**{"image": BUSYBOX, "gpu_count": 0, "command": command, **keywords})
    job.wait(timeout=LONG)
    return job


@pytest.mark.seed("003.7")
def test_ranks_find_each_other_by_name(lab: KubernetesPlatformLab) -> None:
    """The address of rank 0 leads there, on the port that was asked for."""
    talk = (
        "import os, socket, time\n"
        "where = os.environ['MASTER_ADDR'], int(os.environ['MASTER_PORT'])\n"
        "if os.environ['NODE_RANK'] == '0':\n"
        "    server = socket.create_server(('', where[1]))\n"
        "    peer, _ = server.accept()\n"
        "    print('heard', peer.recv(100).decode())\n"
        "else:\n"
        "    for _ in range(300):\n"
        "        try:\n"
        "            line = socket.create_connection(where, timeout=5)\n"
        "            break\n"
        "        except OSError:\n"
        "            time.sleep(0.2)\n"
        "    line.sendall(b'rank 1')\n"
    )
    job = run(
        lab.sdk(),
        'exec python3 -c "$TALK"',
        image=PYTHON,
        num_nodes=2,
        env_vars={"MASTER_PORT": "23456", "TALK": talk},
    )
    assert job.status == "Complete", list(job.logs())
    assert list(job.logs()) == ["[rank 0] heard rank 1"]


@pytest.mark.seed("003.9")
def test_a_rank_that_failed_is_tried_again(lab: KubernetesPlatformLab) -> None:
    job = run(
        lab.sdk(),
        'echo "attempt $TAO_ATTEMPT"; [ "$TAO_ATTEMPT" = 2 ]',
        retries=1,
    )
    assert job.status == "Complete"
    assert list(job.logs()) == ["attempt 1", "attempt 2"]


@pytest.mark.seed("003.9")
def test_a_private_image(lab: KubernetesPlatformLab) -> None:
    lab.namespace.add_registry_secret("registry")
    image = f"{lab.namespace.registry}/{PRIVATE}"
    job = run(
        lab.sdk(),
        "cat /etc/private",
        image=image,
        image_pull_secret="registry",  # noqa: S106 - a name
        image_pull_policy="Always",
    )
    assert job.status == "Complete"


@pytest.mark.seed("003.8")
def test_an_image_that_is_not_there(lab: KubernetesPlatformLab) -> None:
    """Lesson W10: explained although no container ever ended."""
    sdk = lab.sdk()
    job = sdk.create_job(
        image=f"{lab.namespace.registry}/team/nowhere:1", command="true", gpu_count=0
    )
    eventually(lambda: "cannot be pulled" in job.refresh().message, LONG)
    assert job.status == "Pending"
    analysis = job.explain()
    assert analysis is not None
    assert analysis["err_class"] in ("ERR_IMAGE", "ERR_CREDENTIAL")
    assert job.cancel()


@pytest.mark.seed("003.5")
def test_out_of_memory(lab: KubernetesPlatformLab) -> None:
    eat = "x=a; while :; do x=$x$x; done"
    job = run(lab.sdk(), eat, resources={"memory": "32Mi"}, shm_size=0)
    assert job.status == "Error"
    analysis = job.explain()
    assert analysis is not None
    assert analysis["err_class"] == "ERR_OOM"
    assert analysis["job_failure_by_node_event"][0]["node_event_name"] == "OOMKilled"


def test_a_command_too_long_for_one_object(lab: KubernetesPlatformLab) -> None:
    job = run(lab.sdk(), "# " + "x" * 1_000_000 + "\necho it came whole; exit 4")
    assert list(job.logs()) == ["it came whole"]
    assert job.status == "Error"


def test_shared_memory_and_a_read_only_mount(lab: KubernetesPlatformLab) -> None:
    job = run(
        lab.sdk(),
        "df -k /dev/shm | tail -1 | awk '{print $2}'; touch /data/x 2>&1 || echo refused",
        shm_size="96Mi",
        mounts=["pvc://starts:/data:ro"],
    )
    size, *_, last = list(job.logs())
    assert int(size) == 96 * 1024
    assert last == "refused"


def test_logs_outlive_the_pods(lab: KubernetesPlatformLab) -> None:
    """Whoever saw the end has the log, also when the cluster has removed the Job."""
    sdk = lab.sdk()
    job = run(
        sdk,
        "for i in 1 2 3; do echo line $i; done",
        overlay={"spec": {"ttlSecondsAfterFinished": 2}},
    )
    assert job.status == "Complete"
    name = f"tao-job-{job.id}"
    api = lab.namespace.api
    eventually(lambda: not api.exists(f"{lab.namespace.jobs}/{name}"))
    eventually(lambda: not lab.namespace.pods(name))
    assert list(lab.sdk().stream_logs(job.id)) == ["line 1", "line 2", "line 3"]
    assert sdk.get_job_logs(job.id, tail=1) == "line 3\n"


def test_logs_of_several_pods_by_cursor(lab: KubernetesPlatformLab) -> None:
    sdk = lab.sdk()
    job = run(sdk, "for i in 1 2 3; do echo $i; done", num_nodes=2)
    whole = list(job.logs())
    assert whole == [f"[rank {rank}] {i}" for rank in (0, 1) for i in (1, 2, 3)]
    stream = sdk.stream_logs(job.id, follow=False)
    head = [next(stream) for _ in range(4)]
    assert head + list(sdk.stream_logs(job.id, cursor=stream.cursor)) == whole
    assert len(sdk.get_job_logs(job.id, tail=4).splitlines()) == 4


def test_a_log_of_many_chunks(lab: KubernetesPlatformLab) -> None:
    sdk = lab.sdk()
    # containerd 1.6 may lose what a container prints in its very last moment: it lives on for two.
    job = run(sdk, "seq 1 200000; sleep 2")
    count = 0
    for number, line in enumerate(job.logs(), 1):
        assert line == str(number)
        count = number
    assert count == 200_000
    assert sdk.get_job_logs(job.id, tail=3).split() == ["199998", "199999", "200000"]


def test_paths_of_volumes(lab: KubernetesPlatformLab) -> None:
    sdk = lab.sdk()
    job = run(sdk, 'cd "$TAO_RESULTS_ROOT/$TAO_JOB_ID"; echo 1 > a; mkdir b; echo 22 > "b/c d"',
              mounts=["pvc://results:/results"])  # fmt: skip
    assert job.results_dir == f"pvc://{lab.namespace.name}@results/{job.id}"
    assert sdk.list_path(job.results_dir) == ["a", "b", "tao_result.json"]
    assert sdk.check_path(f"pvc://results/{job.id}/b/c d")
    assert not sdk.check_path(f"pvc://results/{job.id}/no $(touch x)")
    row = sdk.store.get_job(job.id)
    assert row is not None
    from tao_sdk.platforms.submit import job_ref

    files = sdk.backend.result_files(job_ref(row))
    assert (files["a"], files["b/c d"]) == (2, 3)
    with pytest.raises(ValueError, match="the volume of a path is unknown"):
        sdk.check_path("/results/x")
    # The Jobs that looked are gone, and so are their pods.
    names = [name_of(one) for one in lab.namespace.api.get(lab.namespace.jobs)["items"]]
    assert [name for name in names if name.startswith("tao-look")] == []


def test_results_in_a_folder_of_the_node(
    lab: KubernetesPlatformLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are looked for on the node that the job ran on, also when its pod is gone."""
    asked_on = spy_on_looks(monkeypatch)
    folder = lab.namespace.cluster.layout.volumes / f"{lab.namespace.name}-node"
    sdk = lab.sdk()
    node = lab.namespace.cluster.nodes[1]
    job = run(
        sdk,
        'echo "$TAO_RESULTS_ROOT"; echo data > "$TAO_RESULTS_ROOT/$TAO_JOB_ID/out.txt"',
        mounts=[f"hostpath://{folder}:/results"],
        node_selector={"kubernetes.io/hostname": node},
    )
    assert job.status == "Complete"
    assert list(job.logs()) == ["/results"]
    assert job.results_dir == f"hostpath://{folder}/{job.id}"
    files = sdk.backend.result_files(reference(sdk, job.id))
    assert files["out.txt"] == len("data\n")
    assert asked_on == [node]
    lab.namespace.kubectl("delete", "job", f"tao-job-{job.id}")
    [record] = sdk.backend.result_records(reference(sdk, job.id))
    assert record.exit_code == 0
    assert sdk.delete_job_artifacts(job.id)
    assert asked_on == [node] * 3
    assert not (folder / job.id).exists()


def test_results_on_a_node_that_nobody_knows_are_not_called_removed(
    lab: KubernetesPlatformLab,
) -> None:
    """The folder that was not found may be another node's."""
    sdk = lab.sdk()
    folder = lab.namespace.cluster.layout.volumes / f"{lab.namespace.name}-elsewhere"
    job = run(sdk, "true", mounts=[f"hostpath://{folder}:/results"])
    lab.namespace.kubectl("delete", "job", f"tao-job-{job.id}")
    database = Path(sdk.store.path)
    kept = database.parent / f"{database.stem}.kubernetes" / job.id / "nodes"
    eventually(kept.exists)
    kept.unlink()
    eventually(lambda: not lab.namespace.pods(f"tao-job-{job.id}"), LONG)
    (folder / job.id).rename(folder / "on-another-node")
    assert not sdk.delete_job_artifacts(job.id)
    assert (folder / "on-another-node" / "tao_result.json").exists()


def spy_on_looks(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The nodes on which volumes are looked at from now on."""
    create = KubernetesClient.create
    nodes: list[str] = []

    def noting(api: KubernetesClient, path: str, body: Any, /, **query: str) -> Any:
        if str(body["metadata"].get("name", "")).startswith("tao-look-"):
            nodes.append(body["spec"]["template"]["spec"].get("nodeName", ""))
        return create(api, path, body, **query)

    monkeypatch.setattr(KubernetesClient, "create", noting)
    return nodes


def test_nothing_of_ours_remains(lab: KubernetesPlatformLab) -> None:
    """Lessons W13, W15: whatever the end, all that is left belongs to a Job that goes by itself."""
    sdk = lab.sdk()
    run(sdk, "true", env_vars={"A": "value-of-a"}, num_nodes=2)
    run(sdk, "exit 1", env_vars={"A": "value-of-a"})
    stopped = sdk.create_job(
        image=BUSYBOX, command="sleep 600", gpu_count=0, env_vars={"A": "value-of-a"}
    )
    assert stopped.cancel()
    api = lab.namespace.api
    jobs = {
        one["metadata"]["uid"]: one["spec"]["ttlSecondsAfterFinished"]
        for one in api.get(lab.namespace.jobs)["items"]
    }
    assert set(jobs.values()) == {3600}
    assert len(jobs) == 2

    def owners() -> set[str]:
        return {
            owner["uid"]
            for resource in ("secrets", "services", "configmaps", "pods")
            for one in api.get(f"{lab.namespace.path}/{resource}")["items"]
            if one["metadata"]["name"].startswith("tao-")
            for owner in one["metadata"]["ownerReferences"]
        }

    eventually(lambda: owners() <= set(jobs))


def test_many_that_vanished_are_settled_by_one_look_at_their_volume(
    lab: KubernetesPlatformLab,
) -> None:
    sdk = lab.sdk()
    asked = {"image": BUSYBOX, "gpu_count": 0, "mounts": ["pvc://results:/results"]}
    jobs = sdk.create_jobs([{**asked, "command": f"exit {code}"} for code in (0, 3, 0, 5)])
    ids = [job.id for job in jobs]
    records = [lab.results / job_id / "tao_result.json" for job_id in ids]
    eventually(lambda: all(path.exists() for path in records), LONG)
    for job in jobs:
        lab.forget(job, with_results=False)
    created = list(sdk.backend.transport.calls).count(f"POST {lab.namespace.jobs}")
    states = [status.status for status in sdk.get_statuses(ids).values()]
    assert states == ["Complete", "Error", "Complete", "Error"]
    assert list(sdk.backend.transport.calls).count(f"POST {lab.namespace.jobs}") == created + 1
