"""`check_tao_launch_preflight.py` of a skill bank, as a function.

Lines for people on stdout, the last of which states the verdict. Exit codes: 0 passed; 1 a value
that makes no sense, or an unknown platform; 2 failed, or a wrong command line.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from tao_sdk.errors import TaoError
from tao_sdk.preflight.arguments import (
    read_batches,
    read_gigabytes,
    read_lists,
    read_paths,
    split,
)
from tao_sdk.preflight.checks import Check
from tao_sdk.preflight.engine import run_preflight
from tao_sdk.preflight.host import ensure_aws_cli
from tao_sdk.preflight.lines import check_line, remedy_lines, verdict
from tao_sdk.preflight.request import PreflightRequest
from tao_sdk.preflight.wall_time import hours_asked
from tao_sdk.skills.layout import PACKAGED_BANK, locate_bank
from tao_sdk.skills.platform_manifest import describe_platform, find_platform, platform_manifest
from tao_sdk.skills.skill_bank import SkillBank

PASSED_CODE, BAD_VALUE, FAILED_CODE = 0, 1, 2
_NAME = "check_tao_launch_preflight.py"


def check_tao_launch_preflight(argv: Sequence[str] | None = None, *, script: str = "") -> int:
    """Look at everything that a launch needs, and say what is missing."""
    parser = _parser()
    asked = parser.parse_args(argv)
    own = Path(script).resolve().parents[1] if script else PACKAGED_BANK
    try:
        bank = SkillBank(locate_bank(asked.skill_bank, fallback=own))
        request = _request(asked)
        _check_hours(bank, request.platform)
        if asked.install_missing_tools:
            print(f"aws: {ensure_aws_cli(auto_install=True).message}")
        report = run_preflight(request, bank, _tell)
    except TaoError as error:
        print(f"{parser.prog}: {' '.join(str(error).split())}", file=sys.stderr)
        return BAD_VALUE
    print(*remedy_lines(report), "", verdict(report), sep="\n")
    return PASSED_CODE if report.ok else FAILED_CODE


def _tell(check: Check) -> None:
    print(check_line(check), flush=True)


def _check_hours(bank: SkillBank, platform: str) -> None:
    """A wall time that is no number is a wrong value, not a launch that cannot be."""
    if find_platform(platform_manifest(bank), platform).get("backend_type") == "slurm":
        hours_asked(describe_platform(bank, platform)["resource_defaults"])


def _request(asked: argparse.Namespace) -> PreflightRequest:
    floors = [gb for gb in (asked.min_gpu_memory_gb, asked.gpu_min_memory_gb) if gb is not None]
    return PreflightRequest(
        platform=asked.platform,
        paths=read_paths(asked.path),
        required_fields=read_lists("--json-required-field", asked.json_required_field),
        sample_limit=max(1, asked.json_sample_limit),
        skip_platform_access=asked.skip_platform_access,
        container_image=asked.container_image,
        smoke_image=asked.gpu_smoke_image,
        pull_smoke_image=asked.pull_smoke_image,
        image_supported_sms=tuple(split(",".join(asked.image_supported_sm))),
        gpu_arch_allowlist=read_lists("--gpu-arch-allowlist", asked.gpu_arch_allowlist),
        gpu_archs=tuple(split(",".join(asked.gpu_arch))),
        gpu_count=asked.gpu_min_count,
        num_nodes=asked.num_nodes,
        min_gpu_memory_gb=max(floors) if floors else None,
        low_vram_threshold_gb=asked.low_vram_threshold_gb,
        target_gpu_count=asked.target_gpu_count,
        target_gpu_memory_gb=read_gigabytes("--target-gpu-memory-gb", asked.target_gpu_memory_gb),
        effective_batch=read_batches("--effective-batch-limit", asked.effective_batch_limit),
        docker_host=asked.docker_host,
        model_credentials=tuple(asked.model_credential),
        confirmed_mounts=asked.confirm_mounts,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=_NAME, description="Check everything that a launch needs. Nothing is created."
    )
    add = parser.add_argument
    add("--skill-bank", metavar="PATH", help="root of the bank; default: TAO_SKILL_BANK_PATH, ...")
    add("--platform", required=True, metavar="NAME", help="name or alias in the bank's manifest")
    for option, metavar, told in _REPEATED:
        add(option, action="append", default=[], metavar=metavar, help=told)
    for option, kind, default, metavar, told in _SINGLE:
        add(option, type=kind, default=default, metavar=metavar, help=told)
    for option, told in _SWITCHES:
        add(option, action="store_true", help=told)
    return parser


_REPEATED = (
    ("--path", "LABEL=PATH", "data that must be there; may be repeated"),
    ("--json-required-field", "LABEL=F[,F...]", "fields that each record of that file must have"),
    ("--image-supported-sm", "SM[,SM...]", "architectures that the image supports"),
    ("--gpu-arch-allowlist", "LABEL=SM[,SM...]", "architectures that something else supports"),
    ("--gpu-arch", "SM", "architecture of the GPUs, where they cannot be looked up"),
    ("--target-gpu-memory-gb", "GB", "memory of the target's GPUs: once, or once for each"),
    ("--effective-batch-limit", "LABEL=BATCH,SHARDS", "each shard must have a whole batch"),
    ("--model-credential", "NAME", "variable that the model needs, such as HF_TOKEN"),
)
_SINGLE = (
    ("--json-sample-limit", int, 20, "N", "how many records are looked at; default: 20"),
    ("--docker-host", str, "", "URL", "the Docker daemon; default: DOCKER_HOST"),
    ("--container-image", str, "", "IMAGE", "image of the job"),
    (
        "--gpu-smoke-image",
        str,
        "",
        "IMAGE",
        "image of the container that looks for GPUs; default: TAO_GPU_SMOKE_IMAGE, else the job's "
        "if it is there, else ubuntu:22.04",
    ),
    ("--min-gpu-memory-gb", float, None, "GB", "memory that each GPU must have"),
    ("--gpu-min-memory-gb", float, None, "GB", "the same"),
    ("--low-vram-threshold-gb", float, 50.0, "GB", "less is worth a warning; default: 50"),
    ("--gpu-min-count", int, None, "N", "GPUs that the job needs on each node"),
    ("--num-nodes", int, 1, "N", "nodes of the job; default: 1"),
    ("--target-gpu-count", int, None, "N", "GPUs of the target, where they cannot be looked up"),
)
_SWITCHES = (
    ("--pull-smoke-image", "pull the image that looks for GPUs if it is not there; it stays"),
    ("--confirm-mounts", "you have proof that mounted paths are there in the job"),
    (
        "--skip-platform-access",
        "look at nothing that is not on this machine; never for a real launch",
    ),
    ("--install-missing-tools", "install awscli with pip if it is missing; nothing here needs it"),
)
