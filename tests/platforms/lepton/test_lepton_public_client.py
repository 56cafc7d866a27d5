"""The public client of Lepton talks to the played workspace: so it is played faithfully."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from lepton_lab import LeptonLab

from lab.lepton import TOKEN, WORKSPACE, LeptonServer
from lab.lepton.public_client import public_client
from tao_sdk.platforms.lepton import LeptonSDK

_LOGIN = f"""
import json, os, sys, time
from leptonai.api.v1.client import APIClient
from leptonai.api.v1.types.job import LeptonJob, LeptonJobUserSpec
from leptonai.api.v1.types.deployment import EnvValue, EnvVar, LeptonContainer
from leptonai.api.v1.types.common import Metadata
from leptonai.api.v1.types.secret import SecretItem
client = APIClient({WORKSPACE!r}, {TOKEN!r}, sys.argv[1])
def ended(job_id):
    deadline = time.monotonic() + 60
    while (state := client.job.get(job_id).status.state.value) not in ("Completed", "Failed"):
        assert time.monotonic() < deadline, state
        time.sleep(0.1)
    return state
"""
_OWN_JOB = """
client.secret.create([SecretItem(name="GREETING", value="hello")])
words = ["/bin/sh", "-c", 'echo "$SAID world"']
spec = LeptonJobUserSpec(
    resource_shape="cpu.small",
    container=LeptonContainer(image="busybox", command=words),
    envs=[EnvVar(name="SAID", value_from=EnvValue(secret_name_ref="GREETING"))],
)
made = client.job.create(LeptonJob(metadata=Metadata(name="by-hand"), spec=spec))
job_id = made.metadata.id_
state = ended(job_id)
replicas = client.job.get_replicas(job_id)
now = time.time_ns()
kept = client.log.get_log(name_or_job=job_id, start=str(now - 10**12), end=str(now + 10**9))
told = {
    "id": job_id,
    "state": state,
    "listed": [job.metadata.id_ for job in client.job.list_all()],
    "live": "".join(client.job.get_log(job_id, replicas[0])),
    "kept": [line for stream in kept["data"]["result"] for _, line in stream["values"]],
    "events": len(client.job.get_events(job_id)),
    "groups": [group.metadata.id_ for group in client.nodegroup.list_all()],
    "secrets": [[one.name, one.value] for one in client.secret.list_all()],
}
client.job.delete(job_id)
client.secret.delete("GREETING")
told["afterwards"] = [job.metadata.id_ for job in client.job.list_all()]
told["archive"] = [j.status.state.value for j in client.job.list_all(job_query_mode="archive_only")]
print(json.dumps(told))
"""
_STORAGE = """
from pathlib import Path
folder = "/team/results/a job"
client.storage.get_file(f"{folder}/model.pth", sys.argv[2], "lustre")
print(json.dumps({
    "file systems": [one.metadata.name for one in client.storage.list_storage()],
    "folder": [[one.name, one.type] for one in client.storage.get_dir(folder, "lustre")],
    "kind": client.storage.get_file_type(f"{folder}/train", "lustre"),
    "there": [client.storage.check_exists(f"{folder}{name}", "lustre") for name in ("", "/none")],
    "content": Path(sys.argv[2]).read_text(),
}))
"""
_JOB_OF_THE_SDK = """
[job] = client.job.list_all(query="tao-toolkit=true")
spec = job.spec
print(json.dumps({
    "state": ended(job.metadata.id_),
    "group": spec.affinity.allowed_dedicated_node_groups,
    "mounts": [[one.from_, one.path, one.mount_path] for one in spec.mounts],
    "secret": [one.value_from.secret_name_ref for one in spec.envs if one.value_from],
    "ttl": spec.ttl_seconds_after_finished,
    "queue": spec.queue_config.priority_class,
}))
"""


def run_client(server: LeptonServer, source: str, *words: str) -> Any:
    done = subprocess.run(
        [str(public_client()), "-c", _LOGIN + source, server.url, *words],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.timeout(900)
def test_it_makes_watches_and_removes_a_job(server: LeptonServer) -> None:
    told = run_client(server, _OWN_JOB)
    assert told["state"] == "Completed"
    assert told["id"] in told["listed"]
    assert told["live"] == "hello world\n"
    assert told["kept"] == ["hello world"]
    assert told["groups"] == ["ng-main", "ng-full"]
    assert told["secrets"] == [["GREETING", None]], "values are written, never read"
    assert (told["afterwards"], told["archive"]) == ([], ["Deleted"])


@pytest.mark.timeout(900)
def test_it_fetches_files_of_a_volume(server: LeptonServer, tmp_path: Path) -> None:
    folder = server.state.volume("lustre") / "team" / "results" / "a job"
    (folder / "train").mkdir(parents=True)
    (folder / "model.pth").write_text("weights")
    assert run_client(server, _STORAGE, str(tmp_path / "copy")) == {
        "file systems": ["default", "lustre"],
        "folder": [["model.pth", "file"], ["train", "dir"]],
        "kind": "dir",
        "there": [True, False],
        "content": "weights",
    }


@pytest.mark.timeout(900)
def test_it_understands_jobs_of_the_sdk(
    sdk: LeptonSDK, lab: LeptonLab, server: LeptonServer
) -> None:
    env = {"TOKEN": "to-be-kept-secret"}
    sdk.create_job(**lab.job("true"), env_vars=env, queue_priority=9)
    [secret] = server.state.secrets
    assert run_client(server, _JOB_OF_THE_SDK) == {
        "state": "Completed",
        "group": ["ng-main"],
        "mounts": [["node-nfs:lustre", "/team", "/mnt/lustre"]],
        "secret": [secret],
        "ttl": 259_200,
        "queue": "high-9000",
    }
