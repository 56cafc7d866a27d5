"""What a remedy tells somebody to type works where it is read."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from launch_situations import whole

from tao_sdk.cli.launch import command as launch_command
from tao_sdk.cli.preflight import command as preflight_command
from tao_sdk.launch.gate import preflight_request
from tao_sdk.preflight import Check, PreflightRequest, run_preflight, script
from tao_sdk.preflight.data import unknown_labels
from tao_sdk.preflight.flags import LAUNCH, PREFLIGHT, Flags
from tao_sdk.preflight.gpus import gpu_checks
from tao_sdk.preflight.paths import mount_tasks, not_a_path, unsupported_tasks
from tao_sdk.skills import SkillBank
from tao_sdk.skills.layout import PACKAGED_BANK

FLAG = re.compile(r"(?<![\w-])--[a-z][\w-]*")


def _options(command: click.Command) -> set[str]:
    return {name for parameter in command.params for name in parameter.opts}


def _script_options() -> set[str]:
    return {name for action in script._parser()._actions for name in action.option_strings}


READERS = {
    "tao-sdk launch": (LAUNCH, _options(launch_command)),
    "tao-sdk preflight": (PREFLIGHT, _options(preflight_command)),
    script._NAME: (PREFLIGHT, _script_options()),
}


def _unknown_platform(flags: Flags, folder: Path) -> Iterator[Check]:
    platforms = folder / "skills" / "platform"
    platforms.mkdir(parents=True)
    record = {"name": "moon", "backend_type": "moon", "required_credentials": []}
    text = json.dumps({"schema_version": 3, "platforms": [record]})
    (platforms / "platforms.manifest.json").write_text(text)
    yield from run_preflight(PreflightRequest("moon", flags=flags), SkillBank(folder)).checks


def _findings(flags: Flags, folder: Path) -> Iterator[Check]:
    """Every finding whose remedy is about what was typed."""
    cosmos = "nvcr.io/nvidia/tao/tao-toolkit:7.0.1-cosmos-rl"
    paths = {"key": "rel/ative", "remote": "file://rel", "gs": "gs://b/x", "mount": "/mnt/x"}
    request = PreflightRequest(
        "remote-docker",
        paths=paths,
        required_fields={"other": ("fps",)},
        gpu_count=2,
        min_gpu_memory_gb=80,
        container_image=cosmos,
        gpu_arch_allowlist={"it": ("sm_90",)},
        flags=flags,
    )
    yield from gpu_checks(request, None)
    yield from unknown_labels(request)
    for label in ("key", "remote"):
        yield from not_a_path(request, label)
    for task in (*unsupported_tasks(request), *mount_tasks(request, "Moon")):
        yield from task.run()
    bank = SkillBank(PACKAGED_BANK)
    yield from run_preflight(request, bank).checks
    yield from _unknown_platform(flags, folder)


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("docker_host", ["", "nonsense"])
def test_remedies_name_flags_of_the_command_that_prints_them(
    reader: str, docker_host: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", docker_host)
    flags, there = READERS[reader]
    found = list(_findings(flags, tmp_path))
    assert {"path:key", "fields:other", "gpu.count", "docker.host", "access"} <= {
        check.name for check in found
    }
    for check in found:
        for flag in FLAG.findall(check.remedy):
            assert flag in there, f"{reader} has no {flag}: {check.name}: {check.remedy}"


def test_a_launch_reads_those_of_a_launch() -> None:
    request = preflight_request(whole("local", nodes=3))
    assert request.flags is LAUNCH
    assert request.num_nodes == 3
    assert (
        f"{LAUNCH.path} other=PATH"
        in next(
            iter(
                unknown_labels(
                    PreflightRequest("x", required_fields={"other": ("a",)}, flags=LAUNCH)
                )
            )
        ).remedy
    )
