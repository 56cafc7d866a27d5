"""Shapes, mounts, names, payloads, commands: what is decided without asking anybody."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tao_sdk.errors import CapacityError, CredentialError, ValidationError
from tao_sdk.platforms.common.container_command import MAX_ARGUMENT_BYTES
from tao_sdk.platforms.lepton import job_spec, naming, options, shapes, volumes
from tao_sdk.platforms.lepton.auth import WorkspaceAccess
from tao_sdk.platforms.lepton.client import LeptonClient
from tao_sdk.platforms.lepton.volumes import Place, Volume
from tao_sdk.platforms.request import options_of
from tao_sdk.result_record import ResultRecord, told_record
from tao_sdk.secrets import Secret

JOB = "0f3a9f6e-3f0a-4b44-9b6e-1c2d3e4f5a6b"
GROUPS = [shapes.Group("ng-1", "one"), shapes.Group("ng-2", "two")]
SHAPES = [
    shapes.Shape("cpu.large", 0, ""),
    shapes.Shape("cpu.small", 0, ""),
    shapes.Shape("gpu.1", 1, "H100", group="ng-1"),
    shapes.Shape("gpu.4", 4, "H100", group="ng-1"),
    shapes.Shape("gpu.8", 8, "H100", group="ng-2"),
    shapes.Shape("gpu.hidden", 2, "H100", group="ng-1", offered=False),
]


class TestNames:
    def test_the_whole_id_is_in_the_name(self) -> None:
        name = naming.job_name(JOB)
        assert name == f"tao-{JOB.replace('-', '')}"
        assert len(name) <= 36

    def test_a_secret_is_known_by_its_name(self) -> None:
        name = naming.SecretName(JOB.replace("-", ""), 1_760_000_000, "HF_TOKEN")
        assert naming.parse_secret(str(name)) == name
        assert naming.parse_secret("HF_TOKEN") is None
        assert naming.parse_secret("TAO_something_else") is None

    def test_ids_of_the_server_are_quoted(self) -> None:
        assert naming.below("/jobs", "a/../b?c") == "/jobs/a%2F..%2Fb%3Fc"


class TestShapes:
    def choose(self, gpus: int, named: str = "", group: str = "") -> tuple[str, int, str]:
        return shapes.choose(SHAPES, GROUPS, gpus, named, group)[:3]

    def test_exact_then_the_smallest_that_fits(self) -> None:
        assert self.choose(4) == ("gpu.4", 4, "ng-1")
        assert self.choose(5) == ("gpu.8", 5, "ng-2")
        assert self.choose(2) == ("gpu.4", 2, "ng-1"), "one that is not offered is not taken"
        assert "gpu.4 has 4" in shapes.choose(SHAPES, GROUPS, 3, "", "").note

    def test_all_of_the_largest(self) -> None:
        assert self.choose(-1) == ("gpu.8", 8, "ng-2")

    def test_in_a_node_group(self) -> None:
        assert self.choose(1, group="ng-1") == ("gpu.1", 1, "ng-1")
        with pytest.raises(CapacityError, match=r"no shape of node group one has 8 GPUs.*gpu\.4"):
            self.choose(8, group="ng-1")
        with pytest.raises(ValidationError, match="no 'three'; there is: one, two"):
            shapes.find_group(GROUPS, "three")
        assert shapes.find_group(GROUPS, "two").id == shapes.find_group(GROUPS, "ng-2").id

    def test_cpu_shapes_by_preference(self) -> None:
        assert self.choose(0) == ("cpu.large", 0, "")
        with pytest.raises(CapacityError, match="no CPU shape"):
            shapes.choose(SHAPES[2:], GROUPS, 0, "", "")

    def test_one_that_is_named(self) -> None:
        assert self.choose(2, "gpu.hidden") == ("gpu.hidden", 2, "ng-1")
        with pytest.raises(ValidationError, match=r"no 'gpu\.9'"):
            self.choose(1, "gpu.9")
        with pytest.raises(CapacityError, match=r"gpu\.1 has 1 GPUs, not 2"):
            self.choose(2, "gpu.1")


class TestMounts:
    VOLUMES = (
        Volume("disk", "local"),
        Volume("home", "nfs"),
        Volume("my-filestore", "nfs"),
        Volume("Lustre-1", "nfs"),
    )

    @pytest.mark.seed("000.13")
    def test_shared_storage_is_found(self) -> None:
        found = volumes.preferred(self.VOLUMES)
        assert found is not None
        place = volumes.detected(found, [{"path_prefix": "/team/a"}])
        assert place.payload() == {
            "path": "/team/a",
            "from": "node-nfs:Lustre-1",
            "mount_path": "/mnt/Lustre-1",
        }
        assert volumes.results_root([place], place) == ("/mnt/Lustre-1/results", place)

    def test_filestore_then_the_first_and_never_a_local_disk(self) -> None:
        assert volumes.preferred(self.VOLUMES[:3]) == self.VOLUMES[2]
        assert volumes.preferred(self.VOLUMES[:2]) == self.VOLUMES[1]
        assert volumes.preferred(self.VOLUMES[:1]) is None
        assert volumes.detected(self.VOLUMES[1], []).path == "/"

    @pytest.mark.parametrize(
        ("given", "expected"),
        [
            ("home/me:/data:ro", Place("home", "/me", "/data", True)),
            ("node-local/x:/scratch", Place("node-local", "/x", "/scratch")),
            (
                {"from": "node-nfs:home", "path": "/a", "mount_path": "/results"},
                Place("node-nfs:home", "/a", "/results"),
            ),
            ({"source": "home", "target": "/data"}, Place("home", "/", "/data")),
        ],
    )
    def test_ways_to_say_it(self, given: Any, expected: Place) -> None:
        assert volumes.check_mounts("mounts", given) == (expected,)

    @pytest.mark.parametrize(
        "given",
        ["/home/me:/data", "home:/etc", "home/../x:/data", "home:relative", ["a:/x", "b:/x"]],
    )
    def test_what_is_refused(self, given: Any) -> None:
        with pytest.raises(ValidationError, match="mounts"):
            volumes.check_mounts("mounts", given)

    def test_names_are_looked_up(self) -> None:
        place = volumes.looked_up("mounts[0]", Place("home", "/me", "/data"), "ng", self.VOLUMES)
        assert place.source == "node-nfs:home"
        with pytest.raises(ValidationError, match="no volume 'other'; there is: disk, home"):
            volumes.looked_up("mounts[0]", Place("other", "/", "/data"), "ng", self.VOLUMES)

    def test_results_go_where_they_are_mounted(self) -> None:
        place = Place("node-nfs:home", "/me", "/results")
        assert volumes.results_root([place], None) == ("/results", place)
        assert volumes.results_root([place._replace(read_only=True)], None) == ("", None)


class TestOptions:
    @pytest.mark.parametrize(
        ("given", "expected"),
        [(1, "low-1000"), ("mid", "mid-4000"), ("high-9", "high-9000"), ("mid-5000", "mid-5000")],
    )
    def test_priorities(self, given: Any, expected: str) -> None:
        assert options.check_priority("queue_priority", given) == expected

    def test_no_priority(self) -> None:
        with pytest.raises(ValidationError, match="queue_priority: 'urgent'"):
            options.check_priority("queue_priority", "urgent")

    @pytest.mark.parametrize(
        ("given", "mib"),
        [(512, 512), ("512Mi", 512), ("16Gi", 16384), ("16 GB", 16384), ("16g", 16384)],
    )
    def test_shared_memory(self, given: Any, mib: int) -> None:
        [option] = [one for one in options_of(options.LeptonOptions) if one.name == "shm_size"]
        assert option.check("shm_size", given) == mib
        with pytest.raises(ValidationError, match="shm_size"):
            option.check("shm_size", "much")


class TestCommand:
    def run(self, script: str, nodes: int = 1, **env: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            job_spec.container_command(script, nodes),
            env={"PATH": os.environ["PATH"], "TAO_JOB_ID": JOB, "NNODES": str(nodes), **env},
            capture_output=True,
            text=True,
            check=False,
        )

    def test_its_record_is_its_last_line(self) -> None:
        done = self.run("printf unfinished; exit 4")
        *lines, last = done.stdout.splitlines()
        assert (lines, done.returncode) == (["unfinished"], 4)
        record = told_record(last, JOB)
        assert isinstance(record, ResultRecord)
        assert (record.exit_code, record.rank, record.attempt) == (4, 0, 1)
        assert told_record(last, "another-job") is None

    def test_an_attempt_is_counted(self) -> None:
        done = self.run("true", LEPTON_JOB_FAILURE_COUNT="2")
        record = told_record(done.stdout.splitlines()[-1], JOB)
        assert record is not None
        assert record.attempt == 3

    def test_how_ranks_meet(self) -> None:
        done = self.run(
            'echo "$NODE_RANK|$MASTER_ADDR|$WORKER_ADDRS"',
            3,
            LEPTON_JOB_SERVICE_PREFIX="job-ab",
            LEPTON_SUBDOMAIN="job-ab-svc",
            LEPTON_JOB_WORKER_INDEX="2",
        )
        told = "2|job-ab-0.job-ab-svc|job-ab-1.job-ab-svc,job-ab-2.job-ab-svc"
        assert done.stdout.splitlines()[0] == told

    def test_long_commands_go_in_pieces(self, tmp_path: Path) -> None:
        text = f"# {'ü' * 200_000}\necho done"
        words = job_spec.container_command(text, 1)
        assert max(len(word.encode()) for word in words) <= MAX_ARGUMENT_BYTES
        done = self.run(text, TMPDIR=str(tmp_path))
        assert done.stdout.splitlines()[0] == "done"


class TestAccess:
    @pytest.mark.seed("000.3")
    def test_missing_credentials_are_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in ("LEPTON_WORKSPACE_ID", "LEPTON_AUTH_TOKEN", "LEPTON_WORKSPACE_TOKEN"):
            monkeypatch.delenv(name, raising=False)
        with pytest.raises(CredentialError, match="LEPTON_WORKSPACE_ID and LEPTON_AUTH_TOKEN"):
            WorkspaceAccess.find()
        monkeypatch.setenv("LEPTON_WORKSPACE_ID", "ws")
        with pytest.raises(CredentialError, match="LEPTON_AUTH_TOKEN is not set"):
            WorkspaceAccess.find()

    def test_a_token_is_not_taken_for_a_name(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("LEPTON_WORKSPACE_ID", "ws:the-token-itself")
        monkeypatch.setenv("LEPTON_AUTH_TOKEN", "another")
        with pytest.raises(CredentialError, match="into LEPTON_AUTH_TOKEN") as caught:
            WorkspaceAccess.find()
        assert "the-token-itself" not in str(caught.value)

    def test_addresses(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("LEPTON_WORKSPACE_ID", "ws")
        monkeypatch.setenv("LEPTON_AUTH_TOKEN", "the-token-itself")
        monkeypatch.delenv("LEPTON_API_BASE_URL", raising=False)
        access = WorkspaceAccess.find()
        host = "https://gateway.dgxc-lepton.nvidia.com"
        assert (access.url, access.origin) == (f"{host}/api/v2/workspaces/ws", host)
        assert "the-token-itself" not in repr(access) + str(access)
        monkeypatch.setenv("LEPTON_API_BASE_URL", "https://lab.example/api/v2/workspaces/other/")
        assert WorkspaceAccess.find().url == "https://lab.example/api/v2/workspaces/other"
        monkeypatch.setenv("LEPTON_API_BASE_URL", "http://lab.example")
        with pytest.raises(ValidationError, match="in clear text"):
            WorkspaceAccess.find()
        monkeypatch.setenv("LEPTON_API_BASE_URL", "https://user:password@lab.example")
        with pytest.raises(ValidationError, match="LEPTON_API_BASE_URL") as caught:
            WorkspaceAccess.find()
        assert "password@" not in str(caught.value)

    def test_a_proxy_that_cannot_be_one(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("HTTPS_PROXY", "ftp://user:canary@proxy")
        monkeypatch.delenv("NO_PROXY", raising=False)
        access = WorkspaceAccess("ws", "https://lab.example/api", Secret("token"))
        with pytest.raises(ValidationError, match="HTTPS_PROXY: the address of the proxy") as error:
            LeptonClient(access)
        assert "canary" not in str(error.value)
