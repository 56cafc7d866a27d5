"""The squashfs files of images: notes for plans, conversion before a submission, and pruning."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tao_sdk.errors import (
    BackendUnreachableError,
    PlatformError,
    SubmissionRejectedError,
    ValidationError,
)
from tao_sdk.platforms.backend import Plan
from tao_sdk.platforms.common.ttl_cache import TtlCache
from tao_sdk.platforms.remote.framing import Section
from tao_sdk.platforms.slurm import auth, image_conversion
from tao_sdk.platforms.slurm.client import SshTransport, last, reached
from tao_sdk.platforms.slurm.cluster_settings import ClusterSettings, switch
from tao_sdk.platforms.slurm.image_conversion import FailedConversion, Listener
from tao_sdk.platforms.slurm.image_names import Image, parse_image
from tao_sdk.platforms.slurm.plan import Staged
from tao_sdk.platforms.slurm.probe import Facts

_log = logging.getLogger("tao_sdk.slurm")

# Many jobs of one image are planned and submitted one after another.
_REMEMBER_SECONDS = 60.0
_DAY_SECONDS = 86_400
# A tag may have moved since; sooner, a person remembers when the image was made.
_OLD_DAYS = 7

# Words of enroot and Slurm, and what to do; refused passwords are recognised first.
_DENIED = ("401", "403", "unauthorized", "forbidden", "could not process json input")
_ADVICE = (
    (("404", "not found", "manifest unknown"), "check the name and the tag of the image"),
    (
        ("no space left", "disk quota"),
        "make room (SlurmSDK().prune_images()), or set SLURM_SQSH_CACHE_DIR and "
        "SLURM_ENROOT_TEMP_PATH to larger folders",
    ),
    (
        ("permission denied", "cannot be written", "read-only file system", "cannot create"),
        "set SLURM_SQSH_CACHE_DIR to a shared folder of yours",
    ),
    (("invalid partition", "partition"), "set SLURM_CONVERSION_PARTITION to one that you may use"),
)
_BY_STATE = {
    "TIMEOUT": "set SLURM_CONVERSION_TIMEOUT_MINUTES higher, or SLURM_CONVERSION_PARTITION to one "
    "that is less busy",
    "OUT_OF_MEMORY": "set SLURM_CONVERSION_MEMORY_GB higher",
    "CANCELLED": "it was cancelled; try again",
    "NODE_FAIL": "its node failed; try again",
}


class Pruned(NamedTuple):
    """What `prune_images` removed."""

    files: tuple[str, ...]
    freed_bytes: int


class _Decision(NamedTuple):
    """Whether a job gets its image, and a note about it."""

    note: str = ""
    refusal: str = ""


class ImageCache:
    """The squashfs files of one cluster."""

    def __init__(
        self, cluster: ClusterSettings, transport: SshTransport, listener: Listener
    ) -> None:
        self._login = cluster.login
        self._transport = transport
        self._settings = image_conversion.from_environment(cluster)
        self._used = switch("SLURM_USE_SQSH")
        self._listener = listener
        self._decided: dict[str, _Decision] = {}
        self._answers = TtlCache[Section](_REMEMBER_SECONDS)
        self._passwords = TtlCache[bool](_REMEMBER_SECONDS)

    @property
    def folder(self) -> str:
        """Where they are kept; "" when jobs take images from registries."""
        return self._settings.cache if self._used else ""

    # ------------------------------------------------------------------ planning

    def cache_query(self, image: str) -> dict[str, str] | None:
        """Variables of the program `convert_look` for a plan; None if the answer is known."""
        parsed = parse_image(image) if image else None
        if parsed is None or parsed.is_path or not self.folder:
            return None
        cached = f"{self.folder}/{parsed.cache_name}"
        return None if self._answers.has(cached) else self._query(cached)

    def store_answer(self, query: Mapping[str, str], answer: Sequence[Section]) -> None:
        """Keep the answer to a query, so that `notes` does not ask again."""
        self._answers.put(query["cached"], last(answer))

    def notes(self, staged: Staged, facts: Facts) -> tuple[str, ...]:
        """Notes of a plan about its image. Looks, never creates."""
        image, cached = staged.image, staged.cached
        if image is None or image.is_path or staged.runtime not in ("pyxis", "enroot"):
            return ()
        found = []
        if cached:
            answer = self._look(cached)
            again = self._is_wanted_again(image)
            if answer.name == "ready" and not again:
                return _age_note(image, cached, int(answer.words))
            found.append(self._conversion_note(image, staged, answer, again=again))
            if facts.partitions and self._settings.partition not in facts.partitions:
                found.append(
                    f"SLURM_CONVERSION_PARTITION={self._settings.partition}: this cluster has "
                    f"{', '.join(sorted(facts.partitions))}"
                )
        machine = auth.machine_of(image)
        if machine == auth.NGC and not self._has_password(machine):
            found.append(
                f"the cluster has no password for {machine}, which private images need: "
                + auth.how_to_install(machine, self._login)
            )
        return tuple(found)

    def _conversion_note(
        self, image: Image, staged: Staged, answer: Section, *, again: bool
    ) -> str:
        if answer.name == "converting":
            return (
                f"image {image.text} is being converted by Slurm job {answer.words}; "
                "submitting waits"
            )
        what = "is converted again" if again and answer.name == "ready" else "is converted first"
        refused = self._settings.required or staged.runtime == "enroot"
        otherwise = "the job is refused" if refused else "the job pulls it itself"
        return (
            f"image {image.text} {what}, to {staged.cached}, in partition "
            f"{self._settings.partition}: up to {self._settings.minutes:g} min; should that fail, "
            f"{otherwise}"
        )

    def _query(self, cached: str) -> dict[str, str]:
        return {"cached": cached, "folder": self._settings.cache}

    def _look(self, cached: str) -> Section:
        """Whether the file is there: ready, converting or missing."""
        return self._answers.get(
            cached, lambda: last(self._transport.run("convert_look", self._query(cached)))
        )

    def _has_password(self, machine: str) -> bool:
        return self._passwords.get(machine, lambda: auth.known_to_cluster(self._transport, machine))

    def _is_wanted_again(self, image: Image) -> bool:
        return image.is_latest and self._settings.latest_again

    # ------------------------------------------------------------------ submitting

    def ensure_images(self, plans: Sequence[Plan]) -> None:
        """Convert the images of many jobs, each once."""
        by_file: dict[str, _Decision] = {}
        for plan in plans:
            staged: Staged = plan.payload
            if staged.cached not in by_file:
                by_file[staged.cached] = self._decide(staged)
            self._decided[plan.job_id] = by_file[staged.cached]

    def usable(self, plans: Sequence[Plan]) -> list[Plan]:
        """The plans whose images are there; the others are refused when submitted singly."""
        return [plan for plan in plans if not self._decided[plan.job_id].refusal]

    def ensure_image(self, plan: Plan) -> str:
        """Convert the image of a job if needed; a note for its message, mostly empty."""
        decision = self._decided.pop(plan.job_id, None) or self._decide(plan.payload)
        if decision.refusal:
            raise SubmissionRejectedError(decision.refusal)
        return decision.note

    def _decide(self, staged: Staged) -> _Decision:
        image, cached = staged.image, staged.cached
        if image is None or not cached:
            return _Decision()
        again = self._is_wanted_again(image)
        if not again and self._answers.has(cached) and self._look(cached).name == "ready":
            return _Decision()
        try:
            failure = image_conversion.convert(
                self._transport, self._settings, self._listener, image, cached, again=again
            )
            if failure is None:
                self._answers.put(cached, Section("ready", "0", b""))
                return _Decision()
            older = again and self._look(cached).name == "ready"
        except BackendUnreachableError as error:
            return _Decision(refusal=f"nothing was submitted: {error}")
        reason = f"image {image.text} cannot be converted: {self._explain(image, failure)}"
        if staged.runtime == "enroot":
            return _Decision(
                refusal=f"{reason} (Enroot without Pyxis starts converted images only)"
            )
        if self._settings.required:
            return _Decision(refusal=f"{reason} (SLURM_REQUIRE_SQSH=false lets the job pull it)")
        instead = "the one converted earlier is used" if older else "the job pulls it itself"
        note = f"{reason}. Now {instead}"
        _log.warning("%s", note)
        return _Decision(note=note)

    def _explain(self, image: Image, failure: FailedConversion) -> str:
        reason = image_conversion.summary(failure.log)
        if failure.state == "TIMEOUT":
            reason = f"not done within {self._settings.minutes:g} min, so cancelled ({reason})"
        return f"{reason}; {self._advice(image, failure)}"

    def _advice(self, image: Image, failure: FailedConversion) -> str:
        if failure.state in _BY_STATE:
            return _BY_STATE[failure.state]
        log = failure.log.lower()
        if any(word in log for word in _DENIED):
            machine = auth.machine_of(image) or "registry-1.docker.io"
            return auth.how_to_install(machine, self._login)
        if "enroot" in log and ("no such file" in log or "command not found" in log):
            return (
                f"the nodes of partition {self._settings.partition} have no enroot: set "
                "SLURM_CONVERSION_PARTITION to one whose nodes have it"
            )
        for words, advice in _ADVICE:
            if any(word in log for word in words):
                return advice
        return f"the logs of conversions are in {self._settings.cache}/.converting"

    # ------------------------------------------------------------------ an end

    def prune(self, keep_days: float) -> Pruned:
        """Remove files that no job has used for so long and no queued job needs."""
        if not 0 <= keep_days < math.inf:
            raise ValidationError(f"keep_days: {keep_days!r} is not a number of days")
        answers = reached(
            self._transport.run(
                "convert_prune",
                {
                    "folder": self._settings.cache,
                    "temp": self._settings.temp,
                    "keep": str(round(keep_days * _DAY_SECONDS)),
                },
            )
        )
        if any(answer.name == "unsure" for answer in answers):
            raise PlatformError(
                "nothing was removed: the script of a job in the queue cannot be read, so the "
                "image that it needs is not known"
            )
        removed = [answer.words.split(" ", 1) for answer in answers if answer.name == "removed"]
        self.forget()
        return Pruned(
            tuple(f"{self._settings.cache}/{name}" for _, name in removed),
            sum(int(size) for size, _ in removed),
        )

    def forget(self) -> None:
        """Ask the cluster again about all images."""
        self._answers = TtlCache(_REMEMBER_SECONDS)
        self._passwords = TtlCache(_REMEMBER_SECONDS)


def _age_note(image: Image, cached: str, seconds: int) -> tuple[str, ...]:
    days = seconds // _DAY_SECONDS
    if days < _OLD_DAYS or "@" in image.name:
        return ()
    return (
        f"image {image.text} was converted {days} days ago; should its tag name something newer "
        f"now, remove {cached}, or give the image by digest (name@sha256:…)",
    )
