"""Images as squashfs files: converted once, by a job of Slurm that clients poll.

A client that is killed or loses its connection does not end the conversion; the next one finds it
and waits for it.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from tao_sdk import settings
from tao_sdk.errors import BackendUnreachableError
from tao_sdk.platforms.remote.framing import Section, assigned
from tao_sdk.platforms.slurm.client import PROGRAMS, SshTransport, last, reached
from tao_sdk.platforms.slurm.cluster_settings import (
    ClusterSettings,
    check_base,
    positive_number,
    switch,
)
from tao_sdk.platforms.slurm.image_names import Image
from tao_sdk.platforms.slurm.options import check_words

_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.5, 10.0
# The cluster enforces the limit; a client that cannot reach it waits this much longer.
_PATIENCE_SECONDS = 120.0
_UNITS = (("GB", 1e9), ("MB", 1e6), ("kB", 1e3))


@dataclass(frozen=True)
class ConversionProgress:
    """How far a conversion is."""

    image: str
    stage: str
    """starting, queued, running, unreachable (for a moment), done or failed."""
    seconds: float = 0.0
    """Since its start, by any client."""
    written_bytes: int = 0
    words: str = ""
    """Why it waits, or the last line of enroot."""
    slurm_job_id: str = ""

    def __str__(self) -> str:
        parts = [self.stage if self.stage != "running" else f"running {self.seconds:.0f} s"]
        if self.written_bytes:
            parts.append(f"{human_size(self.written_bytes)} written")
        if self.words:
            parts.append(self.words)
        return f"converting {self.image}: {', '.join(parts)}"


Listener = Callable[[ConversionProgress], None]


class ConversionSettings(NamedTuple):
    """How this site converts images."""

    cache: str
    temp: str
    partition: str
    account: str
    minutes: float
    memory_gb: int
    required: bool
    latest_again: bool
    """Convert `:latest` images at every submission."""


def from_environment(cluster: ClusterSettings) -> ConversionSettings:
    """As the SLURM_* settings have it."""
    cache = settings.lookup("SLURM_SQSH_CACHE_DIR") or f"{cluster.base}/sqsh"
    cache = check_base(cache, "SLURM_SQSH_CACHE_DIR")
    temp = settings.lookup("SLURM_ENROOT_TEMP_PATH") or f"{cache}/.enroot-tmp"
    return ConversionSettings(
        cache=cache,
        temp=check_base(temp, "SLURM_ENROOT_TEMP_PATH"),
        partition=check_words(
            "SLURM_CONVERSION_PARTITION", settings.get("SLURM_CONVERSION_PARTITION")
        ),
        account=cluster.account,
        minutes=positive_number("SLURM_CONVERSION_TIMEOUT_MINUTES"),
        memory_gb=math.ceil(positive_number("SLURM_CONVERSION_MEMORY_GB")),
        required=switch("SLURM_REQUIRE_SQSH"),
        latest_again=switch("SLURM_FORCE_RECONVERT_LATEST"),
    )


class FailedConversion(NamedTuple):
    """Why there is no squashfs file."""

    state: str
    """Slurm's word for the end of the job; TIMEOUT, REFUSED, UNWRITABLE or LOST."""
    log: str


def convert(
    transport: SshTransport,
    site: ConversionSettings,
    listener: Listener,
    image: Image,
    cached: str,
    *,
    again: bool,
) -> FailedConversion | None:
    """Return once `cached` is there; with `again`, once a newer one than now is there."""

    def report(stage: str, **details: Any) -> None:
        listener(ConversionProgress(image.text, stage, **details))

    variables = {
        "cached": cached,
        "folder": site.cache,
        "name": job_name(cached),
        "limit": str(math.ceil(site.minutes * 60)),
        "waiting": "",
        "again": "yes" if again else "no",
        "outdated": "",
    }
    script = job_script(image, cached, site).encode()
    deadline = time.monotonic() + site.minutes * 60 + _PATIENCE_SECONDS
    pause = _SHORTEST_PAUSE
    answer: Section | None = None
    while True:
        try:
            answer = _start_or_look(transport, variables, script)
        except BackendUnreachableError as error:
            if answer is None:
                raise  # nothing has been begun
            report("unreachable", words=str(error))
            if time.monotonic() > deadline:
                return FailedConversion("LOST", str(error))
        else:
            if answer.name == "ready":
                if pause > _SHORTEST_PAUSE:
                    report("done", written_bytes=int(answer.words))
                return None
            if failure := failure_in(answer):
                report("failed", words=summary(failure.log))
                return failure
            record, job, state, age, written = answer.words.split()
            variables["waiting"] = record.removeprefix("-")
            words = answer.text.strip()
            report(
                {"PENDING": "queued", "STARTING": "starting"}.get(state, "running"),
                seconds=float(age),
                written_bytes=int(written),
                words="" if words == "None" else words,
                slurm_job_id=job.removeprefix("-"),
            )
            if time.monotonic() > deadline:
                return FailedConversion("TIMEOUT", answer.text)
        time.sleep(pause)
        pause = min(pause * 1.3, _LONGEST_PAUSE)


def _start_or_look(transport: SshTransport, variables: dict[str, str], script: bytes) -> Section:
    """Start the conversion if there is none; how far it is."""
    sections = reached(transport.run("convert", variables, script))
    for section in sections:
        if section.name == "outdated":
            variables |= {"again": "no", "outdated": section.words.strip()}
    return last(sections)


def job_name(cached: str) -> str:
    """Slurm's name for the conversion into this file."""
    return f"tao-sqsh-{hashlib.sha256(cached.encode()).hexdigest()[:12]}"


def job_script(image: Image, cached: str, site: ConversionSettings) -> str:
    """What sbatch is given to convert an image."""
    folder, _, file = cached.rpartition("/")
    options = [
        f"--job-name={job_name(cached)}",
        "--nodes=1",
        "--ntasks=1",
        f"--partition={site.partition}",
        f"--mem={site.memory_gb}G",
        f"--time={max(1, math.ceil(site.minutes))}",
        f"--output={folder}/.converting/{file}.%j.log",
        f"--chdir={folder}",
        "--no-requeue",
    ]
    if site.account:
        options.append(f"--account={site.account}")
    values = {
        "cached": cached,
        "uri": image.uri,
        "partition": site.partition,
        "temp": site.temp,
    }
    head = "".join(f"#SBATCH {option}\n" for option in options)
    return f"#!/bin/bash\n{head}\n{assigned(values)}{PROGRAMS.read('convert_job')}"


def failure_in(answer: Section) -> FailedConversion | None:
    """The failure that an answer reports, if any."""
    if answer.name == "failed":
        return FailedConversion(answer.words.split()[1], answer.text)
    if answer.name in ("timeout", "refused", "unwritable"):
        return FailedConversion(answer.name.upper(), answer.text)
    return None


def summary(log: str) -> str:
    """The line of a log with the error: enroot's own, or the last."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    errors = [line for line in lines if "error" in line.lower() and "srun: " not in line]
    return (errors or lines or ["nothing was said"])[-1].removeprefix("[ERROR] ")


def human_size(count: int) -> str:
    for unit, size in _UNITS:
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} bytes"
