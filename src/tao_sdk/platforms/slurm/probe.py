"""What a cluster offers, from the answer of `probe.sh`. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from tao_sdk.errors import BackendUnreachableError, PlatformError, ValidationError
from tao_sdk.platforms.remote.framing import Section


class Facts(NamedTuple):
    """One cluster."""

    version: str
    name: str
    pyxis: bool
    programs: frozenset[str]
    accounting: bool
    partitions: dict[str, int | None]
    """The longest job of each partition in minutes; None is unlimited."""
    base_writable: bool
    mounts: frozenset[str] = frozenset()
    """The site's mounts that exist."""


def parse_facts(sections: Iterable[Section]) -> Facts:
    """Read the probe's answer."""
    answers = {section.name: section.text.strip() for section in sections}
    programs = frozenset(answers["programs"].split())
    if "sbatch" not in programs:
        raise PlatformError(
            "the login host has no sbatch: it is not a login host of a Slurm cluster, or Slurm is "
            "not in the PATH of a shell that ssh starts"
        )
    if not answers["cluster"]:
        raise BackendUnreachableError(
            "the controller of Slurm does not answer (scontrol show config): try again later"
        )
    return Facts(
        version=answers["version"].removeprefix("slurm ").strip(),
        name=answers["cluster"],
        pyxis=answers["pyxis"] not in ("", "0"),
        programs=programs,
        accounting=answers["accounting"] == "0",
        partitions=_partitions(answers["partitions"]),
        base_writable="writable" in answers["base"],
        mounts=frozenset(answers["mounts"].splitlines()),
    )


def _partitions(text: str) -> dict[str, int | None]:
    found: dict[str, int | None] = {}
    for line in text.splitlines():
        fields = dict(part.split("=", 1) for part in line.split() if "=" in part)
        if "PartitionName" in fields:
            found[fields["PartitionName"]] = minutes(fields.get("MaxTime", "UNLIMITED"))
    return found


def minutes(text: str) -> int | None:
    """Slurm's [days-]hours:minutes:seconds in minutes; None for no limit."""
    match = re.fullmatch(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)", text)
    if not match:
        return None
    days, hours, mins, _seconds = (int(part or 0) for part in match.groups())
    return (days * 24 + hours) * 60 + mins


def choose_runtime(asked: str, facts: Facts) -> str:
    """How tasks enter a container on this cluster: as the site asks, or the best that it has."""
    if asked == "none":
        raise ValidationError(
            "image: SLURM_CONTAINER_RUNTIME=none runs commands on the nodes as they are: leave the "
            "image out, or choose pyxis, enroot or apptainer"
        )
    available = {
        "pyxis": facts.pyxis,
        "enroot": "enroot" in facts.programs,
        "apptainer": bool({"apptainer", "singularity"} & facts.programs),
    }
    if asked:
        if not available[asked]:
            raise ValidationError(
                f"SLURM_CONTAINER_RUNTIME={asked}, but the login host knows no {asked}"
            )
        return asked
    for runtime, usable in available.items():
        if usable:
            return runtime
    raise ValidationError(
        "image: this cluster has neither Pyxis nor Enroot nor Apptainer, so no container can be "
        "entered; leave the image out (image='') to run the command on the nodes as they are"
    )
