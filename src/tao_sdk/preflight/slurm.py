"""Before a launch on SLURM: a login host that lets us in, its partitions, and the data there.

Everything that is asked of the cluster goes in one round trip.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from importlib import resources
from typing import Any

from tao_sdk import settings
from tao_sdk.errors import BackendUnreachableError, PlatformError, TaoError, ValidationError
from tao_sdk.platforms.remote.framing import Section
from tao_sdk.platforms.slurm.auth import NGC, how_to_install, machine_of
from tao_sdk.platforms.slurm.client import SshTransport
from tao_sdk.platforms.slurm.cluster_settings import ClusterSettings, from_environment
from tao_sdk.platforms.slurm.image_names import parse_image
from tao_sdk.platforms.slurm.probe import Facts, parse_facts
from tao_sdk.platforms.ssh_control import control_folder
from tao_sdk.preflight.checks import Check, Task, failed, passed, skipped, warning
from tao_sdk.preflight.credentials import credential_checks
from tao_sdk.preflight.data import (
    DENIED,
    FILE,
    FOLDER,
    MISSING,
    Look,
    data_checks,
    is_annotation,
    unlooked,
    wanted_fields,
)
from tao_sdk.preflight.gpus import gpu_checks
from tao_sdk.preflight.nodes import partition_nodes
from tao_sdk.preflight.paths import file_path, mounted, not_a_path, unsupported_tasks
from tao_sdk.preflight.request import PreflightRequest
from tao_sdk.preflight.ssh_remedy import ssh_remedy
from tao_sdk.preflight.wall_time import (
    hours_asked,
    partition_check,
    partitions_asked,
    wall_time_checks,
)

_GPUS = re.compile(r"\bgpu:(?:([A-Za-z][\w.-]*):)?(\d+)")
_STATES = {"file": FILE, "folder": FOLDER, "missing": MISSING, "denied": DENIED}
Answers = Mapping[str, list[Section]]


def slurm_tasks(request: PreflightRequest, described: Mapping[str, Any]) -> list[Task]:
    """All that is looked at."""
    defaults = described["resource_defaults"]
    return [
        Task("credentials", partial(credential_checks, described)),
        Task("image", partial(_image_checks, request.container_image)),
        Task("wall_time", partial(wall_time_checks, defaults, request.options)),
        Task("ssh", partial(_cluster_checks, request, described)),
        Task("gpu", partial(_gpu_checks, request)),
        *unsupported_tasks(request),
    ]


def _gpu_checks(request: PreflightRequest) -> Iterator[Check]:
    """What was told of the GPUs; how many there are, the cluster says."""
    told = request.target_gpu_count is not None
    checks = gpu_checks(request, None)
    yield from (check for check in checks if told or check.name != "gpu.count")


def _image_checks(image: str) -> Iterator[Check]:
    if not image:
        return
    try:
        yield passed("image", f"{parse_image(image).text} is the name of an image")
    except ValidationError as error:
        yield failed("image", str(error), "Give NAME:TAG, REGISTRY/NAME:TAG, or a .sqsh file.")


def _cluster_checks(request: PreflightRequest, described: Mapping[str, Any]) -> Iterator[Check]:
    usable: dict[str, str] = {}
    for label in mounted(request):
        path = file_path(request.paths[label])
        if path:
            usable[label] = path
        else:
            yield from not_a_path(request, label)
    problem = _before_login(request, described)
    if isinstance(problem, Check):
        yield problem
        for label in usable:
            yield from unlooked(request, label, "no login host was asked")
        return
    yield from _ask(request, described["resource_defaults"], problem, usable)


def _before_login(
    request: PreflightRequest, described: Mapping[str, Any]
) -> Check | ClusterSettings:
    """The cluster to be asked, or why it cannot be."""
    key = settings.lookup("SSH_KEY_PATH")
    if key and not settings.expanded(key).is_file():
        return failed(
            "ssh.key",
            f"SSH_KEY_PATH={key}: there is no such file on this machine",
            ssh_remedy(settings.lookup("SLURM_USER"), settings.lookup("SLURM_HOSTNAME")),
        )
    if any(check.status == "failed" for check in credential_checks(described)):
        return skipped("ssh", "not tried: credentials are missing")
    if request.skip_platform_access:
        return skipped("ssh", "not tried: platform access is skipped")
    try:
        return from_environment()
    except TaoError as error:
        return failed("settings", str(error), "Correct the variable.")


def _ask(
    request: PreflightRequest,
    defaults: Mapping[str, Any],
    cluster: ClusterSettings,
    paths: Mapping[str, str],
) -> Iterator[Check]:
    programs, payload = _questions(request, cluster, paths)
    troubles: dict[str, str] = {}
    for host in SshTransport(cluster.login).in_order(control_folder()):
        transport = SshTransport(cluster.login._replace(hosts=(host,)))
        try:
            answers = transport.run_together(programs, payload)
        except BackendUnreachableError as error:
            troubles[host] = str(error).removeprefix(f"{host}: ")
            continue
        yield _login_check(cluster, host, troubles, len(transport.calls))
        yield from _answered(request, defaults, cluster, paths, answers)
        return
    told = "; ".join(f"{host}: {why}" for host, why in troubles.items())
    yield failed(
        "ssh",
        f"no login host lets {cluster.login.user} in: {told}",
        ssh_remedy(cluster.login.user, ",".join(cluster.login.hosts)),
        hosts=troubles,
    )
    for label in paths:
        yield from unlooked(request, label, "no login host answered")


def _login_check(
    cluster: ClusterSettings, host: str, troubles: Mapping[str, str], trips: int
) -> Check:
    told = f"{cluster.login.user}@{host} answers"
    details = {"host": host, "round_trips": trips, "hosts": dict(troubles)}
    if troubles:
        others = "; ".join(f"{name}: {why}" for name, why in troubles.items())
        return warning("ssh", f"{told}; not so {others}", "Jobs go through the other.", **details)
    return passed("ssh", told, **details)


def _questions(
    request: PreflightRequest, cluster: ClusterSettings, paths: Mapping[str, str]
) -> tuple[dict[str, dict[str, str]], bytes]:
    """The programs of the one round trip, and what the last of them reads."""
    targets = "\n".join(mount.source for mount in cluster.mounts)
    programs = {"probe": {"base": cluster.base, "mounts": targets}, "gres": {}}
    machine = _private_registry(request.container_image)
    if machine:
        programs["credentials"] = {"machine": machine}
    checker = resources.files("tao_sdk.preflight").joinpath("json_records.py").read_text("utf-8")
    programs["data"] = {"checker": checker, "sample": str(max(1, request.sample_limit))}
    lines = []
    for label, path in paths.items():
        fields = wanted_fields(request, label)
        if fields is None:
            lines.append("count" if is_annotation(label, path) else "no")
        else:
            lines.append(f"fields {','.join(fields)}".strip())
        lines.append(path)
    return programs, "".join(f"{line}\n" for line in lines).encode()


def _private_registry(image: str) -> str:
    try:
        machine = machine_of(parse_image(image)) if image else ""
    except ValidationError:
        return ""  # told by a check of its own
    return machine if machine == NGC else ""


def _answered(
    request: PreflightRequest,
    defaults: Mapping[str, Any],
    cluster: ClusterSettings,
    paths: Mapping[str, str],
    answers: Answers,
) -> Iterator[Check]:
    try:
        facts = parse_facts(answers["probe"])
    except PlatformError as error:
        yield failed("slurm", str(error), "Ask your site, or choose another login host.")
    else:
        version = facts.version.removeprefix("slurm-wlm ")  # as Debian calls it
        yield passed("slurm", f"Slurm {version}, cluster {facts.name}")
        yield from _site_checks(request, cluster, facts, answers, defaults)
        if request.wants_gpus and request.target_gpu_count is None:
            yield gres_check(
                answers["gres"][0].text, partitions_asked(request.options), request.gpu_count
            )
    yield from _registry_check(cluster, answers)
    for (label, path), section in zip(paths.items(), answers["data"], strict=True):
        look = read_look(section)
        host = f"the login host as {cluster.login.user}"
        yield from data_checks(request, label, look, host)
        if look.state in (FILE, FOLDER) and not _is_mounted(path, cluster):
            yield warning(
                f"mount:{label}",
                f"{path} is not below SLURM_CONTAINER_MOUNTS: a container does not see it",
                f"Add it: SLURM_CONTAINER_MOUNTS={settings.get('SLURM_CONTAINER_MOUNTS')},"
                f"{posixpath.dirname(path) if look.state == FILE else path}",
            )


def read_look(section: Section) -> Look:
    """What the program says about one path."""
    state = _STATES[section.name]
    if section.words == "no-python":
        return Look(
            state, {"error": "the login host has no python3 to look into it with; ask your site"}
        )
    text = section.text.strip()
    if state != FILE or not text:
        return Look(state)
    try:
        return Look(state, json.loads(text))
    except ValueError:
        return Look(state, {"error": f"python3 on the login host failed: {text[-200:]}"})


def gres_check(told: str, asked: Iterable[str], needed: int | None = None) -> Check:
    """How many GPUs the nodes of the partitions have, as far as Slurm manages them."""
    wanted = set(asked)
    found: dict[str, str] = {}
    most = 0
    for line in told.splitlines():
        partition, _, gres = line.partition("|")
        if partition in wanted:
            kinds = _GPUS.findall(gres)
            most = max(most, sum(int(count) for _, count in kinds))
            for kind, count in kinds:
                found[partition] = f"{partition} {count} GPUs{f' ({kind})' if kind else ''} a node"
    if found and (needed or 0) > most:
        return failed(
            "gpu.count",
            f"GPUs needed on a node: {needed}; no node has as many: {', '.join(found.values())}",
            "Ask for fewer GPUs on more nodes, or choose another partition.",
        )
    if found:
        return passed("gpu.count", ", ".join(found.values()))
    return warning(
        "gpu.count",
        "Slurm manages no GPUs in these partitions: a job that asks for some may be refused",
        "`sinfo -o '%P %G'` on a login host lists partitions with their GPUs.",
    )


def _site_checks(
    request: PreflightRequest,
    cluster: ClusterSettings,
    facts: Facts,
    answers: Answers,
    defaults: Mapping[str, Any],
) -> Iterator[Check]:
    told = next(part.text for part in answers["probe"] if part.name == "partitions")
    try:
        hours = hours_asked(defaults, request.options).wall
        yield partition_check(told, facts.partitions, hours, request.options)
    except TaoError:
        yield skipped("partition", "not compared: the wall time is not usable")
    yield from partition_nodes(told, partitions_asked(request.options), request.num_nodes)
    if facts.base_writable:
        yield passed("results", f"{cluster.base} can be written")
    else:
        yield failed(
            "results",
            f"{cluster.base} cannot be made or written by {cluster.login.user}",
            "Set SLURM_BASE_RESULTS_DIR to a shared folder of yours.",
        )


def _registry_check(cluster: ClusterSettings, answers: Answers) -> Iterator[Check]:
    if "credentials" not in answers:
        return
    if any(section.name == "present" for section in answers["credentials"]):
        yield passed("registry", f"the cluster has a password for {NGC}")
    else:
        yield warning(
            "registry",
            f"the cluster has no password for {NGC}: a private image could not be pulled",
            f"If the image is private, {how_to_install(NGC, cluster.login)}",
        )


def _is_mounted(path: str, cluster: ClusterSettings) -> bool:
    return any(
        path == mount.source or path.startswith(f"{mount.source.rstrip('/')}/")
        for mount in cluster.mounts
    )
