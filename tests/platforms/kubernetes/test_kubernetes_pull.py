"""Results on a volume are read by a short-lived pod of the user's own namespace."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from kubernetes_sdk import LONG, isolate, opened

from lab.docker.images import BUSYBOX
from lab.kubernetes import Namespace
from lab.kubernetes.api import name_of
from lab.kubernetes.images import PYTHON
from tao_sdk.errors import PlatformError, UnsupportedError, ValidationError
from tao_sdk.models import Job
from tao_sdk.platforms.conformance import eventually
from tao_sdk.platforms.kubernetes import KubernetesSDK, volume_reader
from tao_sdk.platforms.results import results_of
from tao_sdk.results import State, copy_results, plan_pull

LARGE = 40 * 1024 * 1024
RECORD = "tao_result.json"


@pytest.fixture
def sdk(
    real: Namespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[KubernetesSDK]:
    with opened(real, tmp_path, monkeypatch) as sdk:
        yield sdk


def ended(sdk: KubernetesSDK, command: str = "true", **keywords: object) -> Job:
    """A job that has ended, with results on a claim."""
    keywords = {"image": PYTHON, "gpu_count": 0, "mounts": ["pvc://results:/results"], **keywords}
    job = sdk.create_job(command=command, **keywords)
    assert job.wait(timeout=LONG).status == "Complete", sdk.get_job_logs(job.id)
    return job


def pull(sdk: KubernetesSDK, job: Job, destination: Path, *, verify: bool = False) -> list[State]:
    source = results_of(sdk, job.id)
    plan = plan_pull(source, destination, verify=verify)
    return [outcome.state for outcome in copy_results(source, plan)]


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def readers(namespace: Namespace) -> list[str]:
    """Jobs and pods of readers."""
    listed = [
        *namespace.api.get(namespace.jobs)["items"],
        *namespace.api.get(f"{namespace.path}/pods")["items"],
    ]
    return [name for name in map(name_of, listed) if name.startswith("tao-read-")]


def nothing_left(namespace: Namespace) -> None:
    eventually(lambda: not readers(namespace), LONG)


def test_whole_files_under_any_name_come_once(
    sdk: KubernetesSDK, real: Namespace, tmp_path: Path
) -> None:
    folder = real.add_volume("results")
    job = ended(sdk)
    there = folder / job.id
    for name in ("with spaces/in both.txt", "line\nbreak", "-option", "ünï'\"$(x)", "empty"):
        (there / name).parent.mkdir(exist_ok=True)
        (there / name).write_bytes(b"" if name == "empty" else os.fsencode(name))
    (there / "large.bin").write_bytes(os.urandom(LARGE))
    (there / "link").symlink_to("large.bin")
    states = pull(sdk, job, tmp_path / "mine", verify=True)
    assert set(states) == {State.COPIED}
    assert contents(tmp_path / "mine") == contents(there)
    assert (tmp_path / "mine" / "link").readlink() == Path("large.bin")
    nothing_left(real)
    assert set(pull(sdk, job, tmp_path / "mine", verify=True)) == {State.PRESENT}


def test_the_reader_has_no_more_rights_than_the_job(
    sdk: KubernetesSDK, real: Namespace, tmp_path: Path
) -> None:
    """In a namespace that admits `restricted` pods alone."""
    mark = {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}}
    real.api.patch(real.path, mark)
    folder = real.add_volume("results")
    folder.chmod(0o777)
    private = 'umask 077; cd "$TAO_RESULTS_ROOT/$TAO_JOB_ID"; echo secret > private'
    job = ended(sdk, private, restricted=True, run_as_user=4321)
    source = results_of(sdk, job.id)
    plan = plan_pull(source, tmp_path / "mine")
    [pod] = [
        pod
        for pod in real.api.get(f"{real.path}/pods")["items"]
        if name_of(pod).startswith("tao-read-")
    ]
    assert pod["spec"]["automountServiceAccountToken"] is False
    assert all(mount["readOnly"] for mount in pod["spec"]["containers"][0]["volumeMounts"][:1])
    list(copy_results(source, plan))
    assert (tmp_path / "mine" / "private").read_text() == "secret\n"
    nothing_left(real)


def test_a_running_job_is_read_on_its_own_node(
    sdk: KubernetesSDK, real: Namespace, tmp_path: Path
) -> None:
    """Many volumes can be attached to one node only."""
    real.add_volume("results")
    write = 'echo 1 > "$TAO_RESULTS_ROOT/$TAO_JOB_ID/first"; sleep 1000'
    job = sdk.create_job(
        image=PYTHON, command=write, gpu_count=0, mounts=["pvc://results:/results"]
    )
    eventually(lambda: job.refresh().status == "Running", LONG)
    [working] = real.pods(f"tao-job-{job.id}")
    source = results_of(sdk, job.id)
    eventually(lambda: "first" in [entry.path for entry in source.entries()], LONG)
    [reading] = [
        pod
        for pod in real.api.get(f"{real.path}/pods")["items"]
        if name_of(pod).startswith("tao-read-")
    ]
    assert reading["spec"]["nodeName"] == working["spec"]["nodeName"]
    sdk.close()
    nothing_left(real)


def test_a_folder_of_a_node_is_read_there(
    sdk: KubernetesSDK, real: Namespace, tmp_path: Path
) -> None:
    folder = real.cluster.layout.volumes / f"{real.name}-node"
    node = real.cluster.nodes[1]
    job = ended(
        sdk,
        'echo 1 > "$TAO_RESULTS_ROOT/$TAO_JOB_ID/one"',
        mounts=[f"hostpath://{folder}:/results"],
        node_selector={"kubernetes.io/hostname": node},
    )
    source = results_of(sdk, job.id)
    plan = plan_pull(source, tmp_path / "mine")
    [reading] = [
        pod
        for pod in real.api.get(f"{real.path}/pods")["items"]
        if name_of(pod).startswith("tao-read-")
    ]
    assert reading["spec"]["nodeName"] == node
    list(copy_results(source, plan))
    assert (tmp_path / "mine" / "one").read_text() == "1\n"
    nothing_left(real)
    # A job on several nodes leaves a part on each of them.
    nodes = Path(sdk.store.path).parent.glob(f"*.kubernetes/{job.id}/nodes")
    next(nodes).write_text("\n".join(real.cluster.nodes))
    with pytest.raises(UnsupportedError, match="folders of 2 nodes"):
        results_of(sdk, job.id)


KILLED = """
import os, signal, sys
from pathlib import Path
from tao_sdk.platforms.kubernetes import KubernetesSDK, volume_probe, volume_reader
from tao_sdk.platforms.results import results_of
from tao_sdk.results import copy_results, plan_pull

volume_reader.IDLE_SECONDS, volume_probe._TTL_SECONDS = 6, 1
sdk = KubernetesSDK(state_file=sys.argv[1])
source = results_of(sdk, sys.argv[2])
came = 0

def advance(amount):
    global came
    came += amount
    if came > 8 << 20:
        os.kill(os.getpid(), signal.SIGKILL)

list(copy_results(source, plan_pull(source, Path(sys.argv[3])), advance))
"""


def test_a_killed_pull_is_finished_by_the_next_and_its_pod_ends_by_itself(
    sdk: KubernetesSDK, real: Namespace, tmp_path: Path
) -> None:
    folder = real.add_volume("results")
    job = ended(sdk)
    large, content = folder / job.id / "large.bin", os.urandom(LARGE)
    large.write_bytes(content)
    mine = tmp_path / "mine"
    words = [sys.executable, "-c", KILLED, str(tmp_path / "state.json"), job.id, str(mine)]
    assert subprocess.run(words, timeout=LONG).returncode == -signal.SIGKILL
    [part] = (mine / ".tao-pull" / "parts").iterdir()
    assert 0 < part.stat().st_size < LARGE
    assert not (mine / "large.bin").exists()
    assert readers(real)
    nothing_left(real)
    # What came does not come again: a change behind the back of size and time is not seen.
    before = large.stat()
    with large.open("r+b") as file:
        file.write(bytes(16))
    os.utime(large, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert State.FAILED not in pull(sdk, job, mine)
    assert (mine / "large.bin").read_bytes() == content
    nothing_left(real)


def test_what_is_not_there_is_named(sdk: KubernetesSDK, real: Namespace, tmp_path: Path) -> None:
    folder = real.add_volume("results")
    job = ended(sdk)
    (folder / job.id).rename(folder / "elsewhere")
    with pytest.raises(ValidationError, match="the results folder is not there"):
        pull(sdk, job, tmp_path / "mine")
    real.api.delete(real.jobs, propagationPolicy="Background")
    real.api.delete(f"{real.path}/persistentvolumeclaims/results")
    eventually(lambda: not real.api.exists(f"{real.path}/persistentvolumeclaims/results"), LONG)
    with pytest.raises(ValidationError, match="no claim results in namespace"):
        pull(sdk, job, tmp_path / "mine")
    nothing_left(real)


def test_an_image_without_the_programs_is_named(
    sdk: KubernetesSDK, real: Namespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real.add_volume("results")
    job = ended(sdk, "echo 1 > /results/$TAO_JOB_ID/one", image=BUSYBOX)
    with pytest.raises(PlatformError, match=f"{BUSYBOX} has no GNU find.*TAO_K8S_LOOK_IMAGE"):
        pull(sdk, job, tmp_path / "mine")
    monkeypatch.setenv("TAO_K8S_LOOK_IMAGE", PYTHON)
    assert State.FAILED not in pull(sdk, job, tmp_path / "mine")
    assert (tmp_path / "mine" / "one").read_text() == "1\n"
    nothing_left(real)


def test_a_user_who_may_not_run_programs_in_pods_learns_which_right_is_missing(
    real: Namespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real.add_volume("results")
    roles, name = "/apis/rbac.authorization.k8s.io/v1/clusterroles", f"{real.name}-no-exec"
    resources = [
        *("jobs", "pods", "pods/log", "events", "secrets", "configmaps"),
        *("services", "persistentvolumeclaims"),
    ]
    rules = [{"apiGroups": ["", "batch"], "resources": resources, "verbs": ["*"]}]
    real.api.create(roles, {"kind": "ClusterRole", "metadata": {"name": name}, "rules": rules})
    try:
        isolate(monkeypatch, real.service_account("robot", role=name))
        with KubernetesSDK(state_file=tmp_path / "state.json") as sdk:
            job = ended(sdk)
            with pytest.raises(PlatformError, match=r"you may not run programs.*pods/exec"):
                pull(sdk, job, tmp_path / "mine")
        nothing_left(real)
    finally:
        real.api.delete(f"{roles}/{name}")


def test_an_idle_reader_is_replaced(
    sdk: KubernetesSDK, real: Namespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real.add_volume("results")
    job = ended(sdk)
    source = results_of(sdk, job.id)
    plan = plan_pull(source, tmp_path / "mine")
    [pod] = [name for name in readers(real) if name.count("-") > 2]
    real.api.delete(f"{real.path}/pods/{pod}", gracePeriodSeconds="0")
    monkeypatch.setattr(volume_reader, "_SURE_SECONDS", 0)
    assert {outcome.state for outcome in copy_results(source, plan)} == {State.COPIED}
    nothing_left(real)
