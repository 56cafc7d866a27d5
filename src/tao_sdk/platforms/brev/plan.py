"""From a request to the files of a job, and what a plan shows of them."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from tao_sdk import settings
from tao_sdk.errors import UnsupportedError, ValidationError
from tao_sdk.platforms.backend import Artefact, JobIdentity
from tao_sdk.platforms.brev.machine import PROGRAMS
from tao_sdk.platforms.brev.offers import OFFER_OPTIONS
from tao_sdk.platforms.brev.options import BrevOptions
from tao_sdk.platforms.brev.parse import Offer, cost
from tao_sdk.platforms.common.archives import Member, pack
from tao_sdk.platforms.common.credentials import job_credentials
from tao_sdk.platforms.common.mounts import RESULTS, results_mount
from tao_sdk.platforms.common.option_checks import check_image
from tao_sdk.platforms.remote.framing import assigned
from tao_sdk.platforms.request import JobRequest
from tao_sdk.platforms.staged_data import results_in_bucket, runner_settings, stop_seconds
from tao_sdk.result_record import shim_argv
from tao_sdk.secrets import PLACEHOLDER, reveal_all

_NGC = "nvcr.io"
_NGC_USER = "$oauthtoken"
_COMMAND = "/tao-job/command.sh"
_FOR_NEW_ONES = (*OFFER_OPTIONS, "keep", "max_hours", "idle_minutes")

# The environment comes on the container's input, so neither a command line nor Docker's own records
# hold it. Its last line says that it came whole.
_BOOT = (
    'tao_boot=; eval "$(cat)"; [ "$tao_boot" = whole ] || '
    '{ echo "its environment did not arrive" >&2; exit 125; }; unset tao_boot; exec "$@"'
)
# bash where the image has it, because that is what commands are written for; sh otherwise.
_SHELL = (
    'for d in "$HOME" "${TAO_RESULTS_ROOT:+$TAO_RESULTS_ROOT/$TAO_JOB_ID}"; do '
    '[ -z "$d" ] || [ -d "$d" ] || mkdir -p "$d" 2>/dev/null; done; '
    f"if [ -x /bin/bash ]; then exec /bin/bash {_COMMAND}; else exec /bin/sh {_COMMAND}; fi"
)


class Place(NamedTuple):
    """Where a job goes: an instance that is there, or one that is made of the first offer."""

    instance: str
    offers: tuple[Offer, ...] = ()
    """For a new one: the first is ordered, another only if Brev has no more of those before."""

    @property
    def ephemeral(self) -> bool:
        return bool(self.offers)


class Staged(NamedTuple):
    """The files of a job, by name in its folder on the instance."""

    job_id: str
    files: Mapping[str, str]
    secret: Mapping[str, str]
    """Files that hold secrets: never shown."""

    def __repr__(self) -> str:
        return f"Staged({self.job_id})"


def archive(jobs: Iterable[Staged]) -> bytes:
    """The folders of jobs as one archive; private, whatever the umask on the instance."""
    members = []
    for job in jobs:
        members.append(Member(job.job_id))
        for name, content in {**job.files, **job.secret}.items():
            # The command is read in the container, by the user that the image names.
            mode = 0o644 if name == "command.sh" else 0
            members.append(Member(f"{job.job_id}/{name}", content, mode))
    return pack(members)


def refuse_impossible(request: JobRequest) -> None:
    """Raise for what this platform cannot do, before Brev is asked."""
    if request.num_nodes != 1:
        raise UnsupportedError(
            f"num_nodes: {request.num_nodes} nodes asked for; Brev runs a job on one instance "
            "(SLURM, Kubernetes and Lepton run it on several)"
        )
    check_image(request.image, "Brev")
    options: BrevOptions = request.options
    if options.instance_id:
        for name in _FOR_NEW_ONES:
            if getattr(options, name):
                raise ValidationError(
                    f"{name} is for a new instance, and instance_id= names one that is there"
                )


def environment(request: JobRequest, job_id: str) -> dict[str, str]:
    """The variables that the job gets beside those of its image. Holds secrets."""
    own = {"TAO_JOB_ID": job_id, "TAO_ATTEMPT": "1"}
    if results_mount(request.options.mounts):
        own["TAO_RESULTS_ROOT"] = RESULTS
    return {
        **runner_settings(request),
        **job_credentials(request.env),
        **reveal_all(request.env),
        **own,
    }


def stage(request: JobRequest, identity: JobIdentity) -> Staged:
    """All files that a submission puts on the instance."""
    stop = math.ceil(stop_seconds(runner=request.payload is not None))
    registry = request.image.partition("/")[0]
    password = settings.lookup("NGC_KEY") if registry == _NGC else ""
    facts = {
        "job_id": identity.job_id,
        "name": identity.name,
        "image": request.image,
        "gpus": str(request.gpu_count),
        "shm": str(request.options.shm_size or ""),
        "registry": registry,
        "registry_user": _NGC_USER,
    }
    script = f"{assigned(facts)}{_container(request, identity, stop)}{PROGRAMS.read('supervise')}"
    files = {
        "token": f"{identity.token}\n",
        "stop_seconds": f"{stop}\n",
        "command.sh": f"{request.shell_command}\n",
        "supervise.sh": script,
    }
    values = environment(request, identity.job_id)
    exports = [f"export {name}={shlex.quote(value)}\n" for name, value in sorted(values.items())]
    secret = {"env.sh": f"{''.join(exports)}tao_boot=whole\n"}
    if password:
        secret["registry"] = password
    return Staged(identity.job_id, files, secret)


def _container(request: JobRequest, identity: JobIdentity, stop: int) -> str:
    """A shell function that creates the container; its arguments are more options for Docker."""
    options: BrevOptions = request.options
    words = ["docker", "create", "-i", "--name", identity.name, "--cidfile", "cid"]
    labels = {
        "tao-toolkit": "true",
        "tao-sdk-backend": "brev",
        "tao-sdk-job-id": identity.job_id,
        "tao-sdk-token": identity.token,
    }
    for name, value in labels.items():
        words += ["--label", f"{name}={value}"]
    words += [
        "--log-driver",
        "json-file",
        "--ulimit",
        "stack=67108864",
        "--stop-timeout",
        str(stop),
    ]
    made = []
    for mount in options.mounts:
        only = ",readonly" if mount.read_only else ""
        words += ["--mount", f"type=bind,source={mount.source},target={mount.target}{only}"]
        if not mount.read_only:
            source = shlex.quote(mount.source)
            made.append(f"  mkdir -p {source} 2>/dev/null || sudo -n mkdir -p {source}\n")
    if options.cwd:
        words += ["-w", options.cwd]
    if options.network:
        words += ["--network", options.network]
    own = f'--mount "type=bind,source=$PWD/command.sh,target={_COMMAND},readonly"'
    inside = ["-c", _BOOT, "tao-boot", *shim_argv(["/bin/sh", "-c", _SHELL])]
    tail = shlex.join([request.image, *inside])
    run = f'  {shlex.join(words)} {own} --entrypoint /bin/sh "$@" {tail}\n'
    return f"container() {{\n{''.join(made)}{run}}}\n"


def results_address(request: JobRequest, place: Place, job_id: str) -> str:
    """Where the results of a job will be; "" when they stay in its container."""
    mount = results_mount(request.options.mounts)
    if mount is not None:
        return f"brev://{place.instance}{mount.source.rstrip('/')}/{job_id}"
    return results_in_bucket(request, environment(request, job_id), job_id)


def artefacts(staged: Staged, request: JobRequest, place: Place) -> tuple[Artefact, ...]:
    """What a plan shows: where the job runs, what that costs, and every file without a secret."""
    where = [f"instance {place.instance}"]
    if place.offers:
        first, *others = place.offers
        where.append(f"made for this job: {first}")
        where += [f"if Brev has none left: {offer}" for offer in others]
        limit = request.options.max_price
        where.append(f"price limit: {cost(limit)}" if limit else "price limit: none (max_price=)")
        where.append("kept when the job has ended" if request.options.keep else "deleted after")
    where.append(f"gpus {_gpus(request.gpu_count)}")
    names = sorted(
        line.partition("=")[0].removeprefix("export ")
        for line in staged.secret["env.sh"].splitlines()
        if line.startswith("export ")
    )
    variables = "\n".join(f"{name}={PLACEHOLDER}" for name in names)
    return (
        Artefact("where", "\n".join(where)),
        Artefact("command.sh", staged.files["command.sh"]),
        Artefact("environment", variables),
        Artefact("supervise.sh", staged.files["supervise.sh"]),
    )


def _gpus(count: int) -> str:
    return "all of the instance" if count < 0 else str(count or "none")


def notes(request: JobRequest, place: Place, results_dir: str) -> tuple[str, ...]:
    """What to know before launching: what stays and costs money, and what is lost."""
    found = []
    options: BrevOptions = request.options
    if place.offers:
        name, price = place.instance, cost(place.offers[0].price)
        if len(place.offers) > 1:
            price = f"{price}; {cost(_highest_price(place.offers))} at most"
        if options.keep:
            found.append(f"{name} stays until you delete it ({price}): keep=True")
        elif results_dir.startswith("brev://"):
            found.append(
                f"the results are on {name}, which therefore stays ({price}) until they are pulled "
                "(tao-sdk pull); with a bucket (S3_BUCKET_NAME) it would go by itself"
            )
        else:
            instead = ", ".join(map(str, place.offers[1:]))
            found.append(
                f"{name} is made for it, and deleted after: {place.offers[0]}"
                f"{'; if Brev has none left: ' if instead else ''}{instead}"
            )
        if options.max_hours or options.idle_minutes:
            found.append(
                "lifetimes are enforced by processes that attend (a wait, tao-sdk watch): an "
                "instance cannot delete itself"
            )
    if not results_dir:
        goes = place.ephemeral and not options.keep
        fate = "is gone with the instance" if goes else "stays in its container"
        found.append(f"no writable mount at /results and no bucket: what the job writes {fate}")
    return tuple(found)


def _highest_price(offers: Iterable[Offer]) -> float | None:
    prices = [offer.price for offer in offers]
    return None if None in prices else max(price for price in prices if price is not None)
