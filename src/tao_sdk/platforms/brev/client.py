"""The `brev` program: found, checked, run. The only way to Brev that this platform has.

Who it is, is the program's own affair: an earlier `brev login`, or an API key. A key goes to it by
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
    parse_version,
    says_no_login,
    why_not_made,
)
from tao_sdk.platforms.remote.streams import RunningProgram, started

OLDEST = (0, 6, 310)
"""The commands that are used here came with versions of about that time."""
_CREATE_FLAGS = ("detached", "type")
"""Those that are used, which tell as much of a program whose version nobody knows."""
API_KEY_PREFIX = "bak-"
_T = TypeVar("_T")

LIST_SECONDS = 120.0
SEARCH_SECONDS = 30.0
CREATE_SECONDS = 300.0
CHANGE_SECONDS = 120.0
COPY_SECONDS = 300.0
_QUICK_SECONDS = 30.0
# Before a question is asked again.
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


class Said(NamedTuple):
    """What the program printed."""

    code: int
    out: bytes
    progress: str
    """Its error output."""

    @property
    def text(self) -> str:
        return self.out.decode("utf-8", "replace")

    @property
    def complaint(self) -> str:
        """What it has to say of a failure: that comes last, and on its output."""
        return "\n".join([self.progress, *_lines(self.text)[-2:]])

    @property
    def last_words(self) -> str:
        return next(reversed(_lines(self.complaint)), f"exit code {self.code}")


class Facts(NamedTuple):
    """What this version of the program can do."""

    version: tuple[int, int, int] | None
    create_flags: frozenset[str]


class BrevClient:
    """Runs the program; every run is recorded in `calls`."""

    def __init__(self, folder: Path) -> None:
        """`folder` is for what need not be asked twice."""
        self.calls = CallLog()
        self._folder = folder
        self._facts: Facts | None = None

    # ------------------------------------------------------------------ its commands

    def instances(self) -> list[Instance]:
        """`brev ls`: every instance of the account."""
        return self._asked("ls", ["ls", "--json"], LIST_SECONDS, parse_instances)

    def offers(self, *, gpus: bool) -> list[Offer]:
        """`brev search`: what can be had."""
        words = ["search", "--json"] if gpus else ["search", "cpu", "--json"]
        return self._asked("search", words, SEARCH_SECONDS, parse_offers)

    def create(self, name: str, kind: str, extra: Sequence[str] = ()) -> None:
        """`brev create`, which returns before the instance is ready."""
        words = ["create", name, "--type", kind, *extra, "--detached"]
        said = self._run("create", words, CREATE_SECONDS, any_code=True, tied=True)
        if said.code:
            why = why_not_made(f"{said.progress}\n{said.text}") or said.last_words
            raise RefusedError(f"`brev create`: {why}")

    def change(self, verb: str, name: str) -> None:
        """`brev delete`, `brev start` or `brev stop`: the order, not its end."""
        words = [verb, name, "--detached"] if verb == "start" else [verb, name]
        self._run(verb, words, CHANGE_SECONDS)

    def copy(self, source: Path, name: str, target: str) -> None:
        """`brev copy` of a file to an instance, which keeps the file's mode."""
        # By its name alone: what has a colon, as its folder may, is a path on an instance.
        words = ["copy", source.name, f"{name}:{target}"]
        self._run("copy", words, COPY_SECONDS, folder=source.parent)

    def execute(self, name: str, command: str, seconds: float, what: str) -> Said:
        """`brev exec`: whatever the command says, half of it included."""
        return self._run(what, ["exec", name, command], seconds, any_code=True)

    @contextlib.contextmanager
    def executing(
        self, name: str, command: str, idle: float, what: str
    ) -> Iterator[RunningProgram]:
        """`brev exec` of a command whose answer is read as it comes."""
        self.calls.record(what)
        # An empty input: the program would take lines of it for more names of instances.
        words = ["exec", name, command]
        with (
            self._found() as program,
            started([program, *words], b"", idle, environment(), own_group=True) as running,
        ):
            yield running

    # ------------------------------------------------------------------ what it can do

    def facts(self) -> Facts:
        """Its version and flags; asked once for each installed program."""
        if self._facts is None:
            with self._found() as program:
                self._facts = self._remembered(program)
        return self._facts

    def check(self) -> None:
        """Raise where the program is missing, or too old for what is done here."""
        version, flags = self.facts()
        if version is not None and version < OLDEST:
            told = ".".join(map(str, version))
            wanted = ".".join(map(str, OLDEST))
            raise PlatformError(
                f"the brev program is {told}, and {wanted} or newer is needed: {INSTALL_HINT}"
            )
        if flags and (missing := [flag for flag in _CREATE_FLAGS if flag not in flags]):
            told = ", ".join(f"`create --{flag}`" for flag in missing)
            raise PlatformError(f"this brev program has no {told}: {INSTALL_HINT}")

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
        # It asks GitHub for newer ones, which need not be reachable from here.
        with contextlib.suppress(RefusedError, BackendUnreachableError):
            said = self._run("version", ["--version"], _QUICK_SECONDS)
            version = parse_version(said.text or said.progress)
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
    ) -> Said:
        self.calls.record(what)
        with self._found() as program:
            try:
                said = _run([*(_tied() if tied else ()), program, *words], seconds, folder)
            except subprocess.TimeoutExpired:
                raise BackendUnreachableError(
                    f"`brev {words[0]}` did not answer within {seconds:g} s"
                ) from None
        if said.code and says_no_login(said.complaint):
            raise NotLoggedInError(f"Brev does not know you ({said.last_words}): {LOGIN_HINT}")
        if said.code and not any_code:
            raise RefusedError(f"`brev {words[0]}`: {said.last_words}")
        return said

    def _asked(
        self, what: str, words: Sequence[str], seconds: float, parse: Callable[[str], _T]
    ) -> _T:
        """The answer to a question, asked again where the first ones failed."""
        for pause in (*_PAUSES, None):
            try:
                said = self._run(what, words, seconds)
                return parse(said.text or said.progress)
            except RefusedError as error:
                trouble = str(error)
            except (ValueError, TypeError):
                told = " ".join(said.text.split())[:80]
                trouble = f"`brev {words[0]} --json` answered what nobody understands: {told!r}"
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


def _run(words: Sequence[str], seconds: float, folder: Path | None) -> Said:
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
            # With all that it has started: its ssh may wait for ever.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            raise
    return Said(process.returncode, out, errors.decode("utf-8", "replace"))


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip()]


def environment() -> Mapping[str, str]:
    """What the program finds set: ours, and a key that we were given under our own name."""
    mine = dict(settings.process_environment())
    token = settings.lookup("BREV_API_TOKEN")
    if token.startswith(API_KEY_PREFIX):
        mine.setdefault("BREV_API_KEY", token)
    return {**mine, "NO_COLOR": "1"}


def _tied() -> tuple[str, ...]:
    """Words before a program that is to die with us: what it orders costs money."""
    return ("setpriv", "--pdeathsig", "KILL", "--") if shutil.which("setpriv") else ()
