"""The log that the server keeps of a job, in pages of at most 5,000 lines."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from tao_sdk.errors import BackendUnreachableError
from tao_sdk.platforms.backend import JobRef
from tao_sdk.platforms.lepton import naming
from tao_sdk.platforms.lepton.client import LeptonClient
from tao_sdk.platforms.lepton.log_lines import START, Line, Place, beyond, parse_answer
from tao_sdk.platforms.lepton.submit import EVERYWHERE
from tao_sdk.result_record import RECORD_WORD, ResultRecord, told_record

PAGE_LINES = 5000
_NS = 1_000_000_000
# By how much the server's clock may differ from the one that planned the job.
_SKEW_SECONDS = 600


class Page(NamedTuple):
    """Some lines of a log, and the place at which they begin."""

    place: Place
    lines: list[Line]
    more: bool


class History:
    """Logs of one workspace."""

    def __init__(self, api: LeptonClient) -> None:
        self._api = api

    def page(self, job: JobRef, worker: str, place: Place) -> Page:
        """The lines after a place, and whether there are more than these."""
        start = place.time or _begin(job)
        while True:
            lines = self._ask(job, worker, start, _end(), "forward", PAGE_LINES)
            full = len(lines) >= PAGE_LINES
            new = beyond(lines, place)
            if place.extra and len(new) < place.extra and not full:
                return Page(place, [], more=False)  # it is behind what was read as it was written
            for line in new[: place.extra]:
                place, new = place.after(line.time), new[1:]
            if new or not full:
                return Page(place, new, full)
            # Where more lines have one time than fit into a page, the rest of them is lost.
            start = max(place.time, lines[-1].time + (place.time == lines[0].time))

    def whole(self, job: JobRef) -> Iterator[Line]:
        """All lines of all workers."""
        place, more = START, True
        while more:
            place, lines, more = self.page(job, "", place)
            for line in lines:
                place = place.after(line.time)
                yield line

    def last(self, job: JobRef, worker: str, count: int) -> list[Line]:
        """The last lines, oldest first: some more than `count`, if there are.

        Those of the earliest time are left out where there are others before them, so that lines
        of one time are always counted from the first.
        """
        begin, end = _begin(job), _end()
        found: list[Line] = []
        while True:
            wanted = min(PAGE_LINES, count - len(found) + 200)
            lines = self._ask(job, worker, begin, end, "backward", wanted)
            full = len(lines) >= wanted
            if full and lines[0].time != lines[-1].time:
                lines = [line for line in lines if line.time != lines[0].time]
            found = lines + found
            if not full or len(found) > count or not lines:
                return found
            end = lines[0].time  # the end of a range is not part of it

    def records(self, job: JobRef) -> list[ResultRecord]:
        """How each rank ended, of its last attempt, by rank."""
        lines = self._ask(job, "", _begin(job), _end(), "backward", PAGE_LINES, q=RECORD_WORD)
        found: dict[int, ResultRecord] = {}
        for line in lines:
            record = told_record(line.text, job.job_id)
            if record is not None:
                found[record.rank] = record
        return [found[rank] for rank in sorted(found)]

    def _ask(
        self,
        job: JobRef,
        worker: str,
        start: int,
        end: int,
        direction: str,
        limit: int,
        **query: str,
    ) -> list[Line]:
        asked: dict[str, str | int] = {
            "job": str(job.native["id"]),
            "start": start,
            "end": max(end, start + 1),
            "direction": direction,
            "limit": limit,
            "timestamps": "true",
            "job_query_mode": EVERYWHERE,
            **query,
        }
        if worker:
            asked["replica"] = worker
        answer = self._api.get(naming.LOGS, **asked)
        try:
            return parse_answer(answer, backward=direction == "backward")
        except ValueError as error:
            raise BackendUnreachableError(
                f"Lepton, {self._api.access}: GET {naming.LOGS}: {error}"
            ) from error


def rank_in(replica: Mapping[str, Any], server_id: str, position: int) -> int:
    """The rank of a worker: in its name, `<job>-<rank>[-<word>]`, or by its place in the list."""
    status = naming.part(replica, "status")
    told = status.get("worker_index", status.get("index"))
    if isinstance(told, int):
        return told
    rest = naming.id_of(replica).removeprefix(f"{server_id}-")
    rank = rest.partition("-")[0]
    return int(rank) if rank.isdecimal() else position


def _begin(job: JobRef) -> int:
    return max(1, (int(job.native["made_at"]) - _SKEW_SECONDS) * _NS)


def _end() -> int:
    return int((time.time() + _SKEW_SECONDS) * _NS)
