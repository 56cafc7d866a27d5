"""Connections to a remote daemon through the system's OpenSSH.

Each connection is one `ssh host docker system dial-stdio`. Its input and output are one end of a
socket pair; the other end is an ordinary socket for the HTTP client. OpenSSH reads the user's
configuration, agents, jump hosts and host keys. Connections share one authenticated session, which
stays for a minute after its last use.
"""

from __future__ import annotations

import http.client
import os
import shlex
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from urllib.parse import unquote, urlsplit

import requests.adapters
import urllib3
import urllib3.connection

from tao_sdk.platforms.ssh_control import control_folder, control_path

_KEEP_SESSION_SECONDS = 60
# Less than a request may take, because the error message of ssh is better than a timeout.
_CONNECT_SECONDS = 15


def ssh_command(url: str, sessions: str) -> list[str]:
    """The words that reach the daemon behind an ssh:// address; `sessions` is a folder."""
    parts = urlsplit(url)
    words = ["ssh", "-T", "-o", "BatchMode=yes", "-o", f"ConnectTimeout={_CONNECT_SECONDS}"]
    words += ["-o", "ControlMaster=auto", "-o", f"ControlPath={control_path(sessions, '%C')}"]
    words += ["-o", f"ControlPersist={_KEEP_SESSION_SECONDS}"]
    if parts.username:
        words += ["-l", parts.username]
    if parts.port:
        words += ["-p", str(parts.port)]
    remote = ["docker", "system", "dial-stdio"]
    if parts.path.strip("/"):
        remote = ["docker", "--host", f"unix://{unquote(parts.path)}", "system", "dial-stdio"]
    # A shell at the other end takes them apart again.
    return [*words, "--", parts.hostname or "", *map(shlex.quote, remote)]


class SshError(ConnectionError):
    """The last line that ssh printed when it could not connect."""


class SshConnection(urllib3.connection.HTTPConnection):
    """An HTTP connection whose socket is the input and output of a command."""

    def __init__(self, command: Sequence[str], timeout: float | None) -> None:
        super().__init__("localhost", timeout=timeout)
        self._command = list(command)
        self._process: subprocess.Popen[bytes] | None = None
        self._client = os.getpid()
        # Not a pipe, which would have to be read all the time.
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the connection

    def connect(self) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            end = theirs.fileno()
            self._process = subprocess.Popen(
                self._command, stdin=end, stdout=end, stderr=self._stderr.fileno()
            )
        ours.settimeout(self.timeout)
        self.sock = ours

    def send(self, data: Any) -> None:
        with self._explaining():
            super().send(data)

    def getresponse(self) -> Any:
        with self._explaining():
            return super().getresponse()

    def close(self) -> None:
        super().close()
        process, self._process = self._process, None
        if process is None:
            return
        if os.getpid() != self._client:
            process.returncode = 0  # the parent's child: not ours to end or to wait for
            return
        process.terminate()
        process.wait()

    @contextmanager
    def _explaining(self) -> Iterator[None]:
        try:
            yield
        except (OSError, http.client.HTTPException) as error:
            self.close()
            self._stderr.seek(0)
            lines = self._stderr.read().decode("utf-8", "replace").strip().splitlines()
            if lines:
                raise SshError(lines[-1]) from error
            raise


class SshPool(urllib3.connectionpool.HTTPConnectionPool):
    """Connections to one daemon."""

    def __init__(self, command: Sequence[str], timeout: float, size: int) -> None:
        super().__init__("localhost", timeout=timeout, maxsize=size)
        self._command = command
        self._seconds = timeout

    def _new_conn(self) -> SshConnection:
        return SshConnection(self._command, self._seconds)


class SshAdapter(requests.adapters.HTTPAdapter):
    """Lets a requests session reach a daemon through ssh."""

    def __init__(self, url: str, timeout: float, size: int = 8) -> None:
        self._pool = SshPool(ssh_command(url, str(control_folder())), timeout, size)
        super().__init__()

    def get_connection(self, *_: Any, **__: Any) -> Any:
        return self._pool

    def get_connection_with_tls_context(self, *_: Any, **__: Any) -> Any:
        return self._pool

    def request_url(self, request: Any, *_: Any, **__: Any) -> str:
        return str(request.path_url)

    def close(self) -> None:
        self._pool.close()
        super().close()
