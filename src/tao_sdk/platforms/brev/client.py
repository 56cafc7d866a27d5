"""The `brev` program, the only way to Brev that this platform has: finds, checks and runs it.

The program has its own credentials: an earlier `brev login`, or an API key. A key goes to it by
environment (BREV_API_KEY), never as an argument, which every user of this machine could read.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

from tao_sdk import settings
from tao_sdk.atomic_files import write_private_json
from tao_sdk.errors import BackendUnreachableError, PlatformError
from tao_sdk.platforms.backend import CallLog
from tao_sdk.platforms.brev.parse import (
    Instance,
    Offer,
    parse_flags,
    parse_instances,
    parse_offers,
    parse_organization,
    parse_version,
    says_no_login,
    why_not_made,
)
from tao_sdk.platforms.remote.streams import RunningProgram, started

OLDEST = (0, 6, 310)
"""About the first version with the commands that are used here."""
_CREATE_FLAGS = ("detached", "type")
"""Flags that are used. They show whether a program of unknown version is new enough."""
API_KEY_PREFIX = "bak-"
_T = TypeVar("_T")

LIST_SECONDS = 120.0
SEARCH_SECONDS = 30.0
CREATE_SECONDS = 300.0
CHANGE_SECONDS = 120.0
COPY_SECONDS = 300.0
_QUICK_SECONDS = 30.0
# Delays before a question is repeated.
_PAUSES = (0.2, 0.5)

INSTALL_HINT = (
    "install NVIDIA's brev program (https://docs.nvidia.com/brev, or: brew install "
    "brevdev/homebrew-brev/brev), then run: brev login"
)
LOGIN_HINT = (
    "run `brev login` once, or set BREV_API_TOKEN to an API key (bak-…, read and write) of Brev's "
    "console, which brev programs from September 2026 on take; other tokens are not used, because "
    "the program takes them only where every user could read them"
)


class NotLoggedInError(BackendUnreachableError):
    """No valid login or API key."""


class RefusedError(PlatformError):
    """The program ran and refused."""


class CommandOutput(NamedTuple):
    """What a run of the program printed."""

    code: int
    out: bytes
    errors: str

    @property
    def text(self) -> str:
        return self.out.decode("utf-8", "replace")

    @property
    def complaint(self) -> str:
        """The text about a failure: the program prints it last, and on its output."""
        return "\n".join([self.errors, *_lines(self.text)[-2:]])

    @property
    def last_line(self) -> str:
        return next(reversed(_lines(self.complaint)), f"exit code {self.code}")


class Facts(NamedTuple):
    """The version of the program and the flags of its `create`."""

    version: tuple[int, int, int] | None
    create_flags: frozenset[str]


class BrevClient:
    """Runs the program. Counts every run in `calls`."""

    def __init__(self, folder: Path) -> None:
        """`folder` is for a cache of facts about the program."""
        self.calls = CallLog()
        self._folder = folder
        self._facts: Facts | None = None

    # ------------------------------------------------------------------ its commands

    def instances(self) -> list[Instance]:
        """`brev ls`: every instance of the user in the active organisation."""
        return self._asked("ls", ["ls", "--json"], LIST_SECONDS, parse_instances)

    def organization(self) -> str:
        """`brev ls orgs`: the id of the active organisation, whose instances `brev ls` lists.

        "" if the program does not say; older ones have no `--json` there.
        """
        with contextlib.suppress(RefusedError, ValueError):
            return parse_organization(
                self._run("orgs", ["ls", "orgs", "--json"], LIST_SECONDS).text
            )
        return ""

    def offers(self, *, gpus: bool) -> list[Offer]:
        """`brev search`: the types of instances on offer."""
        words = ["search", "--json"] if gpus else ["search", "cpu", "--json"]
        return self._asked("search", words, SEARCH_SECONDS, parse_offers)

    def create(self, name: str, kind: str, extra: Sequence[str] = ()) -> None:
        """`brev create`, which returns before the instance is ready."""
        words = ["create", name, "--type", kind, *extra, "--detached"]
        output = self._run("create", words, CREATE_SECONDS, any_code=True, tied=True)
        if output.code:
            why = why_not_made(f"{output.errors}\n{output.text}") or output.last_line
            raise RefusedError(f"`brev create`: {why}")

    def change(self, verb: str, name: str) -> None:
        """`brev delete`, `brev start` or `brev stop`; returns before the change is done."""
        words = [verb, name, "--detached"] if verb == "start" else [verb, name]
        self._run(verb, words, CHANGE_SECONDS)

    def copy(self, source: Path, name: str, target: str) -> None:
        """`brev copy` of a file to an instance, which keeps the file's mode."""
        # The file's name alone: the program takes a path with a colon for one on an instance.
        words = ["copy", source.name, f"{name}:{target}"]
        self._run("copy", words, COPY_SECONDS, folder=source.parent)

    def execute(self, name: str, command: str, seconds: float, what: str) -> CommandOutput:
        """`brev exec`: all that the command printed, also if it was cut off."""
        return self._run(what, ["exec", name, command], seconds, any_code=True)

    @contextlib.contextmanager
    def executing(
        self, name: str, command: str, idle: float, what: str
    ) -> Iterator[RunningProgram]:
        """`brev exec` of a command whose answer is read as it comes."""
        self.calls.record(what)
        # Without input, whose lines the program would take for more names of instances.
        words = ["exec", name, command]
        with (
            self._found() as program,
            started([program, *words], b"", idle, environment(), own_group=True) as running,
        ):
            yield running

    # ------------------------------------------------------------------ what it can do

    def facts(self) -> Facts:
        """The version and flags; asked once for each installed program."""
        if self._facts is None:
            with self._found() as program:
                self._facts = self._remembered(program)
        return self._facts

    def check(self) -> None:
        """Raise if the program is missing, or too old."""
        version, flags = self.facts()
        if version is not None and version < OLDEST:
            found, needed = (".".join(map(str, each)) for each in (version, OLDEST))
            raise PlatformError(
                f"the brev program is {found}, and {needed} or newer is needed: {INSTALL_HINT}"
            )
        if flags and (missing := [flag for flag in _CREATE_FLAGS if flag not in flags]):
            names = ", ".join(f"`create --{flag}`" for flag in missing)
            raise PlatformError(f"this brev program has no {names}: {INSTALL_HINT}")

    def _remembered(self, program: str) -> Facts:
        path = Path(program).resolve()
        found = path.stat()
        key = f"{path} {found.st_size} {found.st_mtime_ns}"
        store = self._folder / "brev-program.json"
        with contextlib.suppress(FileNotFoundError, ValueError, KeyError, TypeError):
            kept = json.loads(store.read_text(encoding="utf-8"))
            if kept["program"] == key:
                version = kept["version"]
                return Facts(tuple(version) if version else None, frozenset(kept["create_flags"]))
        flags = self._asked("help", ["create", "--help"], _QUICK_SECONDS, parse_flags)
        version = None
        # `--version` asks GitHub for newer ones, and fails where GitHub cannot be reached.
        with contextlib.suppress(RefusedError, BackendUnreachableError):
            output = self._run("version", ["--version"], _QUICK_SECONDS)
            version = parse_version(output.text or output.errors)
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        kept = {"program": key, "version": version, "create_flags": sorted(flags)}
        write_private_json(store, kept)
        return Facts(version, flags)

    # ------------------------------------------------------------------ running it

    def _run(
        self,
        what: str,
        words: Sequence[str],
        seconds: float,
        *,
        any_code: bool = False,
        tied: bool = False,
        folder: Path | None = None,
    ) -> CommandOutput:
        self.calls.record(what)
        with self._found() as program:
            try:
                output = _run([*(_tied() if tied else ()), program, *words], seconds, folder)
            except subprocess.TimeoutExpired:
                raise BackendUnreachableError(
                    f"`brev {words[0]}` did not answer within {seconds:g} s"
                ) from None
        if output.code and says_no_login(output.complaint):
            raise NotLoggedInError(f"Brev does not know you ({output.last_line}): {LOGIN_HINT}")
        if output.code and not any_code:
            raise RefusedError(f"`brev {words[0]}`: {output.last_line}")
        return output

    def _asked(
        self, what: str, words: Sequence[str], seconds: float, parse: Callable[[str], _T]
    ) -> _T:
        """The answer to a question, which is repeated if it fails."""
        for pause in (*_PAUSES, None):
            try:
                output = self._run(what, words, seconds)
                return parse(output.text or output.errors)
            except RefusedError as error:
                trouble = str(error)
            except (ValueError, TypeError):
                text = " ".join(output.text.split())[:80]
                trouble = f"`brev {words[0]} --json` gave an answer of unknown form: {text!r}"
            if pause is not None:
                time.sleep(pause)
        raise BackendUnreachableError(trouble)

    @contextlib.contextmanager
    def _found(self) -> Iterator[str]:
        environ = environment()
        program = shutil.which("brev", path=environ.get("PATH"))
        if program is None:
            raise BackendUnreachableError(f"there is no program `brev` on PATH: {INSTALL_HINT}")
        try:
            yield str(Path(program).absolute())  # it may be run in another folder
        except OSError as error:
            raise BackendUnreachableError(f"{program} cannot be run: {error}") from error


def _run(words: Sequence[str], seconds: float, folder: Path | None) -> CommandOutput:
    with subprocess.Popen(
        words,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
        cwd=folder,
        start_new_session=True,
    ) as process:
        try:
            out, errors = process.communicate(timeout=seconds)
        except BaseException:
            # The whole group: the program's ssh may wait for ever.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            raise
    return CommandOutput(process.returncode, out, errors.decode("utf-8", "replace"))


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip()]


def environment() -> Mapping[str, str]:
    """The program's environment: ours, and an API key under the program's own name for it."""
    mine = dict(settings.process_environment())
    token = settings.lookup("BREV_API_TOKEN")
    if token.startswith(API_KEY_PREFIX):
        mine.setdefault("BREV_API_KEY", token)
    return {**mine, "NO_COLOR": "1"}


def _tied() -> tuple[str, ...]:
    """Words before a program that must die with us, because what it orders costs money."""
    return ("setpriv", "--pdeathsig", "KILL", "--") if shutil.which("setpriv") else ()
