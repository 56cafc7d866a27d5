"""What explains the end of a local job."""

from __future__ import annotations

from functools import partial

from tao_sdk.errors import BackendUnreachableError
from tao_sdk.failures import Evidence, ReplicaEvidence
from tao_sdk.job_states import JobState
from tao_sdk.platforms.common.log_files import read_chunk
from tao_sdk.platforms.common.polled_log import PolledLog
from tao_sdk.platforms.evidence import RawEvidence
from tao_sdk.platforms.local.job_files import LocalJob
from tao_sdk.platforms.local.observe import reaching, snapshot
from tao_sdk.platforms.local.status import interpret
from tao_sdk.platforms.logs import LogStream
from tao_sdk.untrusted import read_regular

_LOG_LINES = 200
_LOG_CHARACTERS = 256 * 1024


def evidence_of(job: LocalJob) -> RawEvidence:
    """The facts about one ended job."""
    seen = snapshot(job)
    if seen.unreachable:
        raise BackendUnreachableError(seen.unreachable)
    observation = interpret(seen)
    state = seen.state or {}
    with reaching(job.folder.root):
        log_tail = _log_tail(job)
    return RawEvidence(
        Evidence(
            exit_code=observation.exit_code,
            reason="" if observation.exit_code is not None else observation.message,
            log_tail=log_tail,
            replicas=tuple(
                ReplicaEvidence(
                    rank=rank["rank"], exit_code=rank["exit_code"], ended_at=rank["ended_at"]
                )
                for rank in state.get("ranks", ())
            ),
            killed_from_outside=observation.state is JobState.ERROR
            and observation.exit_code is None
            and "outcome" not in state,
        )
    )


def _log_tail(job: LocalJob) -> str:
    kept = read_regular(job.folder.evidence, _LOG_CHARACTERS)
    if kept is not None:
        return kept.decode("utf-8", "replace")
    # Its supervisor, which knew what to hide in the log, was killed.
    files = [
        PolledLog(partial(read_chunk, path), rank=rank) for rank, path in enumerate(job.log_files)
    ]
    return "\n".join(LogStream(files, tail=_LOG_LINES))[-_LOG_CHARACTERS:]
