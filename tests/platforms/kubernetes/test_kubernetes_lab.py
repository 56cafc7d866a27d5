"""The lab keeps its promises: what other tests take for granted about clusters is so."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from lab.docker.images import BUSYBOX
from lab.kubernetes import (
    ADMIN,
    ALICE,
    CONTROL_PLANE,
    QUICK_TO_GIVE_UP,
    WITH_NODES,
    Api,
    Cluster,
    KubernetesLab,
    Namespace,
    Object,
    RefusedError,
    private_cluster,
)
from lab.kubernetes.images import PRIVATE, PYTHON, TRAINER
from lab.processes import members, wait_until

_TESTS = Path(__file__).parents[2]
_FINISHED = ("Complete", "Failed")


def job(name: str, command: str = "true", *, image: str = BUSYBOX, **pod: Any) -> Object:
    """A job of one attempt; what is said about its container is among `container`."""
    container = {
        "name": "main",
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["/bin/sh", "-c", command],
        **pod.pop("container", {}),
    }
    template = {
        "metadata": {"labels": {"app": name}},
        "spec": {"restartPolicy": "Never", "containers": [container], **pod},
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {"backoffLimit": 0, "template": template},
    }


def gpu_job(name: str, gpus: int) -> Object:
    return job(name, container={"resources": {"limits": {"nvidia.com/gpu": str(gpus)}}})


def conditions(namespace: Namespace, name: str) -> dict[str, str]:
    """The conditions of a job that hold, with their reasons."""
    told = namespace.job(name)["status"].get("conditions", ())
    return {one["type"]: one.get("reason", "") for one in told if one["status"] == "True"}


def outcome(namespace: Namespace, name: str) -> str:
    """Wait until a job has ended; `Complete` or `Failed`."""
    wait_until(
        lambda: any(kind in conditions(namespace, name) for kind in _FINISHED),
        f"{name} does not end",
    )
    return next(kind for kind in _FINISHED if kind in conditions(namespace, name))


def run(namespace: Namespace, body: Object) -> str:
    """Run a job to its good end; what its pods printed."""
    name = body["metadata"]["name"]
    namespace.api.create(namespace.jobs, body)
    how = outcome(namespace, name)
    pods = namespace.pods(name)
    logs = [namespace.log(pod["metadata"]["name"]) for pod in pods]
    assert how == "Complete", (logs, pods)
    return "".join(logs)


class TestPlayedNodes:
    def test_a_job_is_complete_when_the_test_says_so(self, played: Namespace) -> None:
        node = played.nodes.add("big", gpus=8)
        played.api.create(played.jobs, gpu_job("train", 8))
        [pod] = played.nodes.wait_for_pods("train")
        assert pod["spec"]["nodeName"] == node
        played.nodes.start(pod)
        wait_until(lambda: played.job("train")["status"].get("ready") == 1, "it does not get ready")
        played.nodes.finish(pod)
        assert outcome(played, "train") == "Complete"

    def test_a_failed_container_fails_its_job(self, played: Namespace) -> None:
        played.nodes.add("big")
        played.api.create(played.jobs, gpu_job("train", 1))
        [pod] = played.nodes.wait_for_pods("train")
        played.nodes.finish(pod, 137, "OOMKilled")
        assert outcome(played, "train") == "Failed"
        assert conditions(played, "train")["Failed"] == "BackoffLimitExceeded"
        [pod] = played.pods("train")
        [state] = pod["status"]["containerStatuses"]
        assert state["state"]["terminated"]["reason"] == "OOMKilled"

    def test_a_container_that_waits_says_why(self, played: Namespace) -> None:
        played.nodes.add("big")
        played.api.create(played.jobs, gpu_job("train", 1))
        [pod] = played.nodes.wait_for_pods("train")
        played.nodes.hold(pod, "ImagePullBackOff", "no such image")
        [pod] = played.pods("train")
        [state] = pod["status"]["containerStatuses"]
        assert state["state"] == {
            "waiting": {"reason": "ImagePullBackOff", "message": "no such image"}
        }

    def test_a_deleted_pod_goes_when_it_is_reaped(self, played: Namespace) -> None:
        played.nodes.add("big")
        played.api.create(played.jobs, gpu_job("train", 1))
        [pod] = played.nodes.wait_for_pods("train")
        played.nodes.start(pod)
        played.api.delete(f"{played.jobs}/train", propagationPolicy="Background")

        def is_deleted() -> bool:
            return all("deletionTimestamp" in pod["metadata"] for pod in played.pods("train"))

        wait_until(is_deleted, "the pod is not deleted")
        assert played.pods("train"), "nobody has ended it yet"
        played.nodes.reap()
        wait_until(lambda: not played.pods("train"), "the pod does not go")

    def test_no_namespace_gets_nodes_of_another(
        self, control_plane: KubernetesLab, played: Namespace
    ) -> None:
        with control_plane.namespace() as other:
            other.nodes.add("big", gpus=8)
            played.nodes.add("small", gpus=1)
            played.api.create(played.jobs, gpu_job("train", 8))

            def is_refused() -> bool:
                return any(
                    condition.get("reason") == "Unschedulable"
                    for pod in played.pods("train")
                    for condition in pod["status"].get("conditions", ())
                )

            wait_until(is_refused, "the scheduler does not say that there is no place")


class TestUsers:
    def test_alice_may_run_jobs_in_her_namespace_and_do_nothing_elsewhere(
        self, control_plane: KubernetesLab, played: Namespace
    ) -> None:
        alice = played.api_of(ALICE)
        alice.create(played.jobs, job("hers"))
        assert alice.get(f"{played.jobs}/hers")["metadata"]["namespace"] == played.name
        with control_plane.namespace() as other:
            other.api.delete(
                f"/apis/rbac.authorization.k8s.io/v1/namespaces/{other.name}/rolebindings/edit-alice"
            )
            for path in (other.jobs, f"{other.path}/pods", "/api/v1/nodes"):
                with pytest.raises(RefusedError) as refused:
                    alice.get(path)
                assert refused.value.code == 403

    def test_a_service_account_has_the_role_it_was_given(self, played: Namespace) -> None:
        reader = Api(played.service_account("reader", role="view"))
        assert reader.get(played.jobs)["items"] == []
        with pytest.raises(RefusedError) as refused:
            reader.create(played.jobs, job("mine"))
        assert refused.value.code == 403

    def test_kubectl_works_as_either_user(self, played: Namespace) -> None:
        played.kubectl("create", "-f", "-", user=ALICE, stdin=json.dumps(job("typed")))
        assert played.kubectl("get", "jobs", "-o", "name") == "job.batch/typed\n"
        assert played.run_kubectl("get", "nodes", user=ALICE).returncode != 0
        assert played.run_kubectl("get", "nodes", user=ADMIN).returncode == 0


class TestRealNodes:
    def test_a_pod_runs_and_its_log_can_be_read(self, real: Namespace) -> None:
        assert run(real, job("hello", "echo hello from $(hostname)")).startswith("hello from hello")

    def test_images_have_python_and_the_trainer(self, real: Namespace) -> None:
        for name, image, command in (
            ("python", PYTHON, "python3 -c 'import numpy, yaml; print(\"ok\")'"),
            (
                "trainer",
                TRAINER,
                "test -x /bin/dino && python3 -c 'import tiny_trainer' && echo ok",
            ),
        ):
            assert run(real, job(name, command, image=image)) == "ok\n"

    def test_the_pods_of_an_indexed_job_find_each_other_across_nodes(self, real: Namespace) -> None:
        headless = {"clusterIP": "None", "publishNotReadyAddresses": True}
        ports = {"selector": {"app": "pair"}, "ports": [{"port": 29500}]}
        service = {"kind": "Service", "metadata": {"name": "meet"}, "spec": {**headless, **ports}}
        real.api.create(f"{real.path}/services", service)
        code = (
            "import os, socket, time\n"
            "if os.environ['JOB_COMPLETION_INDEX'] == '0':\n"
            "    caller, _ = socket.create_server(('', 29500)).accept()\n"
            "    print('heard', caller.recv(100).decode(), flush=True)\n"
            "else:\n"
            "    for _ in range(600):\n"
            "        try: peer = socket.create_connection(('pair-0.meet', 29500), 2); break\n"
            "        except OSError: time.sleep(0.1)\n"
            "    peer.sendall(socket.gethostname().encode())\n"
        )
        apart = {
            "topologyKey": "kubernetes.io/hostname",
            "labelSelector": {"matchLabels": {"app": "pair"}},
        }
        body = job(
            "pair",
            image=PYTHON,
            container={"command": ["python3", "-c", code]},
            subdomain="meet",
            affinity={
                "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}
            },
        )
        body["spec"] |= {"completions": 2, "parallelism": 2, "completionMode": "Indexed"}
        assert run(real, body) == "heard pair-1\n"
        assert {pod["spec"]["nodeName"] for pod in real.pods("pair")} == set(real.cluster.nodes)

    def test_a_volume_is_a_folder_of_this_machine(self, real: Namespace) -> None:
        folder = real.add_volume("data")
        (folder / "asked").write_text("what?")
        volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
        mounts = {"volumeMounts": [{"name": "data", "mountPath": "/data"}]}
        body = job(
            "copy", "cat /data/asked; echo that > /data/told", container=mounts, volumes=volumes
        )
        assert run(real, body) == "what?"
        assert (folder / "told").read_text() == "that\n"

    def test_an_image_of_the_registry_needs_the_password(self, real: Namespace) -> None:
        image = f"{real.registry}/{PRIVATE}"
        # The node may have it, from another test that knew the password.
        asked = {"imagePullPolicy": "Always"}
        real.api.create(real.jobs, job("stranger", image=image, container=asked))

        def why_it_waits() -> list[str]:
            return [
                state["state"].get("waiting", {}).get("reason", "")
                for pod in real.pods("stranger")
                for state in pod["status"].get("containerStatuses", ())
            ]

        wait_until(
            lambda: {"ErrImagePull", "ImagePullBackOff"} & set(why_it_waits()),
            "a stranger is not refused",
        )
        real.add_registry_secret("password")
        known = job(
            "friend",
            "cat /etc/private",
            image=image,
            container=asked,
            imagePullSecrets=[{"name": "password"}],
        )
        assert run(real, known) == "private\n"

    def test_pods_reach_a_bucket(self, with_nodes: KubernetesLab, real: Namespace) -> None:
        with with_nodes.bucket("moto") as bucket:
            bucket.put("key", b"an object")
            asked = {"Bucket": bucket.name, "Key": "key"}
            url = bucket.client.generate_presigned_url("get_object", Params=asked)
            assert run(real, job("fetch", f"wget -q -O - '{url}'")) == "an object"

    def test_a_pod_can_ask_the_api_server(self, real: Namespace) -> None:
        real.service_account("default")
        code = (
            "import os, ssl, urllib.request\n"
            "place = '/var/run/secrets/kubernetes.io/serviceaccount/'\n"
            "host = os.environ['KUBERNETES_SERVICE_HOST']\n"
            f"url = f'https://{{host}}{real.jobs}/inside'\n"
            "trust = ssl.create_default_context(cafile=place + 'ca.crt')\n"
            "pass_ = {'Authorization': 'Bearer ' + open(place + 'token').read()}\n"
            "asked = urllib.request.Request(url, headers=pass_)\n"
            "print(urllib.request.urlopen(asked, context=trust).status)\n"
        )
        body = job("inside", image=PYTHON, container={"command": ["python3", "-c", code]})
        assert run(real, body) == "200\n"

    def test_gpus_are_counted(self, real: Namespace) -> None:
        assert run(real, gpu_job("train", 8)) == ""

    def test_a_container_over_its_memory_is_killed(self, real: Namespace) -> None:
        code = "x = []\nwhile True: x.append(bytearray(1 << 20))"
        greedy = {"command": ["python3", "-c", code], "resources": {"limits": {"memory": "64Mi"}}}
        real.api.create(real.jobs, job("greedy", image=PYTHON, container=greedy))
        assert outcome(real, "greedy") == "Failed"
        [state] = real.pods("greedy")[0]["status"]["containerStatuses"]
        assert state["state"]["terminated"]["reason"] == "OOMKilled"


class TestFaults:
    def test_the_api_server_can_go_away_and_come_back(self) -> None:
        with private_cluster(CONTROL_PLANE) as cluster, KubernetesLab(cluster).namespace() as own:
            own.api.create(own.jobs, job("kept"))
            cluster.stop_apiserver()
            with pytest.raises(ConnectionRefusedError):
                own.job("kept")
            cluster.start_apiserver()
            assert own.job("kept")["metadata"]["name"] == "kept"

    def test_a_node_can_be_lost_and_come_back(self) -> None:
        with private_cluster(QUICK_TO_GIVE_UP) as cluster:
            first, second = cluster.nodes
            cluster.kill_node(first)
            cluster.pause_node(second)
            for name in cluster.nodes:
                wait_until(partial(is_missed, cluster, name), f"{name} is not missed")
            cluster.start_node(first)
            cluster.resume_node(second)
            for name in cluster.nodes:
                cluster.wait_for_node(name)
            cluster.cut_node(first)
            wait_until(partial(is_missed, cluster, first), "nobody notices the pulled cable")
            cluster.mend_node(first)
            cluster.wait_for_node(first)


class TestEnds:
    def test_nothing_is_left_of_a_cluster(self) -> None:
        with private_cluster(WITH_NODES) as cluster, KubernetesLab(cluster).namespace() as own:
            own.api.create(own.jobs, job("long", "sleep 600"))
            wait_until(
                lambda: [pod["status"]["phase"] for pod in own.pods("long")] == ["Running"],
                "the pod does not run",
            )
            folder, tag = cluster.folder, cluster.layout.tag
            link = cluster.fabric.link
            assert {kind for kind, _ in left_of(folder, tag, link)} == {
                *("process", "namespace", "group", "link", "folder")
            }
        # The kernel takes a link away a moment after its namespace.
        wait_until(lambda: not left_of(folder, tag, link), str(left_of(folder, tag, link)))

    def test_the_cluster_of_a_killed_process_ends(self) -> None:
        code = (
            "import signal\n"
            "from lab.kubernetes import WITH_NODES, private_cluster\n"
            "with private_cluster(WITH_NODES) as cluster:\n"
            "    print(cluster.folder, cluster.layout.tag, cluster.fabric.link, flush=True)\n"
            "    signal.pause()\n"
        )
        user = subprocess.Popen(
            [sys.executable, "-c", code], cwd=_TESTS, stdout=subprocess.PIPE, text=True
        )
        assert user.stdout
        folder, tag, link = user.stdout.readline().split()
        assert left_of(Path(folder), tag, link)
        user.kill()
        user.wait()
        user.stdout.close()
        wait_until(
            lambda: not left_of(Path(folder), tag, link), str(left_of(Path(folder), tag, link))
        )


def is_missed(cluster: Cluster, node: str) -> bool:
    return not cluster.is_ready(node)


def left_of(folder: Path, tag: str, link: str) -> list[tuple[str, str]]:
    """What this machine has of a cluster, by kind."""
    mounts = Path("/proc/self/mounts").read_text().splitlines()
    found = {
        "process": [str(pid) for pid in members(folder)],
        "mount": [line for line in mounts if str(folder) in line],
        "namespace": [str(path) for path in Path("/run/netns").glob(f"{tag}-*")],
        "group": [str(path) for path in Path("/sys/fs/cgroup").glob(f"*/{tag}")],
        "link": [link] if Path("/sys/class/net", link).exists() else [],
        "folder": [str(folder)] if folder.exists() else [],
    }
    return [(kind, one) for kind, ones in found.items() for one in ones]
