"""The process that holds the GPU locks of a container."""

from __future__ import annotations

import socket
from contextlib import closing
from pathlib import Path

import pytest

from tao_sdk.platforms.docker import lease_holder


def test_a_daemon_that_accepts_and_never_answers_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease_holder, "_ANSWER_SECONDS", 0.05)
    monkeypatch.setattr(lease_holder, "_UNSTARTED_SECONDS", 0.1)
    path = str(tmp_path / "daemon.sock")
    with closing(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) as daemon:
        daemon.bind(path)
        daemon.listen()
        lease_holder.wait_for_end(path, "container", pause=0.01)
