"""MariaDB for the accounting: made once, then unpacked from an archive for every cluster."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from lab.packages import find
from lab.processes import lives, start, wait_until
from lab.slurm.configuration import CLUSTER, DATABASE, DATABASE_PASSWORD, DATABASE_USER

# Small and quick: nothing here has to survive a crash.
_OPTIONS = (
    "--skip-log-bin",
    "--skip-name-resolve",
    "--performance-schema=0",
    "--innodb-buffer-pool-size=32M",
    "--innodb-log-file-size=8M",
    "--innodb-undo-tablespaces=0",
    "--innodb-flush-log-at-trx-commit=0",
    "--innodb-doublewrite=0",
    # Asked for by slurmdbd.
    "--innodb-lock-wait-timeout=900",
    "--key-buffer-size=1M",
    "--aria-pagecache-buffer-size=4M",
    "--max-connections=20",
)


class Database:
    """A private MariaDB server of a cluster."""

    def __init__(self, cluster: Path, log: Path) -> None:
        self._cluster = cluster
        self._log = log
        self._folder = cluster / "mysql"

    def make(self) -> None:
        """An empty server."""
        words = (
            *("--no-defaults", f"--datadir={self._folder}", "--user=mysql", "--skip-test-db"),
            *("--auth-root-authentication-method=normal", *_OPTIONS),
        )
        _run(find("mariadb-install-db"), *words)

    def unpack(self, archive: Path) -> None:
        self._folder.mkdir()
        _run("tar", "-C", str(self._folder), "-xf", str(archive))

    def pack(self, archive: Path) -> None:
        """Keep a server that has been stopped."""
        partial = archive.with_suffix(".partial")
        _run("tar", "-C", str(self._folder), "--exclude=./socket", "-cf", str(partial), ".")
        partial.replace(archive)

    def start(self, port: int) -> int:
        """Start the server and wait until it answers; its process id."""
        shutil.chown(self._folder, "mysql")
        server = start(
            self._cluster,
            self._log,
            [
                *("mariadbd", "--no-defaults", "--user=mysql", f"--datadir={self._folder}"),
                *(f"--socket={self._socket}", f"--pid-file={self._folder}/pid"),
                *("--bind-address=127.0.0.1", f"--port={port}", *_OPTIONS),
            ],
        )
        wait_until(self._answers, f"MariaDB does not answer: see {self._log}")
        return server.pid

    def stop(self, pid: int) -> None:
        """End the server in order."""
        _run(find("mariadb-admin"), *self._client, "shutdown")
        wait_until(lambda: not lives(pid), "MariaDB does not end")

    def grant(self) -> None:
        """Make slurmdbd's database and user."""
        who = f"{DATABASE_USER}@'127.0.0.1'"
        statements = (
            f"create database {DATABASE}",
            f"create user {who} identified by '{DATABASE_PASSWORD}'",
            f"grant all on {DATABASE}.* to {who}",
        )
        _run(find("mariadb"), *self._client, "-e", ";".join(statements))

    def forget_jobs(self, name: str) -> None:
        """Remove what the accounting knows about jobs of this name."""
        # A name that a test made up, in a database of its own.
        statement = f"delete from {DATABASE}.{CLUSTER}_job_table where job_name = '{name}'"  # noqa: S608 - the name is the lab's own
        _run(find("mariadb"), *self._client, "-e", statement)

    @property
    def _socket(self) -> Path:
        return self._folder / "socket"

    @property
    def _client(self) -> tuple[str, ...]:
        return ("--no-defaults", "-uroot", "-S", str(self._socket))

    def _answers(self) -> bool:
        words = [find("mariadb-admin"), *self._client, "ping"]
        return subprocess.run(words, capture_output=True, timeout=30).returncode == 0


def _run(*words: str) -> None:
    done = subprocess.run(words, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, f"{words[0]}: {done.stdout[-1000:]}{done.stderr[-1000:]}"
