"""What a cluster is asked for: the Job word for word, and what belongs to it."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from kubernetes_objects import JOB_ID, NAME, TOKEN, objects

from tao_sdk.platforms.kubernetes import command, kinds, manifests, plan, volume_probe
from tao_sdk.platforms.kubernetes.volumes import parse_place
from tao_sdk.script_runner import build_entrypoint
from tao_sdk.secrets import Secret

SECRET = "canary-in-a-secret-51aa"  # noqa: S105 - made up


def container_of(made: manifests.Objects) -> Any:
    return made.job["spec"]["template"]["spec"]["containers"][0]


def pod_spec(made: manifests.Objects) -> Any:
    return made.job["spec"]["template"]["spec"]


@pytest.mark.seed("003.2")
def test_the_job_of_the_seed() -> None:
    """Lessons W15, F11: ended Jobs go by themselves."""
    made = objects(gpu_count=2, network_arch="dino", action="train")
    assert made.companions == ()
    assert made.release is None
    assert made.job["metadata"]["name"] == NAME
    labels = {
        "tao-toolkit": "true",
        "tao-sdk-job-id": JOB_ID,
        "tao-sdk-network": "dino",
        "tao-sdk-action": "train",
    }
    assert made.job["metadata"]["labels"] == {**labels, "tao-sdk-token": TOKEN}
    spec = made.job["spec"]
    assert spec["template"]["metadata"]["labels"] == labels
    assert (spec["backoffLimit"], spec["ttlSecondsAfterFinished"]) == (0, 3600)
    assert "suspend" not in spec
    assert pod_spec(made)["restartPolicy"] == "Never"
    container = container_of(made)
    assert (container["name"], container["image"]) == ("tao", "busybox:1")
    assert container["resources"] == {"limits": {"nvidia.com/gpu": "2"}}
    assert container["command"][-2:] == ["-c", "echo hello"]
    assert "exec /bin/bash" in container["command"][-4]
    assert {"name": "TAO_JOB_ID", "value": JOB_ID} in container["env"]


def test_a_job_without_gpus_sees_none() -> None:
    container = container_of(objects())
    assert container["resources"] == {}
    assert {"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"} in container["env"]


def test_every_value_of_the_environment_is_in_a_secret_and_nowhere_else() -> None:
    """Lesson 6.3: secrets as plain env in the Job."""
    made = objects(
        env_vars={"TOKEN": SECRET, "PLAIN": "looks harmless"}, credentials={"HF_TOKEN": "hf-canary"}
    )
    [(resource, secret)] = made.companions
    assert resource == "secrets"
    values = {name: base64.b64decode(value).decode() for name, value in secret["data"].items()}
    assert values == {"HF_TOKEN": "hf-canary", "TOKEN": SECRET, "PLAIN": "looks harmless"}
    assert container_of(made)["envFrom"] == [{"secretRef": {"name": f"{NAME}-env"}}]
    told = json.dumps(made.job) + json.dumps(made.release) + "".join(made.shown().values())
    for value in (SECRET, "looks harmless", "hf-canary", *secret["data"].values()):
        assert value not in told
    assert SECRET not in repr(made)


def test_what_belongs_to_a_job_is_made_before_it_starts() -> None:
    made = objects(env_vars={"A": "b"})
    assert made.job["spec"]["suspend"] is True
    assert made.job["metadata"]["labels"]["tao-sdk-submitting"] == "true"
    assert made.release == {
        "metadata": {"labels": {"tao-sdk-submitting": None}},
        "spec": {"suspend": False},
    }
    seen = {**made.job, "metadata": {**made.job["metadata"], "uid": "u-1"}}
    owner = manifests.owner_of(seen)
    assert (owner["kind"], owner["name"], owner["uid"]) == ("Job", NAME, "u-1")


@pytest.mark.seed("003.9")
def test_a_pull_secret_is_made_from_the_key_of_ngc() -> None:
    made = objects(image="nvcr.io/nvidia/tao:6", login=("$oauthtoken", Secret(SECRET)))
    [(_, secret)] = made.companions
    assert secret["type"] == "kubernetes.io/dockerconfigjson"
    config = json.loads(base64.b64decode(secret["data"][".dockerconfigjson"]))
    entry = config["auths"]["nvcr.io"]
    assert (entry["username"], entry["password"]) == ("$oauthtoken", SECRET)
    assert base64.b64decode(entry["auth"]).decode() == f"$oauthtoken:{SECRET}"
    assert pod_spec(made)["imagePullSecrets"] == [{"name": f"{NAME}-pull"}]
    assert SECRET not in "".join(made.shown().values())


@pytest.mark.seed("003.7")
def test_several_nodes() -> None:
    made = objects(gpu_count=8, num_nodes=4)
    spec = made.job["spec"]
    assert (spec["completionMode"], spec["completions"], spec["parallelism"]) == ("Indexed", 4, 4)
    [(resource, service)] = made.companions
    assert resource == "services"
    assert service["metadata"]["name"] == pod_spec(made)["subdomain"] == NAME
    assert service["spec"] == {
        "clusterIP": "None",
        "publishNotReadyAddresses": True,
        "selector": {"job-name": NAME},
    }
    env = {one["name"]: one.get("value") for one in container_of(made)["env"]}
    assert env["WORLD_SIZE"] == env["NNODES"] == "4"
    assert env["NUM_GPU_PER_NODE"] == env["NPROC_PER_NODE"] == "8"
    assert (env["MASTER_ADDR"], env["MASTER_PORT"]) == (f"{NAME}-0.{NAME}", "29500")
    [rank] = [one for one in container_of(made)["env"] if one["name"] == "NODE_RANK"]
    path = "metadata.annotations['batch.kubernetes.io/job-completion-index']"
    assert rank["valueFrom"] == {"fieldRef": {"fieldPath": path}}


@pytest.mark.seed("003.7")
def test_your_port_wins() -> None:
    made = objects(num_nodes=2, env_vars={"MASTER_PORT": "12345"})
    assert "MASTER_PORT" not in {one["name"] for one in container_of(made)["env"]}
    data = made.companions[0][1]["data"]
    assert base64.b64decode(data["MASTER_PORT"]) == b"12345"


@pytest.mark.seed("003.9")
def test_retries_are_counted_for_each_pod_and_not_for_what_nodes_do() -> None:
    made = objects(num_nodes=2, retries=3)
    spec = made.job["spec"]
    assert (spec["backoffLimitPerIndex"], spec["maxFailedIndexes"]) == (3, 0)
    assert "backoffLimit" not in spec
    [rule] = spec["podFailurePolicy"]["rules"]
    assert rule["action"] == "Ignore"
    assert rule["onPodConditions"] == [{"type": "DisruptionTarget", "status": "True"}]
    assert "TAO_ATTEMPT=$$((" in container_of(made)["command"][2]


@pytest.mark.seed("003.9")
def test_a_queue_starts_the_job_and_not_we() -> None:
    alone = objects(queue="team-a")
    assert alone.job["spec"]["suspend"] is True
    assert alone.job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "team-a"
    assert alone.release is None
    # With companions, the queue hears of the job when they are there, and not before.
    made = objects(queue="team-a", env_vars={"A": "b"})
    assert "kueue.x-k8s.io/queue-name" not in made.job["metadata"]["labels"]
    assert made.release is not None
    assert "spec" not in made.release
    assert made.release["metadata"]["labels"] == {
        "tao-sdk-submitting": None,
        "kueue.x-k8s.io/queue-name": "team-a",
    }


@pytest.mark.seed("003.3")
def test_options_end_up_where_kubernetes_looks_for_them() -> None:
    """Lesson F11: resources, priority, accounts and the rest could not be asked for."""
    made = objects(
        gpu_count=1,
        image_pull_secret="ngc-pull-secret",  # noqa: S106 - a name
        node_selector={"gpu-type": "h100"},
        tolerations=[{"key": "team", "operator": "Equal", "value": "a", "effect": "NoSchedule"}],
        resources={"cpu": 8, "memory": "64Gi", "ephemeral_storage": "100Gi", "rdma/hca": 1},
        service_account="trainer",
        priority_class="high",
        labels={"team": "a"},
        annotations={"note": "kept"},
        active_deadline_seconds=600,
        host_network=True,
        image_pull_policy="IfNotPresent",
        cwd="/workspace",
        shm_size="16Gi",
    )
    spec = pod_spec(made)
    assert spec["imagePullSecrets"] == [{"name": "ngc-pull-secret"}]
    assert spec["nodeSelector"] == {"gpu-type": "h100"}
    assert [one["key"] for one in spec["tolerations"]] == ["team", "nvidia.com/gpu"]
    assert (spec["serviceAccountName"], spec["priorityClassName"]) == ("trainer", "high")
    assert (spec["hostNetwork"], spec["dnsPolicy"]) == (True, "ClusterFirstWithHostNet")
    resources = container_of(made)["resources"]
    disk = {"memory": "64Gi", "ephemeral-storage": "100Gi"}
    assert resources["requests"] == {"cpu": "8", **disk}
    assert resources["limits"] == {**disk, "rdma/hca": "1", "nvidia.com/gpu": "1"}
    assert made.job["spec"]["activeDeadlineSeconds"] == 600
    assert made.job["metadata"]["labels"]["team"] == "a"
    assert made.job["spec"]["template"]["metadata"]["annotations"] == {"note": "kept"}
    assert (container_of(made)["workingDir"], container_of(made)["imagePullPolicy"]) == (
        "/workspace",
        "IfNotPresent",
    )
    [shm] = [one for one in spec["volumes"] if one["name"] == "tao-shm"]
    assert shm["emptyDir"] == {"medium": "Memory", "sizeLimit": "16Gi"}


def test_shared_memory_is_memory_unless_asked_otherwise() -> None:
    """Lesson 6.2: no /dev/shm (64 MiB), bus errors of data loaders."""
    made = objects()
    assert {"name": "tao-shm", "emptyDir": {"medium": "Memory"}} in pod_spec(made)["volumes"]
    assert {"name": "tao-shm", "mountPath": "/dev/shm"} in container_of(made)["volumeMounts"]
    assert pod_spec(objects(shm_size=0))["volumes"] == []
    assert pod_spec(objects(host_ipc=True))["volumes"] == []


@pytest.mark.seed("003.9")
def test_mounts() -> None:
    mounts = [
        "pvc://results/team-a:/results",
        "nfs://files.example/export:/data:ro",
        {"source": "/scratch", "target": "/scratch"},
        "configmap://settings:/etc/settings",
    ]
    made = objects(mounts=mounts)
    volumes = {one["name"]: one for one in pod_spec(made)["volumes"]}
    assert volumes["mount-0"]["persistentVolumeClaim"] == {"claimName": "results"}
    assert volumes["mount-1"]["nfs"] == {
        "server": "files.example",
        "path": "/export",
        "readOnly": True,
    }
    assert volumes["mount-2"]["hostPath"] == {"path": "/scratch"}
    assert volumes["mount-3"]["configMap"] == {"name": "settings"}
    seen = {one["mountPath"]: one for one in container_of(made)["volumeMounts"]}
    assert seen["/results"] == {"name": "mount-0", "mountPath": "/results", "subPath": "team-a"}
    assert seen["/data"]["readOnly"] is True
    assert {"name": "TAO_RESULTS_ROOT", "value": "/results"} in container_of(made)["env"]


def test_a_results_mount_that_cannot_be_written_is_no_place_for_results() -> None:
    made = objects(mounts=["pvc://results:/results:ro"])
    assert "TAO_RESULTS_ROOT" not in {one["name"] for one in container_of(made)["env"]}


def test_dollars_reach_the_container_as_they_are() -> None:
    """Kubernetes fills in $(NAME), and makes one dollar of two."""

    def as_kubernetes_does(text: str) -> str:
        found, rest = "", text
        while rest:
            if rest.startswith("$$"):
                found, rest = found + "$", rest[2:]
            elif rest.startswith("$(") and ")" in rest:
                found, rest = found + "FILLED IN", rest.partition(")")[2]
            else:
                found, rest = found + rest[0], rest[1:]
        return found

    for text in ("$(date)", "$$", "$$(x)", "$$$(x)", "a$", "$a ${b} $((1+1)) $$x", "$$$$"):
        assert as_kubernetes_does(command.escape(text)) == text
    assert command.escape("echo $HOME ${X}") == "echo $HOME ${X}"


def test_a_long_command_travels_in_config_maps() -> None:
    text = "# " + "x" * 2_000_000 + "\necho done"
    made = objects(command=text)
    maps = [one for resource, one in made.companions if resource == "configmaps"]
    assert len(maps) == 3
    joined = b"".join(base64.b64decode(one["binaryData"]["part"]) for one in maps)
    assert joined.decode() == text
    assert len(json.dumps(made.job)) < 20_000
    [volume] = [one for one in pod_spec(made)["volumes"] if "projected" in one]
    names = [one["configMap"]["name"] for one in volume["projected"]["sources"]]
    assert names == [one["metadata"]["name"] for one in maps]
    short = objects(command="# " + "x" * 200_000)
    assert [resource for resource, _ in short.companions] == ["configmaps"]
    assert container_of(short)["command"][-1] == "/tao-job/command.sh"


def test_a_job_that_brings_the_runner_stays_small() -> None:
    """Whoever lists a thousand Jobs would have a thousand runners sent to him, and again by pod."""
    asked = {"specs": {"data": "s3://bucket/train/"}, "inputs": {"data": {"type": "folder"}}}
    packed = build_entrypoint(command="train -e {config_path}", **asked)["command"]
    assert len(packed) > 25_000
    made = objects(command=packed)
    assert len(json.dumps(made.job)) < 8_000
    [(resource, held)] = made.companions
    assert resource == "configmaps"
    assert base64.b64decode(held["binaryData"]["part"]).decode() == packed
    assert container_of(made)["command"][-1] == "/tao-job/command.sh"
    assert not objects(command="# " + "x" * 16_000).companions


@pytest.mark.parametrize("text", ["$(touch pwned)", "a/b c", "", "日本語", "-x-", "a" * 200])
def test_names_of_any_kind_become_labels(text: str) -> None:
    import re

    made = objects(network_arch=text)
    value = made.job["metadata"]["labels"]["tao-sdk-network"]
    assert re.fullmatch(r"([A-Za-z0-9]([\w.-]{0,61}[A-Za-z0-9])?)?", value, re.ASCII)


def test_a_fence_has_the_name_and_nothing_to_do() -> None:
    made = manifests.fence(NAME, "lab")
    assert made["metadata"]["name"] == NAME
    assert (made["spec"]["completions"], made["spec"]["parallelism"]) == (0, 0)
    assert made["spec"]["ttlSecondsAfterFinished"] > 0


def test_an_ended_job_is_kept_for_an_hour_unless_you_say_otherwise() -> None:
    assert objects().job["spec"]["ttlSecondsAfterFinished"] == 3600
    assert objects(ttl_seconds=60).job["spec"]["ttlSecondsAfterFinished"] == 60


def test_no_token_of_a_service_account_unless_it_is_asked_for() -> None:
    assert pod_spec(objects())["automountServiceAccountToken"] is False
    asked = pod_spec(objects(service_account="robot", service_account_token=True))
    assert asked["automountServiceAccountToken"] is True
    assert asked["serviceAccountName"] == "robot"


def test_security_context() -> None:
    assert "securityContext" not in pod_spec(objects())
    assert "securityContext" not in container_of(objects())
    made = objects(run_as_user=1000, run_as_group=0, fs_group=2000, restricted=True)
    assert pod_spec(made)["securityContext"] == {
        "runAsUser": 1000,
        "runAsGroup": 0,
        "fsGroup": 2000,
        "fsGroupChangePolicy": "OnRootMismatch",
        "runAsNonRoot": True,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    assert container_of(made)["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
    }


def test_env_vars_win_over_existing_objects() -> None:
    made = objects(env_from=["tokens", "configmap://defaults"], env_vars={"A": "b"})
    assert container_of(made)["envFrom"] == [
        {"secretRef": {"name": "tokens"}},
        {"configMapRef": {"name": "defaults"}},
        {"secretRef": {"name": f"{NAME}-env"}},
    ]


def test_retries_for_failures_of_nodes_alone() -> None:
    spec = objects(node_retries=2).job["spec"]
    assert (spec["backoffLimitPerIndex"], spec["maxFailedIndexes"]) == (2, 0)
    disrupted, failed = spec["podFailurePolicy"]["rules"]
    assert (disrupted["action"], disrupted["onPodConditions"][0]["type"]) == (
        "Count",
        "DisruptionTarget",
    )
    assert failed == {
        "action": "FailJob",
        "onExitCodes": {"containerName": "tao", "operator": "NotIn", "values": [0]},
    }


@pytest.mark.parametrize(
    ("results", "ttl", "told"),
    [
        ("", 60, "its log are lost unless a process attends to it while its Job is kept (60 s"),
        (
            "pvc://lab@data/x",
            60,
            "the log is lost unless a process attends to it while its Job is kept",
        ),
        ("pvc://lab@data/x", 3600, ""),
        ("", None, ""),
    ],
)
def test_the_plan_says_what_goes_with_the_job(results: str, ttl: int | None, told: str) -> None:
    found = plan.notes([], results, ttl)[1:]
    assert told in "".join(found)
    assert bool(told) == bool(found)


def test_jobs_on_volumes_repeat_what_admits_and_places_the_pods() -> None:
    pod = pod_spec(
        objects(
            restricted=True,
            run_as_user=1000,
            overlay={"spec": {"template": {"spec": {"runtimeClassName": "nvidia"}}}},
        )
    )
    place = parse_place("results", "pvc://data")
    body = volume_probe.probe_job("tao-look-1", place, "ls", volume_probe.template_of(pod), "")
    repeated = body["spec"]["template"]["spec"]
    for name in ("securityContext", "runtimeClassName", "automountServiceAccountToken"):
        assert repeated[name] == pod[name]
    assert repeated["containers"][0]["securityContext"] == pod["containers"][0]["securityContext"]


class TestKinds:
    def test_a_job_set_runs_the_job_and_names_its_pods(self) -> None:
        made = objects(kind="jobset", num_nodes=2, retries=2, env_vars={"A": "b"}, ttl_seconds=60)
        root = made.root
        assert (root["apiVersion"], root["kind"]) == ("jobset.x-k8s.io/v1alpha2", "JobSet")
        assert root["metadata"]["name"] == NAME
        assert root["metadata"]["labels"]["tao-sdk-submitting"] == "true"
        assert root["spec"]["suspend"] is True
        assert root["spec"]["ttlSecondsAfterFinished"] == 60
        assert root["spec"]["failurePolicy"] == {"maxRestarts": 2}
        [replicated] = root["spec"]["replicatedJobs"]
        template = replicated["template"]
        assert template["metadata"]["labels"]["tao-sdk-job-id"] == JOB_ID
        assert not {"tao-sdk-submitting", "tao-sdk-token"} & template["metadata"]["labels"].keys()
        spec = template["spec"]
        assert (spec["completionMode"], spec["completions"], spec["backoffLimit"]) == (
            "Indexed",
            2,
            0,
        )
        env = {one["name"]: one for one in container_of(made)["env"]}
        assert env["MASTER_ADDR"]["value"] == f"{NAME}-node-0-0.{NAME}"
        assert "restart-attempt" in str(env["TAO_FAILURES"])
        assert [resource for resource, _ in made.companions] == ["jobs", "secrets"]
        assert made.companions[0][1] == manifests.fence(NAME, "lab")

    def test_a_job_set_restarts_for_failures_of_nodes_alone(self) -> None:
        made = objects(kind="jobset", node_retries=1)
        assert made.root["spec"]["failurePolicy"] == {
            "maxRestarts": 1,
            "rules": [
                {
                    "name": "program",
                    "action": "FailJobSet",
                    "onJobFailureReasons": ["PodFailurePolicy"],
                }
            ],
        }
        [replicated] = made.root["spec"]["replicatedJobs"]
        assert "backoffLimitPerIndex" not in replicated["template"]["spec"]
        actions = [
            rule["action"] for rule in replicated["template"]["spec"]["podFailurePolicy"]["rules"]
        ]
        assert actions == ["Count", "FailJob"]

    def test_a_train_job_refers_to_a_runtime_of_its_own(self) -> None:
        made = objects(kind="trainjob", num_nodes=2)
        [(resource, runtime)] = made.before
        assert (resource, runtime["kind"]) == ("trainingruntimes", "TrainingRuntime")
        assert runtime["metadata"]["name"] == NAME
        spec = made.root["spec"]
        assert spec["runtimeRef"]["name"] == NAME
        assert (spec["trainer"], spec["suspend"]) == ({"numNodes": 2}, True)
        assert made.root["metadata"]["annotations"]["tao-sdk-ttl-seconds"] == "3600"
        [replicated] = runtime["spec"]["template"]["spec"]["replicatedJobs"]
        labels = replicated["template"]["metadata"]["labels"]
        assert not [name for name in labels if "trainer.kubeflow.org" in name]
        assert "TrainingRuntime" in "".join(made.shown().values())

    def test_volcano_places_all_pods_or_none(self) -> None:
        made = objects(kind="volcano", num_nodes=3, queue="team", priority_class="high")
        assert made.root is made.job
        assert "kueue.x-k8s.io/queue-name" not in made.job["metadata"]["labels"]
        assert made.release is not None
        assert made.release["spec"] == {"suspend": False}
        resource, group = made.companions[0]
        assert (resource, group["metadata"]["name"]) == ("podgroups", NAME)
        assert group["spec"] == {"minMember": 3, "queue": "team", "priorityClassName": "high"}
        assert pod_spec(made)["schedulerName"] == "volcano"
        noted = made.job["spec"]["template"]["metadata"]["annotations"]
        assert noted == {"scheduling.k8s.io/group-name": NAME}

    def test_names_of_pods_fit(self) -> None:
        """JobSet refuses what cannot be a host name."""
        assert len(f"{kinds.child_of(NAME)}-9999-abcde") <= 63
