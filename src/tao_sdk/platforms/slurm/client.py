"""Running programs on a login host with the system's OpenSSH.

OpenSSH handles configuration, agents, jump hosts and host keys. All processes of a user share one
authenticated session per login host, which stays for some minutes after its last use. A host that
could not be reached is remembered by all of them, and tried last for a while.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

from tao_sdk.errors import BackendUnreachableError
from tao_sdk.platforms.backend import CallLog
from tao_sdk.platforms.remote.framing import Call, Programs, Section, by_program
from tao_sdk.platforms.remote.streams import AnswerStream, CutOffError, started
from tao_sdk.platforms.ssh_control import control_folder, control_path

_KEEP_SESSION_SECONDS = 600
_REMEMBER_UNREACHABLE_SECONDS = 120.0
_CONNECT_SECONDS = 15
# A server allows ten sessions per connection unless told otherwise; other processes want some.
_CHANNELS = 6
_QUICK_SECONDS = 120.0
_CONTROL_SECONDS = 5

_T = TypeVar("_T")

PROGRAMS = Programs(Path(__file__).parent / "programs")
call = PROGRAMS.call


class Login(NamedTuple):
    """The user, the login hosts, and how to log in."""

    user: str
    hosts: tuple[str, ...]
    key: str = ""
    config: str = ""
    reuse_only: bool = False


class NotReachedError(BackendUnreachableError):
    """The login host was not reached: the program did not run."""


def ssh_command(login: Login, host: str, folder: str) -> list[str]:
    """The words before the remote command."""
    name, _, port = host.partition(":")
    # Another key or configuration is another session.
    way = hashlib.sha256(f"{login.key}\0{login.config}".encode()).hexdigest()[:8]
    words = ["ssh", "-T"]
    if login.config:
        words += ["-F", login.config]
    options = {
        "BatchMode": "yes",
        "StrictHostKeyChecking": "yes",
        "ConnectTimeout": str(_CONNECT_SECONDS),
        "ServerAliveInterval": "15",
        "ServerAliveCountMax": "4",
        "LogLevel": "ERROR",
        "ClearAllForwardings": "yes",
        "ForwardAgent": "no",
        "ForwardX11": "no",
    }
    if login.reuse_only:
        # The user logged in by hand (a second factor, say): use that session, if it is there.
        options["ControlMaster"] = "no"
    else:
        options |= {
            "ControlMaster": "auto",
            "ControlPath": control_path(folder, f"{way}-%C"),
            "ControlPersist": str(_KEEP_SESSION_SECONDS),
        }
    if login.key:
        options["IdentitiesOnly"] = "yes"
        words += ["-i", login.key]
    for option, value in options.items():
        words += ["-o", f"{option}={value}"]
    if port:
        words += ["-p", port]
    return [*words, "-l", login.user, "--", name]


class SshTransport:
    """Sends programs to the first login host that answers."""

    def __init__(self, login: Login) -> None:
        self.calls = CallLog()
        self.login = login
        self._channels = threading.BoundedSemaphore(_CHANNELS)

    def run(
        self,
        program: str,
        variables: Mapping[str, str] | None = None,
        payload: bytes = b"",
        *,
        seconds: float = _QUICK_SECONDS,
        repeatable: bool = True,
    ) -> list[Section]:
        """Run one of `programs/`; its answer in sections.

        `NotReachedError` means that it did not run. Any other `BackendUnreachableError` means
        that its answer was lost, and it may have run: only a program that is `repeatable` is then
        tried on the next host.
        """
        programs = {program: variables or {}}
        return self.run_together(programs, payload, seconds=seconds, repeatable=repeatable)[program]

    def run_together(
        self,
        programs: Mapping[str, Mapping[str, str]],
        payload: bytes = b"",
        *,
        seconds: float = _QUICK_SECONDS,
        repeatable: bool = True,
    ) -> dict[str, list[Section]]:
        """Like `run`, with several programs in one round trip. The last one reads the payload."""
        self.calls.record("+".join(programs))
        sent = call(*programs.items())
        sections = self._first_answer(
            lambda host, folder: self._run_on(host, folder, sent, payload, seconds),
            repeatable=repeatable,
        )
        return dict(zip(programs, by_program(sections), strict=True))

    @contextlib.contextmanager
    def stream(
        self, program: str, variables: Mapping[str, str] | None = None, payload: bytes = b""
    ) -> Iterator[AnswerStream]:
        """Like `run` for a repeatable program, with the answer read in pieces as it comes.

        Once the answer has begun it comes from that host or not at all; if it is cut off,
        `BackendUnreachableError` is raised, and what has been read is right.
        """
        self.calls.record(program)
        sent = call((program, variables or {}))
        with self._channels, contextlib.ExitStack() as opened:
            yield self._first_answer(
                lambda host, folder: opened.enter_context(
                    self._begun_on(host, folder, sent, payload)
                )
            )

    def _first_answer(self, attempt: Callable[[str, Path], _T], *, repeatable: bool = True) -> _T:
        """The answer of the first host that can be reached."""
        folder = control_folder()
        errors: list[BackendUnreachableError] = []
        for host in self.in_order(folder):
            try:
                answer = attempt(host, folder)
            except BackendUnreachableError as error:
                errors.append(error)
                self._unreachable_mark(folder, host).touch(mode=0o600)
                if not repeatable and not isinstance(error, NotReachedError):
                    raise
                continue
            self._unreachable_mark(folder, host).unlink(missing_ok=True)
            return answer
        never_ran = all(isinstance(trouble, NotReachedError) for trouble in errors)
        kind = NotReachedError if never_ran else BackendUnreachableError
        raise kind("; ".join(str(trouble) for trouble in errors))

    def _run_on(
        self, host: str, folder: Path, sent: Call, payload: bytes, seconds: float
    ) -> list[Section]:
        words = self._words(host, folder, sent)
        # Not a pipe: the session that stays behind would keep it open.
        with self._channels, tempfile.TemporaryFile() as stderr:
            try:
                done = subprocess.run(
                    words,
                    input=sent.source + payload,
                    stdout=subprocess.PIPE,
                    stderr=stderr,
                    timeout=seconds,
                    check=False,
                )
            except subprocess.TimeoutExpired:
                self._abandon(host, folder)
                raise BackendUnreachableError(
                    f"{host} did not answer within {seconds:g} s"
                ) from None
            except FileNotFoundError:
                raise NotReachedError(_NO_SSH) from None
            stderr.seek(0)
            complaint = stderr.read().decode("utf-8", "replace")
        sections = sent.sections(done.stdout)
        if sections is not None:
            return sections
        ran = done.returncode != 255 or sent.nonce.encode() in done.stdout
        raise self._cut_off(host, complaint, "the connection was lost", ran=ran)

    @contextlib.contextmanager
    def _begun_on(
        self, host: str, folder: Path, sent: Call, payload: bytes
    ) -> Iterator[AnswerStream]:
        """The answer of a program on that host, from its beginning."""
        with contextlib.ExitStack() as opened:
            try:
                words = self._words(host, folder, sent)
                running = opened.enter_context(
                    started(words, sent.source + payload, idle=_QUICK_SECONDS)
                )
            except FileNotFoundError:
                raise NotReachedError(_NO_SSH) from None
            answer = AnswerStream(sent, running.read)
            begun = False
            try:
                answer.next_section()
                begun = True
                yield answer
            except CutOffError as error:
                ran = running.stop() != 255 or begun
                raise self._cut_off(host, running.complaint(), str(error), ran=ran) from None

    def _words(self, host: str, folder: Path, sent: Call) -> list[str]:
        if self.login.reuse_only and self._control(host, folder, "check") != 0:
            raise NotReachedError(f"{host}: {_NO_SESSION.format(user=self.login.user, host=host)}")
        return [*ssh_command(self.login, host, str(folder)), sent.command]

    def _cut_off(
        self, host: str, complaint: str, otherwise: str, *, ran: bool
    ) -> BackendUnreachableError:
        """The error for an answer that is not whole. `ran`: the program has certainly begun."""
        hint = None if ran else _hint(complaint, self.login, host)
        if hint is not None:
            return NotReachedError(f"{host}: {hint}")
        last_line = (complaint.strip().splitlines() or [otherwise])[-1]
        return BackendUnreachableError(f"{host}: the answer was cut off: {last_line}")

    def _abandon(self, host: str, folder: Path) -> None:
        """Abandon a session that does not answer, so that the next call opens another."""
        if not self.login.reuse_only:
            # Not "exit", which would end what other processes are doing in it.
            self._control(host, folder, "stop")

    def _control(self, host: str, folder: Path, what: str) -> int | None:
        """Send a command to the shared session; None when it does not answer."""
        words = ssh_command(self.login, host, str(folder))
        try:
            return subprocess.run(
                [*words[:-2], "-O", what, *words[-2:]],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                timeout=_CONTROL_SECONDS,
                check=False,
            ).returncode
        except subprocess.TimeoutExpired:
            return None

    def in_order(self, folder: Path) -> Sequence[str]:
        """The hosts; those that could not be reached lately come last."""
        return sorted(self.login.hosts, key=lambda host: self._was_unreachable(folder, host))

    def _was_unreachable(self, folder: Path, host: str) -> bool:
        try:
            since = time.time() - self._unreachable_mark(folder, host).stat().st_mtime
        except FileNotFoundError:
            return False
        return since < _REMEMBER_UNREACHABLE_SECONDS

    def _unreachable_mark(self, folder: Path, host: str) -> Path:
        key = hashlib.sha256(f"{self.login.config}\0{host}".encode()).hexdigest()[:16]
        return folder / f"unreachable-{key}"


_NO_SSH = "there is no program `ssh` here: install OpenSSH"
_NO_SESSION = (
    "there is no open session, and SLURM_SSH_REUSE_ONLY forbids to open one: log in by hand first "
    "(ssh -M {user}@{host}, with a ControlPath in your configuration)"
)
# Lines of ssh itself which mean that it has not reached the host, and what to do about them.
# Anything else, output of login scripts included, may come after the program has begun.
_HINTS = (
    (
        r"Host key verification failed\.?",
        "its host key is not known, or has changed: compare the fingerprint with your site's and "
        "add it to known_hosts (ssh {user}@{host}, once, by hand)",
    ),
    (r".*UNPROTECTED PRIVATE KEY.*", "the private key can be read by others: chmod 600 {key}"),
    (
        r"\S+: Permission denied \([\w,-]+\)\.?",
        "it refuses the login of {user}: set SSH_KEY_PATH to the private key whose public half is "
        "in ~/.ssh/authorized_keys there, or load the key into an agent (SSH_AUTH_SOCK); try: "
        "ssh -o BatchMode=yes {user}@{host} true",
    ),
    (r"ssh: Could not resolve hostname .*", "no such host: check SLURM_HOSTNAME"),
    (r"ssh: connect to host .*: Connection refused", "no ssh server listens on its port"),
    (r"ssh: connect to host .*: (Connection|Operation) timed out", "it does not answer"),
    (r"Connection timed out during banner exchange", "it does not answer"),
    (r"ssh: connect to host .*: No route to host", "there is no route to it"),
    (r"ssh: connect to host .*: Network is unreachable", "the network is down"),
    (r"kex_exchange_identification: .*", "it closed the connection before the login"),
)


def _hint(complaint: str, login: Login, host: str) -> str | None:
    """Why the host was not reached; None when it may have been."""
    name = host.partition(":")[0]
    lines = [line.strip() for line in complaint.splitlines()]
    for pattern, meaning in _HINTS:
        if any(re.fullmatch(pattern, line) for line in lines):
            return meaning.format(user=login.user, host=name, key=login.key or "~/.ssh/…")
    return None


def only(sections: Sequence[Section]) -> Section:
    """The one section of an answer."""
    return last(sections if len(sections) == 1 else ())


def last(sections: Sequence[Section]) -> Section:
    """The last section of an answer."""
    if not sections:
        raise BackendUnreachableError("the login host gave an answer that cannot be read")
    return sections[-1]


def reached(sections: list[Section]) -> list[Section]:
    """The sections of an answer, unless Slurm could not be asked."""
    for section in sections:
        if section.name == "unreachable":
            raise BackendUnreachableError(f"Slurm does not answer: {section.words}")
    return sections


def mounted(sections: list[Section]) -> list[Section]:
    """The sections of an answer, unless the shared folder is missing on the login host."""
    for section in sections:
        if section.name == "away":
            raise BackendUnreachableError(f"{section.words} is not there (is it mounted?)")
    return sections
