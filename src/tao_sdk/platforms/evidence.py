"""What explains an end, on its way from a platform to an explanation.

Explanations are stored, so no secret may be in them, not even one that the job printed. Platforms
name the values to hide; `redacted` hides them, here and nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from tao_sdk.errors import BackendUnreachableError
from tao_sdk.platforms.backend import JobRef
from tao_sdk.secrets import Secret, redact

if TYPE_CHECKING:
    from tao_sdk.failures import Evidence


class RawEvidence(NamedTuple):
    """Facts as the platform has them, and the values of the job that must not be shown."""

    evidence: Evidence
    hide: Sequence[Secret] = ()

    def __repr__(self) -> str:
        return "RawEvidence(…)"  # its texts may hold secrets


def redacted(raw: RawEvidence, known: Iterable[Secret] = ()) -> Evidence:
    """The evidence without the values to hide and without other secrets that are `known`."""
    from dataclasses import replace  # here, because most polls explain nothing

    found, secrets = raw.evidence, [*raw.hide, *known]
    return replace(
        found,
        reason=redact(found.reason, secrets),
        log_tail=redact(found.log_tail, secrets),
        replicas=tuple(
            replace(replica, reason=redact(replica.reason, secrets)) for replica in found.replicas
        ),
    )


def ask_each(
    jobs: Iterable[JobRef], ask: Callable[[JobRef], RawEvidence]
) -> dict[str, RawEvidence]:
    """The evidence of jobs that are asked about one by one; unreachable ones are left out."""
    found = {}
    for job in jobs:
        try:
            found[job.job_id] = ask(job)
        except BackendUnreachableError:
            continue
    return found
