"""Jobs as JobSets and TrainJobs, run by their real controllers, and as Jobs that Volcano places.

The test plays Volcano's scheduler: it puts the pods of a complete group on nodes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kubernetes_sdk import LONG, asked, explained, job_name, opened

from lab.docker.images import BUSYBOX
from lab.kubernetes import EXTENDED, KubernetesLab, Namespace, Object, shared_cluster
from lab.kubernetes.api import name_of
from lab.kubernetes.images import PYTHON
from tao_sdk.errors import UnsupportedError
from tao_sdk.models import Job
from tao_sdk.platforms.conformance import eventually
from tao_sdk.platforms.kubernetes import KubernetesSDK, cleanup

KINDS = {
    "jobset": "jobset.x-k8s.io/v1alpha2/{}/jobsets",
    "trainjob": "trainer.kubeflow.org/v1alpha1/{}/trainjobs",
}
RUNTIMES = "trainer.kubeflow.org/v1alpha1/{}/trainingruntimes"
GROUPS = "scheduling.volcano.sh/v1beta1/{}/podgroups"
both = pytest.mark.parametrize("kind", KINDS)

MEET = """
import os, socket, sys, time
rank, size = int(os.environ["NODE_RANK"]), int(os.environ["NNODES"])
address = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
if rank == 0:
    server = socket.create_server(("", address[1]))
    print("met", server.accept()[0].recv(10).decode(), flush=True)
else:
    for attempt in range(600):  # the name of rank 0 is not known from the first moment on
        try:
            socket.create_connection(address, 5).sendall(b"rank %d" % rank)
            break
        except OSError:
            time.sleep(0.1)
    else:
        sys.exit("rank 0 does not answer")
    print("here", flush=True)
"""


@pytest.fixture(scope="session")
def extended() -> Iterator[KubernetesLab]:
    with shared_cluster(EXTENDED) as cluster:
        yield KubernetesLab(cluster)


@pytest.fixture
def namespace(extended: KubernetesLab) -> Iterator[Namespace]:
    with extended.namespace() as namespace:
        yield namespace


@pytest.fixture
def sdk(
    namespace: Namespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[KubernetesSDK]:
    with opened(namespace, tmp_path, monkeypatch) as sdk:
        yield sdk


def listed(namespace: Namespace, place: str) -> list[Object]:
    group, version, resource = place.replace("{}/", "").split("/")
    path = f"/apis/{group}/{version}/namespaces/{namespace.name}/{resource}"
    found: list[Object] = namespace.api.get(path)["items"]
    return found


def left(namespace: Namespace) -> list[str]:
    """The names of everything that jobs of all kinds are made of."""
    kinds = [
        *(listed(namespace, place) for place in (*KINDS.values(), RUNTIMES, GROUPS)),
        namespace.api.get(namespace.jobs)["items"],
        *(
            namespace.api.get(f"{namespace.path}/{resource}")["items"]
            for resource in ("pods", "secrets", "services", "configmaps")
        ),
    ]
    return [name for items in kinds for name in map(name_of, items) if "tao-job" in name]


def run(sdk: KubernetesSDK, command: str, **keywords: Any) -> Job:
    return sdk.create_job(**{"image": BUSYBOX, "command": command, "gpu_count": 0, **keywords})


@both
def test_ranks_meet_and_nothing_is_left(
    sdk: KubernetesSDK, namespace: Namespace, kind: str
) -> None:
    job = run(
        sdk,
        f"python3 -c '{MEET}'; echo $WORD",
        image=PYTHON,
        num_nodes=2,
        kind=kind,
        env_vars={"WORD": "hush"},
    )
    assert job.wait(timeout=LONG).status == "Complete", job.logs()
    log = sdk.get_job_logs(job.id)
    assert "[rank 0] met rank 1\n" in log
    assert "[rank 1] here\n" in log
    assert log.count("hush") == 2
    assert [one["rank"] for one in sdk.get_job_replicas(job.id)] == [0, 1]
    [root] = listed(namespace, KINDS[kind])
    assert name_of(root) == job_name(job)
    assert "hush" not in str(root)
    assert sdk.delete_job_artifacts(job.id)
    eventually(lambda: not left(namespace), LONG)


@both
def test_the_first_rank_that_fails_is_named(sdk: KubernetesSDK, kind: str) -> None:
    job = run(
        sdk,
        'if [ "$NODE_RANK" = 1 ]; then echo broken; exit 7; fi; sleep 1000',
        num_nodes=2,
        kind=kind,
    )
    assert job.wait(timeout=LONG).status == "Error"
    found = explained(job)
    assert found["exit_code"] == 7
    assert "rank 1" in str(found)


@both
def test_a_job_that_is_cancelled_is_gone(
    sdk: KubernetesSDK, namespace: Namespace, kind: str
) -> None:
    job = run(sdk, "echo begun; sleep 1000", kind=kind, env_vars={"WORD": "hush"})
    eventually(lambda: "begun" in sdk.get_job_logs(job.id), LONG)
    assert job.refresh().status == "Running"
    assert job.cancel()
    assert job.status == "Canceled"
    assert "begun" in sdk.get_job_logs(job.id)
    eventually(lambda: not left(namespace), LONG)


@both
def test_all_pods_are_tried_again(sdk: KubernetesSDK, kind: str) -> None:
    job = run(sdk, 'echo "attempt $TAO_ATTEMPT"; [ "$TAO_ATTEMPT" = 2 ]', kind=kind, retries=1)
    assert job.wait(timeout=LONG).status == "Complete"
    assert "attempt 2" in sdk.get_job_logs(job.id)


@both
def test_a_failure_of_the_program_is_final_with_node_retries(sdk: KubernetesSDK, kind: str) -> None:
    job = run(sdk, 'echo "attempt $TAO_ATTEMPT"; exit 5', kind=kind, node_retries=3)
    assert job.wait(timeout=LONG).status == "Error"
    assert explained(job)["exit_code"] == 5
    assert sdk.get_job_logs(job.id) == "attempt 1\n"


@both
def test_a_job_that_waits_says_why(sdk: KubernetesSDK, namespace: Namespace, kind: str) -> None:
    job = run(sdk, "true", kind=kind, node_selector={"gpu-type": "h100"})
    eventually(lambda: "no node can take it" in job.refresh().message, LONG)
    assert job.status == "Pending"
    assert job.cancel()
    eventually(lambda: not left(namespace), LONG)


def test_an_ended_trainjob_goes_after_its_time(sdk: KubernetesSDK, namespace: Namespace) -> None:
    """Kubernetes keeps it for ever."""
    job = run(sdk, "true", kind="trainjob", ttl_seconds=1)
    assert job.wait(timeout=LONG).status == "Complete"

    def swept() -> bool:
        cleanup.sweep(sdk.backend.transport, namespace.name)
        return not left(namespace)

    eventually(swept, LONG)


def test_volcano_starts_a_group_at_once(sdk: KubernetesSDK, namespace: Namespace) -> None:
    job = run(sdk, "echo $NODE_RANK", num_nodes=2, kind="volcano", queue="gold")
    [group] = listed(namespace, GROUPS)
    assert group["spec"]["minMember"] == 2
    assert group["spec"]["queue"] == "gold"

    def waiting() -> list[Object]:
        return [
            pod
            for pod in namespace.pods(job_name(job))
            if pod["metadata"]["annotations"]["scheduling.k8s.io/group-name"] == name_of(group)
            and "nodeName" not in pod["spec"]
        ]

    eventually(lambda: len(waiting()) == group["spec"]["minMember"], LONG)
    assert job.refresh().status == "Pending"
    for pod in waiting():
        bind(namespace, pod)
    assert job.wait(timeout=LONG).status == "Complete"
    assert re.findall(r"rank \d\] (\d)", sdk.get_job_logs(job.id)) == ["0", "1"]
    assert sdk.delete_job_artifacts(job.id)
    eventually(lambda: not left(namespace), LONG)


def bind(namespace: Namespace, pod: Object) -> None:
    """Put a pod on a node, as a scheduler does."""
    target = {"apiVersion": "v1", "kind": "Node", "name": namespace.cluster.nodes[0]}
    body = {"kind": "Binding", "metadata": {"name": name_of(pod)}, "target": target}
    namespace.api.create(f"{namespace.path}/pods/{name_of(pod)}/binding", body)


@pytest.mark.parametrize(
    ("kind", "missing"), [("jobset", "JobSet"), ("trainjob", "TrainJob"), ("volcano", "PodGroup")]
)
def test_a_cluster_without_the_kind_is_named(
    played: Namespace,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    missing: str,
) -> None:
    with (
        opened(played, tmp_path, monkeypatch) as sdk,
        pytest.raises(UnsupportedError, match=f"this cluster has no {missing} .*install it"),
    ):
        sdk.create_job(**asked(kind=kind))
    assert not played.api.get(played.jobs)["items"]
