"""The pure parts of a preflight: records, GPUs, hours, arguments, remedies."""

from __future__ import annotations

import ast
import inspect
import json
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import pytest

from tao_sdk.errors import ValidationError
from tao_sdk.platforms.docker.endpoint import Endpoint
from tao_sdk.platforms.remote.framing import Section
from tao_sdk.preflight import PreflightRequest, host_setup, json_records
from tao_sdk.preflight.arguments import read_batches, read_gigabytes, read_lists, read_paths
from tao_sdk.preflight.checks import Check, presentable
from tao_sdk.preflight.docker import start_remedy
from tao_sdk.preflight.gpus import GpuFacts, gpu_checks, occupancy, parse_gpus
from tao_sdk.preflight.host_gpus import restrict_facts
from tao_sdk.preflight.json_records import examine_text
from tao_sdk.preflight.kubernetes import kind_checks, labelled_gpus
from tao_sdk.preflight.local_files import local_checks
from tao_sdk.preflight.nodes import one_machine_tasks, partition_nodes
from tao_sdk.preflight.slurm import gres_check, read_look
from tao_sdk.preflight.ssh_remedy import ssh_remedy
from tao_sdk.preflight.wall_time import (
    closed_partitions,
    hours_asked,
    partition_check,
    partitions_asked,
    wall_time_checks,
)
from tao_sdk.skills.layout import PACKAGED_BANK

DEFAULTS = {"time_hours": 4, "max_time_hours": 4, "partition": "polar,grizzly"}


def examine(content: Any, *fields: str, limit: int = 20) -> dict[str, Any]:
    text = content if isinstance(content, str) else json.dumps(content)
    return examine_text(text.encode(), fields, limit)


class TestRecords:
    @pytest.mark.parametrize(
        ("content", "form", "records"),
        [
            ([{"a": 1}, {"a": 2}], "json", 2),
            ({"annotations": [{"a": 1}], "data": []}, "json", 1),
            ({"images": [1, 2, 3], "annotations": [{"a": 1}]}, "json", 1),
            ({"items": [{"a": 1}] * 3, "annotations": "none"}, "json", 3),
            ({"a": 1}, "json", 1),
            ('{"a": 1}\n\n{"a": 2}\n', "jsonl", 2),
            ('{"a": 1}\n', "json", 1),
            ('\ufeff[{"a": Infinity}]', "json", 1),
        ],
    )
    def test_every_form(self, content: Any, form: str, records: int) -> None:
        found = examine(content, "a")
        assert (found["form"], found["records"], found["bad"]) == (form, records, 0)

    def test_only_a_sample_is_looked_at_and_few_are_named(self) -> None:
        found = examine([{"a": 1}] * 3 + [{}] * 9, "a", limit=10)
        assert (found["records"], found["looked"], found["bad"]) == (12, 10, 7)
        assert found["problems"] == [f"record {n} has no a" for n in range(4, 9)]
        assert examine([{}, {"a": 1}], "a", limit=0)["looked"] == 1

    def test_what_counts_as_missing(self) -> None:
        found = examine([{"a": None, "b": 0, "c": ""}, 7, {"a": 1}], "a", "b", "c")
        assert found["problems"] == [
            "record 1 has no a",
            "record 2 is not an object",
            "record 3 has no b, c",
        ]

    @pytest.mark.parametrize(
        ("content", "says"),
        [
            ('[{"a": 1}', "neither JSON nor JSON Lines"),
            ('{"a": 1}\n{"a": ', "line 2"),
            ("", "neither JSON"),
            ("a,b\n1,2\n", "neither JSON"),
        ],
    )
    def test_broken_files(self, content: str, says: str) -> None:
        assert says in examine(content, "a")["error"]

    def test_a_line_beyond_the_sample_is_counted_only(self) -> None:
        found = examine('{"a": 1}\n{"a": 2}\nbroken\n', "a", limit=2)
        assert (found["records"], found["bad"]) == (3, 0)

    def test_other_bytes(self) -> None:
        assert "not UTF-8" in examine_text(b"\xff\xfe\x00", (), 1)["error"]

    def test_as_a_program(self, tmp_path: Path) -> None:
        """As a login host runs it: the source as an argument, in a bare interpreter."""
        path = tmp_path / "it's é.json"
        path.write_text('{"samples": [{"a": 1}, {}]}')
        words = [sys.executable, "-I", "-S", "-c", inspect.getsource(json_records)]
        for arguments, expected in (
            ((str(path), "20", "a"), {"records": 2, "bad": 1}),
            ((str(path), "20", ""), {"records": 2, "bad": 0}),
        ):
            done = subprocess.run(
                [*words, *arguments], capture_output=True, timeout=60, env={"LC_ALL": "C"}
            )
            found = json.loads(done.stdout)
            assert {key: found[key] for key in expected} == expected
        done = subprocess.run([*words, str(tmp_path), "1", ""], capture_output=True, timeout=60)
        assert "cannot be read" in json.loads(done.stdout)["error"]

    def test_it_runs_on_old_login_hosts(self) -> None:
        path = Path(json_records.__file__)
        ast.parse(path.read_text(), feature_version=(3, 6))
        vermin = Path(sysconfig.get_path("scripts"), "vermin")
        if not vermin.exists():
            pytest.skip("vermin is not installed: pip install vermin")
        options = ["--no-tips", "--target=3.6-", "--violations"]
        done = subprocess.run(
            [sys.executable, vermin, *options, path], capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0, done.stdout


class TestGpus:
    def request(self, **asked: Any) -> PreflightRequest:
        return PreflightRequest(platform="x", **asked)

    def statuses(self, gpus: list[GpuFacts] | None, **asked: Any) -> dict[str, str]:
        return {c.name: c.status for c in gpu_checks(self.request(**asked), gpus)}

    def test_lines_are_read(self) -> None:
        told = (
            "warning: something\n"
            "0, GPU-a, 40000, 81559, 9.0, 580.65.06, NVIDIA H100 80GB, rev 2\n"
            "1, GPU-b, [N/A], [N/A], [N/A], 580.65.06, Thor\n"
        )
        first, second = parse_gpus(told)
        assert first == GpuFacts(
            "0", "GPU-a", 40000, 81559, "sm_90", "580.65.06", "NVIDIA H100 80GB, rev 2"
        )
        assert (second.used_mib, second.total_mib, second.sm) == (None, None, "")

    @pytest.mark.parametrize(
        ("total_mib", "floor", "status"),
        [
            (81559, 80.0, "passed"),  # sold as 80 GB
            (81559, 86.0, "failed"),
            (46068, 48.0, "warning"),  # sold as 48 GB: enough, and less than 50
            (24564, None, "warning"),
        ],
    )
    def test_memory(self, total_mib: int, floor: float | None, status: str) -> None:
        gpus = [GpuFacts("0", "k", total_mib=total_mib)]
        assert self.statuses(gpus, min_gpu_memory_gb=floor)["gpu.memory"] == status

    def test_what_is_told_stands_in_for_what_is_seen(self) -> None:
        asked = {"gpu_count": 4, "target_gpu_count": 4, "target_gpu_memory_gb": (80.0,)}
        assert self.statuses(None, **asked) == {"gpu.count": "passed", "gpu.memory": "passed"}
        assert self.statuses(None, gpu_count=4)["gpu.count"] == "warning"
        uneven = self.statuses(None, target_gpu_count=4, target_gpu_memory_gb=(80.0, 80.0))
        assert uneven["gpu.memory"] == "failed"

    def test_architectures(self) -> None:
        cosmos = "nvcr.io/nvidia/tao/tao-toolkit:7.0.1-cosmos-rl"
        for sm, status in {"sm_90": "passed", "8.6": "failed", "compute_120": "passed"}.items():
            found = self.statuses(None, container_image=cosmos, gpu_archs=(sm,))
            assert found["gpu.architecture"] == status
        assert self.statuses(None, container_image=cosmos)["gpu.architecture"] == "warning"
        blind = [GpuFacts("0", "k")]
        assert self.statuses(blind, container_image=cosmos)["gpu.architecture"] == "failed"
        listed = self.statuses(None, gpu_arch_allowlist={"x": ("90",)})
        assert listed["gpu.allowlist:x"] == "failed", "not known is not proven"

    def test_no_gpus_wanted(self) -> None:
        assert self.statuses([], gpu_count=0, min_gpu_memory_gb=80) == {"gpu": "skipped"}
        assert self.statuses([])["gpu.count"] == "failed"

    def test_occupancy(self) -> None:
        gpus = [GpuFacts("0", "a", 5000, 80000), GpuFacts("1", "b", 3), GpuFacts("2", "c")]
        found = occupancy(self.request(gpu_count=1), gpus, {"b"})
        assert found.details["chosen"] == ["2"]
        assert occupancy(self.request(gpu_count=2), gpus, {"b"}).status == "warning"
        assert occupancy(self.request(gpu_count=-1), gpus, set()).status == "warning"

    def test_callers_choice_of_gpus_counts(self) -> None:
        gpus = [GpuFacts("0", "GPU-a"), GpuFacts("1", "GPU-b")]
        assert restrict_facts(gpus, "GPU-b,0") == [gpus[1], gpus[0]]
        assert restrict_facts(gpus, "") == []

    def test_labels_of_nodes(self) -> None:
        labels = {
            "nvidia.com/gpu.memory": "81559",
            "nvidia.com/gpu.compute.major": "10",
            "nvidia.com/gpu.compute.minor": "0",
        }
        status = {"allocatable": {"nvidia.com/gpu": "2"}}
        node = {"metadata": {"name": "n", "labels": labels}, "status": status}
        found = labelled_gpus(node)
        assert [(gpu.sm, gpu.total_mib) for gpu in found] == [("sm_100", 81559)] * 2
        assert labelled_gpus({"metadata": {"name": "n"}, "status": status}) == []


def node(product: str, memory: str, major: str) -> dict[str, Any]:
    labels = {
        "nvidia.com/gpu.product": product,
        "nvidia.com/gpu.memory": memory,
        "nvidia.com/gpu.compute.major": major,
    }
    return {
        "metadata": {"name": product, "labels": labels},
        "status": {"allocatable": {"nvidia.com/gpu": "2"}},
    }


def test_a_cluster_of_different_gpus_suits_if_some_do() -> None:
    big, small = node("H100", "81559", "9"), node("T4", "15360", "7")
    request = PreflightRequest(platform="x", min_gpu_memory_gb=80)
    mixed = {check.name: check for check in kind_checks(request, [small, big])}
    assert mixed["gpu.memory"].status == "passed"
    assert mixed["gpu.kinds"].status == "warning"
    assert "T4 (15.0 GiB, sm_70)" in mixed["gpu.kinds"].message
    assert '"nvidia.com/gpu.product": "H100"' in mixed["gpu.kinds"].remedy
    alone = {check.name: check.status for check in kind_checks(request, [small])}
    assert alone["gpu.memory"] == "failed"
    assert "gpu.kinds" not in alone
    assert [check.name for check in kind_checks(request, [])] == ["gpu.memory"]


PARTITIONS = """
PartitionName=small MaxNodes=2 TotalNodes=9 State=UP
PartitionName=large MaxNodes=UNLIMITED TotalNodes=5 State=UP
PartitionName=unasked MaxNodes=UNLIMITED TotalNodes=99 State=UP
"""


@pytest.mark.parametrize(
    ("asked", "nodes", "expected"),
    [
        (["small"], 1, []),
        (["small"], 2, ["passed"]),
        (["small"], 3, ["failed"]),
        (["small", "large"], 5, ["passed"]),
        (["small", "large"], 6, ["failed"]),
        (["unknown"], 99, []),
    ],
)
def test_nodes_of_partitions(asked: list[str], nodes: int, expected: list[str]) -> None:
    found = list(partition_nodes(PARTITIONS, asked, nodes))
    assert [check.status for check in found] == expected
    if expected == ["failed"]:
        assert f"nodes needed: {nodes}; a job gets at most: small 2" in found[0].message


def test_several_nodes_where_jobs_run_on_one_machine() -> None:
    assert one_machine_tasks(PreflightRequest("docker"), "Docker") == []
    [task] = one_machine_tasks(PreflightRequest("docker", num_nodes=2), "Docker")
    [found] = task.run()
    assert (found.name, found.status) == ("nodes", "failed")
    assert "nodes needed: 2; Docker runs a job on one machine" in found.message


class TestHours:
    @pytest.fixture(autouse=True)
    def _unset(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in ("SLURM_TIME_HOURS", "SLURM_TIMEOUT_HOURS", "SLURM_PARTITION"):
            monkeypatch.delenv(name, raising=False)

    @pytest.mark.parametrize(
        ("hours", "timeout", "expected"),
        [("", "", (4, 3.8)), ("2", "", (2, 1.8)), ("0.1", "", (0.1, 0.1)), ("8", "7.5", (8, 7.5))],
    )
    def test_defaults(
        self, monkeypatch: pytest.MonkeyPatch, hours: str, timeout: str, expected: tuple[float, ...]
    ) -> None:
        monkeypatch.setenv("SLURM_TIME_HOURS", hours)
        monkeypatch.setenv("SLURM_TIMEOUT_HOURS", timeout)
        assert hours_asked(DEFAULTS) == pytest.approx(expected)

    @pytest.mark.parametrize(
        ("partition", "status"),
        [
            ("polar", "failed"),
            ("polar,grizzly", "failed"),
            ("polar,own", "warning"),
            ("", "warning"),
        ],
    )
    def test_the_limit_is_for_the_partitions_of_the_bank(
        self, monkeypatch: pytest.MonkeyPatch, partition: str, status: str
    ) -> None:
        monkeypatch.setenv("SLURM_TIME_HOURS", "12")
        monkeypatch.setenv("SLURM_PARTITION", partition)
        [found] = wall_time_checks(DEFAULTS)
        assert found.status == status

    def test_the_jobs_own_options_are_what_is_looked_at(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("SLURM_TIME_HOURS", "2")
        monkeypatch.setenv("SLURM_PARTITION", "own")
        [found] = wall_time_checks(DEFAULTS, {"partition": "polar", "time_hours": 12})
        assert (found.status, found.message.split(",")[0]) == ("failed", "time_hours=12")
        limits = {"own": None, "polar": 240}
        assert partition_check("", limits, 12).status == "passed"
        assert partition_check("", limits, 12, {"partition": "polar"}).status == "failed"
        assert partitions_asked({"backend_details": {"partition": "polar"}}) == ["polar"]

    def test_not_a_number(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("SLURM_TIME_HOURS", "four")
        with pytest.raises(ValidationError, match="SLURM_TIME_HOURS='four'"):
            hours_asked(DEFAULTS)
        [found] = wall_time_checks(DEFAULTS)
        assert found.status == "failed"
        [found] = wall_time_checks(DEFAULTS, {"time_hours": "four"})
        assert (found.status, "time_hours='four'" in found.message) == ("failed", True)

    @pytest.mark.parametrize(
        ("partition", "status", "says"),
        [
            ("long", "passed", "long (no limit)"),
            ("short", "failed", "short 2 h"),
            ("short,long", "warning", "too short: short 2 h"),
            ("down", "failed", "takes no jobs now"),
            ("down,long", "warning", "down takes no jobs now"),
            ("else", "failed", "no partition else"),
        ],
    )
    def test_what_the_cluster_says(
        self, monkeypatch: pytest.MonkeyPatch, partition: str, status: str, says: str
    ) -> None:
        monkeypatch.setenv("SLURM_PARTITION", partition)
        told = "PartitionName=down State=DOWN\nPartitionName=long State=UP\n"
        assert closed_partitions(told) == {"down"}
        found = partition_check(told, {"long": None, "short": 120, "down": None}, 4)
        assert found.status == status
        assert says in found.message


class TestArguments:
    @pytest.mark.parametrize("batch", ["a=\u00b2,2", "a=1", "a=0,2", "a=-1,2", f"a={'9' * 5000},2"])
    def test_batches_that_are_none(self, batch: str) -> None:
        with pytest.raises(ValidationError, match="whole numbers above 0"):
            read_batches("--batch", [batch])

    @pytest.mark.parametrize("memory", [float("nan"), float("inf"), -3.0])
    def test_an_amount_of_memory_that_is_none(self, memory: float) -> None:
        with pytest.raises(ValidationError, match="gigabytes"):
            PreflightRequest(platform="local", min_gpu_memory_gb=memory)

    def test_paths(self) -> None:
        asked = ["train=/a=b", "/x/y", "s3://bucket/k=v", "rel"]
        assert read_paths(asked) == {
            "train": "/a=b",
            "/x/y": "/x/y",
            "s3://bucket/k=v": "s3://bucket/k=v",
            "rel": "rel",
        }

    def test_lists_add_up(self) -> None:
        asked = ["a=x,y", "b=z", "a=y, w"]
        assert read_lists("--f", asked) == {"a": ("x", "y", "w"), "b": ("z",)}

    def test_numbers(self) -> None:
        assert read_batches("--batch", ["a=4,2"]) == {"a": (4, 2)}
        assert read_gigabytes("--m", ["80", "40,24"]) == (80.0, 40.0, 24.0)

    @pytest.mark.parametrize(
        "wrong",
        [
            lambda: read_paths(["a="]),
            lambda: read_paths(["=x"]),
            lambda: read_paths(["a=/x", "a=/y"]),
            lambda: read_lists("--f", ["a"]),
            lambda: read_lists("--f", ["a=,"]),
            lambda: read_batches("--batch", ["a=4"]),
            lambda: read_batches("--batch", ["a=0,1"]),
            lambda: read_batches("--batch", ["a=x,1"]),
            lambda: read_gigabytes("--m", ["much"]),
            lambda: read_gigabytes("--m", ["-1"]),
        ],
    )
    def test_nonsense_is_refused(self, wrong: Any) -> None:
        with pytest.raises(ValidationError):
            wrong()


def test_ssh_steps_know_the_port() -> None:
    told = ssh_remedy("me", "login.example:2222,other")
    assert "ssh-copy-id -p 2222 -i ~/.ssh/id_ed25519.pub me@login.example" in told
    assert "ssh-keyscan -p 2222 -H login.example >>" in told
    assert "<SLURM_USER>@<login-host>" in ssh_remedy("", "")


def test_what_the_login_host_says_about_a_path() -> None:
    assert read_look(Section("missing", "", b"")).state == "missing"
    assert read_look(Section("file", "", b"")).records is None
    no_python = read_look(Section("file", "no-python", b""))
    assert "no python3" in (no_python.records or {})["error"]
    broken = read_look(Section("file", "", b"Traceback: no json\n"))
    assert "no json" in (broken.records or {})["error"]


@pytest.mark.parametrize(
    ("partitions", "needed", "status", "says"),
    [
        (["big"], None, "passed", "big 8 GPUs (h100) a node"),
        (["big", "any"], 8, "passed", "big 8 GPUs (h100) a node, any 4 GPUs a node"),
        (["any"], 4, "passed", "any 4 GPUs a node"),
        (["any"], -1, "passed", "any 4 GPUs a node"),
        (["any"], 8, "failed", "GPUs needed on a node: 8"),
        (["cpu"], 1, "warning", "manages no GPUs"),
    ],
)
def test_gpus_of_partitions(
    partitions: list[str], needed: int | None, status: str, says: str
) -> None:
    told = "big|gpu:h100:8(S:0-1),nvme:2\nany|gpu:4\ncpu|(null)\n"
    found = gres_check(told, partitions, needed)
    assert found.status == status
    assert says in found.message


def test_the_program_that_remedies_name_is_in_the_bank() -> None:
    assert (PACKAGED_BANK / host_setup.SCRIPT).is_file()
    assert host_setup.SCRIPT in host_setup.check_command("docker")


def test_a_check_is_what_the_seam_says() -> None:
    check = Check("a", "passed", "b")
    assert (check.remedy, dict(check.details)) == ("", {})
    assert PreflightRequest(platform="x").low_vram_threshold_gb == 50.0


def test_nothing_in_a_finding_steers_a_terminal() -> None:
    shown = presentable(Check("path:a\x1b[31m\nb", "failed", "x\x1b[2J\ny"), [])
    assert (shown.name, shown.message) == (r"path:a\x1b[31m b", r"x\x1b[2J y")


def test_a_path_with_a_line_break_is_called_that() -> None:
    request = PreflightRequest(platform="local", paths={"train": "/data/new\nline"})
    [found] = local_checks(request, "train")
    assert (found.status, "line break" in found.message) == ("failed", True)


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("ssh://me@gpu-host:2222", "ssh -o BatchMode=yes -p 2222 me@gpu-host docker info"),
        ("ssh://gpu-host", "ssh -o BatchMode=yes gpu-host docker info"),
    ],
)
def test_the_command_that_tries_a_docker_host_is_one_of_ssh(url: str, words: str) -> None:
    assert words in start_remedy(Endpoint(url), OSError())
