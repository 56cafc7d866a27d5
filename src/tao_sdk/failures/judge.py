"""From everything known about an ended job to the one cause that explains it.

In this order: what the kernel or the scheduler says about it; what the platform says; what the
program says about its own failure, latest and most specific first; the signal that ended it; what
is printed as a consequence of something else; the bare exit code.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from tao_sdk.failures.catalogue import BY_ID, CATALOGUE
from tao_sdk.failures.cause import Cause, Standing
from tao_sdk.failures.evidence import Evidence, ReplicaEvidence
from tao_sdk.failures.hits import Hit, LogView
from tao_sdk.failures.launchers import hear
from tao_sdk.failures.log_lines import Level, Line, read_lines

# Lines that stand alone belong to a traceback this near: a kernel's assertion, a worker's death.
_SAME_MOMENT = 40
_LINES_QUOTED = 5
_FATAL_SIGNALS = frozenset({132, 135, 136, 137, 139})
_KILLED = 137
_LAST_WORDS = 30
# An exception that was printed without its traceback.
_BARE_EXCEPTION = re.compile(r"[A-Za-z_][\w.]{0,100}(?:Error|Exception): ")
_WENT_WELL = re.compile(r"(?i)^(?:completed?|succeeded|success|done|exited|finished)?\W*$")
_BY_EXIT_CODE: dict[int, Cause] = {code: cause for cause in CATALOGUE for code in cause.exit_codes}


@dataclass(frozen=True)
class Diagnosis:
    """The cause, and what it was concluded from."""

    cause: Cause
    values: Mapping[str, str | None] = field(default_factory=dict)
    quotes: tuple[str, ...] = ()
    rank: int | None = None
    node: str = ""
    exit_code: int | None = None
    replicas: tuple[ReplicaEvidence, ...] = ()
    first: ReplicaEvidence | None = None
    """The replica that failed first: the others are collateral."""


def diagnose(evidence: Evidence) -> Diagnosis:
    """The one cause that explains the end of the job best."""
    replicas = _replicas(evidence)
    firsts = _first_failing(replicas)
    verdict = _Bench(evidence, replicas, firsts).verdict()
    if not firsts:
        return replace(verdict, replicas=replicas)
    first = next((one for one in firsts if one.rank == verdict.rank), firsts[0])
    single_process = len(replicas) == 1 and verdict.rank is not None
    rank = verdict.rank if single_process else first.rank
    return replace(verdict, rank=rank, node=first.node, first=first, replicas=replicas)


class _Bench:
    """Everything that is weighed for one job."""

    def __init__(
        self,
        evidence: Evidence,
        replicas: Sequence[ReplicaEvidence],
        firsts: Sequence[ReplicaEvidence],
    ) -> None:
        self.evidence = evidence
        self.several = len(replicas) > 1
        self.firsts = firsts
        self.log = LogView(read_lines(evidence.log_tail))
        self.lines = self.log.lines
        self.testimony = hear(self.log.living_lines())
        self.exit_code = _exit_code(evidence, firsts)
        self.reason = "\n".join(
            dict.fromkeys(text for text in [*(r.reason for r in firsts), evidence.reason] if text)
        )

    def verdict(self) -> Diagnosis:
        if self.exit_code == 0 and _WENT_WELL.match(self.reason):
            return Diagnosis(BY_ID["no-failure"], exit_code=0)
        stated = self._stated()
        if stated is not None and stated.cause.standing is Standing.DECISIVE:
            return stated
        hit = None if self.evidence.never_started else self._best_hit()
        if hit is not None and hit.standing is Standing.DECISIVE:
            return self._from_hit(hit)
        if stated is not None and stated.cause.standing is Standing.PRIMARY:
            return stated
        if self.evidence.never_started:
            return stated or self._plain("never-started", "the job was never submitted")
        if self.evidence.killed_from_outside:
            gone = "the processes disappeared without an exit code"
            return self._plain("killed-from-outside", gone)
        if hit is not None and hit.standing is Standing.PRIMARY:
            return self._from_hit(hit)
        ending = self._ending()
        if hit is not None and ending.exit_code_of_child not in _FATAL_SIGNALS:
            return self._from_hit(hit)
        return ending.diagnosis

    # -- what the platform says

    def _stated(self) -> Diagnosis | None:
        found: list[tuple[Cause, re.Match[str]]] = []
        for cause in CATALOGUE:
            for pattern in cause.reason_patterns:
                match = pattern.search(self.reason)
                if match:
                    found.append((cause, match))
        if not found:
            return None
        cause, match = max(found, key=lambda one: (one[0].standing, one[0].specificity))
        values = {**match.groupdict(), "reason": self.reason}
        return Diagnosis(cause, values, self._last_lines(), exit_code=self.exit_code)

    # -- what the log says

    def _best_hit(self) -> Hit | None:
        hits = self.log.hits(self._code_of_child())
        if self._code_of_child() in _FATAL_SIGNALS and len(self.firsts) == 1:
            # It is known who died first, and of what; what the others print came of that.
            known = {None, self.firsts[0].rank}
            hits = [hit for hit in hits if hit.replica in known]
        by_rank: dict[int | None, list[Hit]] = {}
        for hit in hits:
            by_rank.setdefault(hit.rank, []).append(hit)
        # Lines without a rank may be about any of them.
        of_any = by_rank.pop(None, [])
        winners = [_best_of_rank([*mine, *of_any]) for mine in by_rank.values()]
        if of_any:
            winners.append(_best_of_rank(of_any))
        told = [] if self.testimony.rank is None else [self.testimony.rank]
        first_ranks = [replica.rank for replica in self.firsts] or told
        return max(
            winners,
            key=lambda hit: (
                hit.standing,
                (hit.rank if hit.replica is None else hit.replica) in first_ranks,
                hit.rank is not None,
                -hit.line,
            ),
            default=None,
        )

    def _from_hit(self, hit: Hit) -> Diagnosis:
        wanted = range(hit.line, min(hit.last_line, hit.line + _LINES_QUOTED - 1) + 1)
        lines = [self.lines[index] for index in wanted]
        # A message of several lines mixed with those of other ranks: quote only its own.
        quotes = [line.shown for line in lines if line.rank == lines[0].rank]
        if hit.traceback is not None and hit.traceback.exception_at not in wanted:
            quotes.append(self.lines[hit.traceback.exception_at].shown)
        rank = hit.rank if hit.rank is not None else self.testimony.rank
        return Diagnosis(
            hit.cause,
            hit.values,
            tuple(quotes[:_LINES_QUOTED]),
            rank=hit.replica if self.several else rank,
            node=self.testimony.host if rank == self.testimony.rank else "",
            exit_code=self.exit_code,
        )

    # -- how it ended

    def _code_of_child(self) -> int | None:
        """The exit code of the process itself, where only its launcher's is known."""
        code, told = self.exit_code, self.testimony.code
        return told if told is not None and told != 0 and code not in _FATAL_SIGNALS else code

    def _ending(self) -> _Ending:
        code = self._code_of_child()
        if self.exit_code is None and code is None:
            return _Ending(self._plain("vanished", "vanished, outcome not known"), None)
        if self.exit_code == 0:
            return _Ending(self._plain("reported-failure", ""), None)
        cause = _BY_EXIT_CODE.get(code or 1)
        if code == _KILLED and self.evidence.memory_sufficed:
            cause = BY_ID["killed-not-for-memory"]
        if cause is None:
            cause = BY_ID["killed-by-signal" if 128 < (code or 1) < 160 else "exit-code"]
        values = {
            "code": str(code),
            "signal": _signal_name((code or 1) - 128),
            "message": self._last_words(),
        }
        diagnosis = Diagnosis(
            cause,
            values,
            self._last_lines(),
            rank=self.testimony.rank,
            node=self.testimony.host,
            exit_code=self.exit_code,
        )
        return _Ending(diagnosis, code)

    def _plain(self, cause: str, otherwise: str) -> Diagnosis:
        values = {"reason": self.reason or otherwise}
        return Diagnosis(BY_ID[cause], values, self._last_lines(), exit_code=self.exit_code)

    def _last_lines(self) -> tuple[str, ...]:
        return tuple(line.shown for line in self._own_lines()[-_LINES_QUOTED:])

    def _last_words(self) -> str:
        """The last line that calls itself an error."""
        loud = (one.text for one in reversed(self._own_lines()[-_LAST_WORDS:]) if _is_loud(one))
        return next(loud, "").strip()

    def _own_lines(self) -> Sequence[Line]:
        """The lines of the replica that failed first, if they can be told apart."""
        ranks = {replica.rank for replica in self.firsts[:1]}
        return [line for line in self.lines if line.replica in ranks] or self.lines


@dataclass(frozen=True)
class _Ending:
    diagnosis: Diagnosis
    exit_code_of_child: int | None


def _best_of_rank(hits: Sequence[Hit]) -> Hit:
    """The most specific find of the latest fatal moment."""
    standing = max(hit.standing for hit in hits)
    hits = [hit for hit in hits if hit.standing is standing]
    raised = [hit.traceback for hit in hits if hit.traceback is not None]
    last = max(raised, key=lambda one: one.exception_at, default=None)
    if last is not None:
        began = min(one.quoted[0] for one in raised if one.chain == last.chain) - _SAME_MOMENT
        moment = [
            hit
            for hit in hits
            if (hit.traceback.chain == last.chain if hit.traceback else hit.line >= began)
        ]
    else:
        latest = max(hit.line for hit in hits)
        moment = [hit for hit in hits if hit.line >= latest - _SAME_MOMENT]
    cause = max(moment, key=lambda hit: (hit.cause.specificity, hit.line)).cause
    # Of several lines about one cause, the one that names the most.
    same = [hit for hit in moment if hit.cause is cause]
    return max(same, key=lambda hit: (sum(map(bool, hit.values.values())), -hit.line))


def _is_loud(line: Line) -> bool:
    return line.level is Level.LOUD or bool(_BARE_EXCEPTION.match(line.text))


def _replicas(evidence: Evidence) -> tuple[ReplicaEvidence, ...]:
    """The replicas the platform knows; failing that, those that left a record."""
    if any(replica.failed for replica in evidence.replicas):
        return evidence.replicas
    return evidence.replicas or tuple(
        ReplicaEvidence(record.rank, record.host, record.exit_code, record.ended_at)
        for record in evidence.records
    )


def _first_failing(replicas: Sequence[ReplicaEvidence]) -> list[ReplicaEvidence]:
    """Those that ended badly first: several, where the clock does not tell them apart."""
    bad = [replica for replica in replicas if replica.failed]
    if not bad:
        return []
    when = min(replica.ended_at or "9" for replica in bad)
    first = [replica for replica in bad if (replica.ended_at or "9") == when]
    # Ranks that were asked to stop are never the first, whatever the clock says.
    own = [replica for replica in first if replica.exit_code not in (143, 130)]
    return sorted(own or first, key=lambda replica: replica.rank)


def _exit_code(evidence: Evidence, firsts: Sequence[ReplicaEvidence]) -> int | None:
    codes = [replica.exit_code for replica in firsts if replica.exit_code is not None]
    code = codes[0] if codes else evidence.exit_code
    if evidence.signal and code in (None, 0):
        return 128 + evidence.signal
    return code


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return str(number)
