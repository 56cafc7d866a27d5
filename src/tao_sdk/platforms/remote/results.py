"""Results on a machine that is reached through a shell.

Small files come many at a time, as an archive; a large one by itself, and from where an earlier
pull left off. What came counts only if its file is still the one that was listed.
"""

from __future__ import annotations

import tarfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import IO, Protocol, cast

from tao_sdk.errors import PlatformError, ValidationError
from tao_sdk.platforms.remote.framing import Section
from tao_sdk.platforms.remote.result_listing import (
    RECORD,
    names_of,
    parse_entries,
    path_of,
    still_there,
)
from tao_sdk.platforms.remote.streams import AnswerStream
from tao_sdk.results.batches import batches
from tao_sdk.results.comparing import digest_of, same_version
from tao_sdk.results.links import follow, link_entry
from tao_sdk.results.outcomes import Outcome, State, changed, failed, gone
from tao_sdk.results.parts import Parts
from tao_sdk.results.sources import Advance, Copies, Entry, Fetched, Kind

_ATTEMPTS = 3
_BLOCK = 1024 * 1024
_BATCH_FILES = 1000
# A file above comes by itself, if need be in several pulls.
_LARGE = 32 * _BLOCK
_LISTING_SECONDS = 900.0
# How slowly that machine may read while it is waited for.
_DIGESTED_PER_SECOND = 20 * _BLOCK
_DIGESTED_AT_ONCE = 100_000 * _BLOCK


class ProgramRunner(Protocol):
    """What runs programs on that machine."""

    def run(
        self,
        program: str,
        variables: Mapping[str, str] | None = None,
        payload: bytes = b"",
        *,
        seconds: float = ...,
    ) -> list[Section]:
        """A program's answer."""
        ...

    def stream(
        self, program: str, variables: Mapping[str, str] | None = None, payload: bytes = b""
    ) -> AbstractContextManager[AnswerStream]:
        """A program's answer, as it comes."""
        ...


class RemoteResults:
    """The results of a job in a folder of that machine."""

    def __init__(
        self, transport: ProgramRunner, address: str, folder: str, reader: str, machine: str
    ) -> None:
        """`reader` is the user there, `machine` where it is: both for messages."""
        self.address = address
        self._transport = transport
        self._folder = folder
        self._reader = reader
        self._machine = machine

    def all_fetched(self) -> None:
        """Nothing to do: the results stay where they are."""

    def holds(self, folder: Path) -> bool:
        # This machine may see the same folders.
        return folder.resolve().is_relative_to(Path(self._folder).resolve())

    # ------------------------------------------------------------------ looking

    def entries(self) -> Iterator[Entry]:
        variables = {"folder": self._folder, "record": RECORD}
        answer = self._transport.run("results", variables, seconds=_LISTING_SECONDS)
        sections = {section.name: section for section in answer}
        self._refuse_no_folder(sections)
        found = parse_entries(sections["entries"].data)
        links = {entry.path: entry.target for entry in found if entry.kind is Kind.LINK}
        roots = (sections["root"].words, self._folder)
        for entry in sorted(found, key=lambda entry: entry.path.split("/")):
            if entry.kind is Kind.LINK:
                yield link_entry(entry.path, entry.target, follow(entry.path, links, roots))
            else:
                yield entry
        if complaint := sections["complaints"].text.strip():
            yield Entry(".", Kind.UNREADABLE, problem=complaint)

    def _refuse_no_folder(self, sections: Collection[str]) -> None:
        if "missing" in sections:
            raise ValidationError(
                f"the results folder is not there: {self.address} (has the job not begun yet, or "
                "was the folder removed?)"
            )
        if "denied" in sections:
            raise PlatformError(
                f"{self.address}: Permission denied for {self._reader} {self._machine}: ask its "
                "owner for the right to read it"
            )

    def _look(self, paths: Collection[str]) -> dict[str, Entry]:
        """These files as they are now; without those that are gone."""
        above = {str(folder) for path in paths for folder in PurePosixPath(path).parents}
        answer = self._run("results_look", {*paths, *above})
        now = {entry.path: entry for entry in parse_entries(answer.data)}
        found = {path: still_there(path, now) for path in paths}
        return {path: entry for path, entry in found.items() if entry is not None}

    # ------------------------------------------------------------------ comparing

    def same_content(self, copies: Copies) -> set[str]:
        files = {entry.path: copy for entry, copy in copies}
        entries = [entry for entry, _ in copies]
        same = set()
        for batch in batches(entries, files=_BATCH_FILES, nbytes=_DIGESTED_AT_ONCE):
            digests = self._digests(batch)
            same |= {path for path, digest in digests.items() if _has(files[path], digest)}
        return same

    def _digests(self, entries: Collection[Entry]) -> dict[str, str]:
        """SHA-256 of files, without those that cannot be read."""
        seconds = 120 + sum(entry.size for entry in entries) / _DIGESTED_PER_SECOND
        answer = self._run("results_digests", {entry.path for entry in entries}, seconds)
        lines = (line.partition(b"  ") for line in answer.data.split(b"\0")[:-1])
        return {path_of(name): digest.decode() for digest, _, name in lines}

    def _run(self, program: str, paths: Collection[str], seconds: float = 120) -> Section:
        variables = {"folder": self._folder, "record": RECORD}
        [answer] = self._transport.run(program, variables, names_of(paths), seconds=seconds)
        return answer

    # ------------------------------------------------------------------ fetching

    def fetch(
        self, entries: Sequence[Entry], folder: Path, advance: Advance, *, digests: bool
    ) -> Iterator[Fetched]:
        parts = Parts(folder / "parts", self.address)
        # Large ones last: they would come between small ones that can come together.
        ordered = sorted(entries, key=lambda entry: entry.size > _LARGE)
        for batch in batches(ordered, files=_BATCH_FILES, nbytes=_LARGE):
            waiting = batch
            for _ in range(_ATTEMPTS):
                attempt = self._attempt(waiting, parts, advance)
                yield from attempt.failed
                yield from self._delivered(attempt.whole, parts, digests=digests)
                waiting = attempt.changed
                if not waiting:
                    break
            for entry in waiting:
                yield Fetched(entry, None, problem=changed(entry.path, entry.size))

    def _attempt(self, entries: list[Entry], parts: Parts, advance: Advance) -> _Attempt:
        """Bring files here, and see which of them were the listed ones until the end."""
        attempt = _Attempt()
        try:
            complaint = self._bring(entries, parts, advance)
        except OSError as error:  # at this end
            for entry in entries:
                attempt.fail(entry, failed(entry.path, entry.size, error))
            return attempt
        now = self._look([entry.path for entry in entries])
        for entry in entries:
            found = now.get(entry.path)
            if found is None or found.kind is not Kind.FILE:
                attempt.fail(entry, _not_there(entry, found))
            elif not same_version(entry, found):
                advance(-parts.drop(entry))
                attempt.changed.append(found)
            elif parts.is_whole(entry):
                attempt.whole.append(entry)
            else:
                attempt.fail(entry, _unsent(entry, complaint))
        return attempt

    def _delivered(self, whole: list[Entry], parts: Parts, *, digests: bool) -> Iterator[Fetched]:
        if not digests or not whole:
            yield from (Fetched(entry, parts.path_of(entry)) for entry in whole)
            return
        expected = self._digests(whole)
        for entry in whole:
            if digest := expected.get(entry.path):
                yield Fetched(entry, parts.path_of(entry), digest)
            else:
                problem = _unsent(entry, "no checksum of it came")
                yield Fetched(entry, None, problem=problem)

    def _bring(self, entries: list[Entry], parts: Parts, advance: Advance) -> str:
        """Fetch what is not here yet; the complaints of that machine."""
        missing = [entry for entry in entries if not parts.is_whole(entry)]
        advance(sum(entry.size for entry in entries) - sum(entry.size for entry in missing))
        small = [entry for entry in missing if entry.size <= _LARGE]
        complaints = [
            self._bring_large(entry, parts, advance) for entry in missing if entry.size > _LARGE
        ]
        if small:
            complaints.append(self._bring_small(small, parts, advance))
        return "\n".join(filter(None, complaints))

    def _bring_small(self, entries: list[Entry], parts: Parts, advance: Advance) -> str:
        names = names_of(entry.path for entry in entries)
        with self._transport.stream("results_tar", {"folder": self._folder}, names) as answer:
            answer.next_section()
            _unpack(answer, entries, parts, advance)
            return _complaint(answer)

    def _bring_large(self, entry: Entry, parts: Parts, advance: Advance) -> str:
        here = parts.size_of(entry)
        advance(here)
        variables = {
            "folder": self._folder,
            "first": str(here + 1),
            "wanted": str(entry.size - here),
        }
        with self._transport.stream("results_tail", variables, names_of([entry.path])) as answer:
            answer.next_section()
            left = entry.size - here
            with parts.path_of(entry).open("ab") as part:
                while block := answer.read():
                    left -= len(block)
                    if left < 0:
                        break
                    part.write(block)
                    advance(len(block))
            if left < 0:  # or it never ends
                advance(-parts.drop(entry))
                return "more of it was sent than it has"
            return _complaint(answer)


@dataclass
class _Attempt:
    """What became of files that were to be brought."""

    whole: list[Entry] = field(default_factory=list)
    changed: list[Entry] = field(default_factory=list)
    """As they are by now."""
    failed: list[Fetched] = field(default_factory=list)

    def fail(self, entry: Entry, problem: Outcome) -> None:
        self.failed.append(Fetched(entry, None, problem=problem))


def _unpack(answer: AnswerStream, wanted: Sequence[Entry], parts: Parts, advance: Advance) -> None:
    """Write the members of an archive to their parts. What does not come is noticed later."""
    by_name = {f"./{entry.path}": entry for entry in wanted}
    try:
        # It wants an object with `read`, and nothing else of a file.
        file = cast("IO[bytes]", answer)
        with tarfile.open(fileobj=file, mode="r|", bufsize=_BLOCK) as archive:
            for member in archive:
                entry = by_name.get(member.name)
                content = archive.extractfile(member) if member.isreg() else None
                if entry is None or content is None or member.size != entry.size:
                    continue
                with parts.path_of(entry).open("wb") as part:
                    while block := content.read(_BLOCK):
                        part.write(block)
                        advance(len(block))
    except tarfile.TarError:
        return  # tar was stopped on that machine; its complaint follows


def _complaint(answer: AnswerStream) -> str:
    """What the program on that machine complains of at the end of its answer."""
    text = b""
    while answer.next_section() is not None:
        while block := answer.read():
            text += block
    return text.decode("utf-8", "replace").strip()


def _not_there(entry: Entry, found: Entry | None) -> Outcome:
    if found is not None and found.kind is Kind.UNREADABLE:
        return Outcome(entry.path, State.FAILED, entry.size, found.problem)
    return gone(entry.path)


def _unsent(entry: Entry, complaint: str) -> Outcome:
    reason = complaint.partition("\n")[0] or "it was not sent"
    return Outcome(entry.path, State.FAILED, entry.size, reason)


def _has(copy: Path, digest: str) -> bool:
    try:
        with copy.open("rb") as file:
            return digest_of(file) == digest
    except OSError:
        return False  # whatever it is, copying meets it again and can report it
