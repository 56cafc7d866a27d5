"""`tao-sdk ls --watch`: a live table at a terminal, lines or documents elsewhere."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from tao_sdk.cli import exit_codes
from tao_sdk.cli.documents import change_fields, job_list
from tao_sdk.cli.interruptions import TerminatedError, termination_raises
from tao_sdk.cli.jobs import FoundJob, PacedLook
from tao_sdk.cli.ls import Listing
from tao_sdk.cli.progress_feed import ProgressFeeds
from tao_sdk.cli.session import Session
from tao_sdk.cli.table import COLOURS, live_table, show_table
from tao_sdk.models import JobState
from tao_sdk.platforms.observation import describe
from tao_sdk.progress import Progress
from tao_sdk.visible_text import one_line

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.text import Text

_FASTEST = 0.1
_LINES_AROUND = 3
"""Of the screen: two above the table, and its heading."""
_COMPLAINTS = 3
"""The most that are shown below the table."""


def watch_jobs(session: Session, listing: Listing, interval: float) -> int:
    """Show the jobs and what becomes of them until Ctrl-C, which is the way to end it."""
    watch = _watch_on_screen if session.out.can_draw else _watch_in_lines
    try:
        with termination_raises():  # the terminal is to be left as it was found
            watch(session, listing, max(_FASTEST, interval))
    except KeyboardInterrupt:
        return exit_codes.OK
    except TerminatedError:
        return exit_codes.CANCELED


class View(NamedTuple):
    """What was seen at one moment."""

    jobs: Sequence[FoundJob]
    progress: Mapping[str, Progress]
    complaints: Sequence[str]
    more: bool


class _Looker:
    """Looks at the jobs again and again, and reads on in the logs of those that go on."""

    def __init__(self, listing: Listing) -> None:
        self._listing = listing
        self._look_at = PacedLook()
        self._complaints: list[str] = []
        self._feeds = ProgressFeeds(self._complaints.append)
        self._open: set[str] = set()

    def look(self) -> View:
        self._complaints.clear()
        jobs, more = self._listing.look(self._complaints.append, self._look_at)
        read = [job for job in jobs if not job.terminal or job.job_id in self._open]
        progress = self._feeds.update(read) if self._listing.asks else {}
        self._open = {job.job_id for job in jobs if not job.terminal}
        return View(jobs, progress, tuple(dict.fromkeys(self._complaints)), more)


# ---------------------------------------------------------------- at a terminal


def _watch_on_screen(session: Session, listing: Listing, pause: float) -> NoReturn:
    from rich.live import Live

    from tao_sdk.cli.consoles import console

    screen, looker = console(), _Looker(listing)
    view = looker.look()
    try:
        with Live(
            console=screen,
            screen=True,
            # The table is drawn anew more often than the jobs are asked about: ages tick.
            get_renderable=lambda: _draw(view, screen, pause),
            refresh_per_second=2,
        ):
            while True:
                time.sleep(pause)
                view = looker.look()
    finally:
        # The last view stays on the terminal.
        if view.jobs:
            show_table(session.out, view.jobs)


def _draw(view: View, screen: Console, pause: float) -> RenderableType:
    from rich.console import Group
    from rich.text import Text

    complaints = [
        Text(one_line(text), "red", no_wrap=True) for text in view.complaints[:_COMPLAINTS]
    ]
    room = max(1, screen.height - _LINES_AROUND - len(complaints))
    shown = view.jobs[:room]
    table = live_table(shown, view.progress, screen.width) if shown else Text("no jobs yet", "dim")
    left_out = len(view.jobs) - len(shown)
    return Group(_heading(view, pause, left_out), Text(""), table, *complaints)


def _heading(view: View, pause: float, left_out: int) -> Text:
    from rich.text import Text

    counts = Counter(job.status for job in view.jobs)
    parts = [
        Text(f"{counts[state.value]} {state.value}", COLOURS[state.value])
        for state in JobState
        if counts[state.value]
    ]
    if left_out or view.more:
        parts.append(Text(f"{left_out} more below" if left_out else "older ones left out", "dim"))
    clock = f"{datetime.now().astimezone():%H:%M:%S}, every {pause:g} s, Ctrl-C ends"
    line = Text(" · ", "dim").join([*parts, Text(clock, "dim")])
    line.no_wrap, line.overflow = True, "ellipsis"
    return line


# ---------------------------------------------------------------- elsewhere


def _watch_in_lines(session: Session, listing: Listing, pause: float) -> NoReturn:
    looker, changes = _Looker(listing), _Changes()
    view = looker.look()
    if session.out.json:
        listed = job_list(view.jobs, view.progress)
        session.out.document("jobs", {"jobs": listed, "more": view.more})
        list(changes.since_last(view))  # printed just now
    while True:
        for job, before in changes.since_last(view):
            _report(session, job, before, view.progress.get(job.job_id))
        for text in changes.new_complaints(view):
            session.out.warn(text)
        session.out.flush()
        time.sleep(pause)
        view = looker.look()


class _Changes:
    """The news in a view, compared with those before."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[str, object]] = {}
        self._said: set[str] = set()

    def since_last(self, view: View) -> Iterator[tuple[FoundJob, str]]:
        """The jobs that changed, each with the state it was in; "" for a new one."""
        for job in reversed(view.jobs):  # in the order in which they began
            before, known = self._seen.get(job.job_id, ("", None))
            far = None if job.terminal else _milestone(view.progress.get(job.job_id))
            if (job.status, (job.message, far)) != (before, known):
                self._seen[job.job_id] = (job.status, (job.message, far))
                yield job, before

    def new_complaints(self, view: View) -> list[str]:
        new = [text for text in view.complaints if text not in self._said]
        self._said.update(new)
        return new


def _milestone(progress: Progress | None) -> object:
    """What has to change for another line: not every step is worth one."""
    if progress is None:
        return None
    tenths = None if progress.fraction is None else int(progress.fraction * 10)
    return progress.stage, progress.epoch, tenths


def _report(session: Session, job: FoundJob, before: str, progress: Progress | None) -> None:
    if session.out.json:
        session.out.document(
            "change", change_fields(job.platform, before, describe(job.row), progress)
        )
        return
    state = f"{before} -> {job.status}" if before not in ("", job.status) else job.status
    far = progress.summary() if progress is not None and not job.terminal else ""
    now = f"{datetime.now().astimezone():%Y-%m-%d %H:%M:%S}"
    session.out.line(
        "\t".join([now, job.job_id, job.platform, state, one_line(far or job.message)])
    )
