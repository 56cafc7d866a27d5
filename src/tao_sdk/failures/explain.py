"""The explanation of a failure, in the shape that every platform returns."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from tao_sdk.failures.cause import fill
from tao_sdk.failures.evidence import Evidence, ReplicaEvidence
from tao_sdk.secrets import Secret, redact

if TYPE_CHECKING:
    from tao_sdk.failures.judge import Diagnosis

_LONGEST_QUOTE = 500


def explain(evidence: Evidence, secrets: Iterable[Secret] = ()) -> dict[str, Any]:
    """Why the job ended as it did, and what to do; `secrets` are kept out of every text."""
    # Most processes never explain a failure: those that do load the catalogue.
    from tao_sdk.failures.judge import diagnose

    known = tuple(secrets)
    found = diagnose(evidence)
    return {
        "err_class": found.cause.err_class.value,
        "cause": redact(_cause(found), known),
        "suggestion": redact(fill(found.cause.suggestion, found.values), known),
        "evidence": [redact(quote, known) for quote in _quotes(evidence, found)],
        "exit_code": found.exit_code,
        "node": found.node,
        "rank": found.rank,
        "retriable": found.cause.err_class.retriable,
        "job_failure_by_node_event": [
            _node_event(replica, found.first, known) for replica in found.replicas if replica.failed
        ],
    }


def _cause(found: Diagnosis) -> str:
    text = fill(found.cause.cause, found.values)
    of_a_rank = found.rank is not None and len(found.replicas) != 1
    return f"rank {found.rank}: {text}" if of_a_rank else text


def _quotes(evidence: Evidence, found: Diagnosis) -> list[str]:
    quotes = [evidence.reason, *found.quotes] if evidence.reason else list(found.quotes)
    return [
        quote if len(quote) <= _LONGEST_QUOTE else f"{quote[: _LONGEST_QUOTE - 1]}…"
        for quote in quotes
    ]


def _node_event(
    replica: ReplicaEvidence, first: ReplicaEvidence | None, known: Iterable[Secret]
) -> dict[str, str]:
    what = replica.reason or f"rank {replica.rank} ended with exit code {replica.exit_code}"
    collateral = "" if replica == first else " (collateral: another rank failed first)"
    return {
        "node_event_name": replica.event or replica.node or f"rank {replica.rank}",
        "message": redact(what, known) + collateral,
    }
