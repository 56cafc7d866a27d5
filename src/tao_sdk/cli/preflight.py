"""`tao-sdk preflight`."""

from __future__ import annotations

from pathlib import Path

import click

from tao_sdk import settings
from tao_sdk.cli import exit_codes
from tao_sdk.cli.help_text import examples
from tao_sdk.cli.parameters import bank_option, usage_errors
from tao_sdk.cli.session import Session, json_option, pass_session


@click.command(
    epilog=examples(
        ("tao-sdk preflight -p slurm --path train=/lustre/train", "cluster and data"),
        ("tao-sdk preflight -p docker --image IMAGE --gpus 2", "daemon and GPUs"),
        ("tao-sdk preflight -p k8s --path train=s3://bucket/x", "rights and bucket"),
        ("tao-sdk preflight -p lepton -o resource_shape=gpu.h100", "a place there"),
        ("tao-sdk preflight -p slurm --json | jq '.ok'", "for programs"),
    )
)
@click.option("-p", "--platform", metavar="NAME", help="Name or alias; default: TAO_PLATFORM.")
@click.option(
    "--path", "paths", multiple=True, metavar="LABEL=PATH", help="Data that must be there."
)
@click.option(
    "--require",
    "fields",
    multiple=True,
    metavar="LABEL=F[,F...]",
    help="Fields that each record of that JSON file must have.",
)
@click.option(
    "--sample", type=click.IntRange(1), default=20, metavar="N", help="Records to look at."
)
@click.option("--image", default="", metavar="IMAGE", help="Container image of the job.")
@click.option(
    "--gpu-smoke-image", default="", metavar="IMAGE", help="Image of what looks for GPUs."
)
@click.option("--pull-smoke-image", is_flag=True, help="Pull it if it is missing; it stays.")
@click.option("--gpus", type=int, metavar="N", help="GPUs on each node; 0 is none, -1 all.")
@click.option("--nodes", type=int, default=1, metavar="N", help="Nodes of the job.")
@click.option("--gpu-memory", type=float, metavar="GB", help="Memory that each GPU must have.")
@click.option("--gpu-arch", multiple=True, metavar="SM", help="Architecture of the target's GPUs.")
@click.option(
    "--target-gpu-count", type=click.IntRange(0), metavar="N", help="How many the target has."
)
@click.option(
    "--target-gpu-memory-gb",
    multiple=True,
    metavar="GB",
    help="Memory of the target's GPUs: once, or once for each.",
)
@click.option(
    "--batch",
    "batches",
    multiple=True,
    metavar="LABEL=BATCH,SHARDS",
    help="Each shard of that file must have a whole batch.",
)
@click.option(
    "-o", "--option", multiple=True, metavar="KEY=VALUE", help="An option that the launch sets."
)
@click.option("--credential", multiple=True, metavar="NAME", help="Variable that the model needs.")
@click.option("--docker-host", default="", metavar="URL", help="Docker daemon to look at.")
@click.option(
    "--confirm-mounts", is_flag=True, help="You have proof that mounted paths are in the job."
)
@click.option(
    "--skip-platform-access", is_flag=True, help="Ask no platform. Not for a real launch."
)
@bank_option
@json_option
@pass_session
def command(
    session: Session,
    platform: str | None,
    paths: tuple[str, ...],
    fields: tuple[str, ...],
    sample: int,
    image: str,
    gpu_smoke_image: str,
    pull_smoke_image: bool,
    gpus: int | None,
    nodes: int,
    gpu_memory: float | None,
    gpu_arch: tuple[str, ...],
    target_gpu_count: int | None,
    target_gpu_memory_gb: tuple[str, ...],
    batches: tuple[str, ...],
    option: tuple[str, ...],
    credential: tuple[str, ...],
    docker_host: str,
    confirm_mounts: bool,
    skip_platform_access: bool,
    bank: Path | None,
) -> int:
    """Check everything that a launch needs, before anything is made.

    Every check runs; results come as they are found. Nothing remains of it. What cannot be
    proven has failed: the exit code is then 1, and below is what to do.
    """
    from tao_sdk.cli.launch_flags import read_options
    from tao_sdk.cli.preflight_view import shown_preflight
    from tao_sdk.preflight import PreflightRequest, run_preflight
    from tao_sdk.preflight.arguments import (
        read_batches,
        read_gigabytes,
        read_lists,
        read_paths,
    )
    from tao_sdk.preflight.lines import verdict
    from tao_sdk.skills import MissingNameError, SkillBank
    from tao_sdk.skills.platform_manifest import find_platform, platform_manifest

    found_bank = SkillBank(bank)
    chosen = platform or settings.get("TAO_PLATFORM")
    try:
        record = find_platform(platform_manifest(found_bank), chosen)
    except MissingNameError as error:
        source = "--platform" if platform else "TAO_PLATFORM"
        raise click.BadParameter(str(error), param_hint=source) from error
    with usage_errors():
        request = PreflightRequest(
            platform=chosen,
            paths=read_paths(paths),
            required_fields=read_lists("--require", fields),
            sample_limit=sample,
            skip_platform_access=skip_platform_access,
            container_image=image,
            smoke_image=gpu_smoke_image,
            pull_smoke_image=pull_smoke_image,
            gpu_archs=gpu_arch,
            gpu_count=gpus,
            num_nodes=nodes,
            target_gpu_count=target_gpu_count,
            target_gpu_memory_gb=read_gigabytes("--target-gpu-memory-gb", target_gpu_memory_gb),
            min_gpu_memory_gb=gpu_memory,
            effective_batch=read_batches("--batch", batches),
            docker_host=docker_host,
            model_credentials=credential,
            confirmed_mounts=confirm_mounts,
            options=read_options(session, record["name"], option) if option else {},
        )
    if session.out.json:
        report = run_preflight(request, found_bank)
        told = {"platform": request.platform, **report.as_json(), "verdict": verdict(report)}
        session.out.document("preflight", told)
    else:
        report = shown_preflight(session.out, request, found_bank, is_result=True)
    return exit_codes.OK if report.ok else exit_codes.PROBLEM
