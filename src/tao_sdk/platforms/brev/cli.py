"""The `brev` program: found, checked, run. The only way to Brev that this platform has.

Who it is, is the program's own affair: an earlier `brev login`, or an API key. A key goes to it by
environment (BREV_API_KEY), never as an argument, which every user of this machine could read.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

from tao_sdk import settings
from tao_sdk.atomic_files import write_private_json
from tao_sdk.errors import BackendUnreachableError, PlatformError
from tao_sdk.platforms.backend import CallLog
from tao_sdk.platforms.brev import answers
from tao_sdk.platforms.brev.answers import Instance, Offer
from tao_sdk.platforms.remote.streams import RunningProgram, started

OLDEST = (0, 6, 310)
"""The commands that are used here came with versions of about that time."""
_API_KEY_PREFIX = "bak-"
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
    "run `brev login` once, or set BREV_API_TOKEN to an API key (bak-…) of the Brev console; other "
    "tokens are not used, because the program takes them only where every user could read them"
)


class NotLoggedInError(BackendUnreachableError):
    """Brev does not know who asks."""


class RefusedError(PlatformError):
    """The program ran, and says no."""


class Said(NamedTuple):
    """What the program printed."""

    code: int
    out: bytes
    complaint: str

    @property
    def text(self) -> str:
        return self.out.decode("utf-8", "replace")

    @property
    def last_words(self) -> str:
        lines = [line.strip() for line in self.complaint.splitlines() if line.strip()]
        return lines[-1] if lines else f"exit code {self.code}"


class Facts(NamedTuple):
    """What this version of the program can do."""

    version: tuple[int, int, int] | None
    create_flags: frozenset[str]


class BrevCli:
    """Runs the program; every run is recorded in `calls`."""

    def __init__(self, folder: Path) -> None:
        """`folder` is for what need not be asked twice."""
        self.calls = CallLog()
        self._folder = folder
        self._facts: Facts | None = None

    # ------------------------------------------------------------------ its commands

    def instances(self) -> list[Instance]:
        """`brev ls`: every instance of the account."""
        return self._asked("ls", ["ls", "--json"], LIST_SECONDS, answers.parse_instances)

    def offers(self, *, gpus: bool) -> list[Offer]:
        """`brev search`: what can be had."""
        words = ["search", "--json"] if gpus else ["search", "cpu", "--json"]
        return self._asked("search", words, SEARCH_SECONDS, answers.parse_offers)

    def create(self, name: str, kind: str, extra: Sequence[str] = ()) -> None:
        """`brev create`, which returns before the instance is ready."""
        words = ["create", name, "--type", kind, *extra, "--detached"]
        self._run("create", words, CREATE_SECONDS, tied=True)

    def change(self, verb: str, name: str) -> None:
        """`brev delete`, `brev start` or `brev stop`."""
        self._run(verb, [verb, name], CHANGE_SECONDS)

    def copy(self, source: Path, name: str, target: str) -> None:
        """`brev copy` of a file to an instance, which keeps the file's mode."""
        self._run("copy", ["copy", str(source), f"{name}:{target}"], COPY_SECONDS)

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
            started([program, *words], b"", idle, environment()) as running,
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
        version = self.facts().version
        if version is not None and version < OLDEST:
            told = ".".join(map(str, version))
            wanted = ".".join(map(str, OLDEST))
            raise PlatformError(
                f"the brev program is {told}, and {wanted} or newer is needed: {INSTALL_HINT}"
            )

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
        facts = Facts(
            self._asked("version", ["--version"], _QUICK_SECONDS, answers.parse_version),
            self._asked("help", ["create", "--help"], _QUICK_SECONDS, answers.parse_flags),
        )
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        flags = sorted(facts.create_flags)
        write_private_json(store, {"program": key, "version": facts.version, "create_flags": flags})
        return facts

    # ------------------------------------------------------------------ running it

    def _run(
        self,
        what: str,
        words: Sequence[str],
        seconds: float,
        *,
        any_code: bool = False,
        tied: bool = False,
    ) -> Said:
        self.calls.record(what)
        with self._found() as program:
            try:
                done = subprocess.run(
                    [*(_tied() if tied else ()), program, *words],
                    stdin=subprocess.DEVNULL,
                    capture_output=True,
                    timeout=seconds,
                    env=environment(),
                    check=False,
                )
            except subprocess.TimeoutExpired:
                raise BackendUnreachableError(
                    f"`brev {words[0]}` did not answer within {seconds:g} s"
                ) from None
        said = Said(done.returncode, done.stdout, done.stderr.decode("utf-8", "replace"))
        if said.code and answers.says_no_login(said.complaint or said.text):
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
                return parse(said.text or said.complaint)
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
            yield program
        except OSError as error:
            raise BackendUnreachableError(f"{program} cannot be run: {error}") from error


def environment() -> Mapping[str, str]:
    """What the program finds set: ours, and a key that we were given under our own name."""
    mine = dict(settings.process_environment())
    token = settings.lookup("BREV_API_TOKEN")
    if token.startswith(_API_KEY_PREFIX):
        mine.setdefault("BREV_API_KEY", token)
    return {**mine, "NO_COLOR": "1"}


def _tied() -> tuple[str, ...]:
    """Words before a program that is to die with us: what it orders costs money."""
    return ("setpriv", "--pdeathsig", "KILL", "--") if shutil.which("setpriv") else ()
