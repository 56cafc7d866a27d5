"""Which process is that, and is it still the same one?"""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from tao_sdk import process_identity
from tao_sdk.process_identity import (
    Fate,
    ProcessIdentity,
    fate_by_host,
    parse_boot,
    session_members,
    signal_if,
    start_time,
    this_host,
)


def test_this_process() -> None:
    me = ProcessIdentity.current()
    assert me.alive
    assert me.fate is Fate.ALIVE
    assert ProcessIdentity.parse(str(me)) == me


def test_a_forked_child_is_another_process() -> None:
    program = """
import os, time
from tao_sdk.process_identity import ProcessIdentity
parent = ProcessIdentity.current()
time.sleep(2 / os.sysconf("SC_CLK_TCK"))  # start times are told in ticks
if os.fork() == 0:
    child = ProcessIdentity.current()
    print(child.alive, child.started != parent.started, flush=True)
    os._exit(0)
os.wait()
"""
    answer = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert answer.stdout.split() == ["True", "True"]


def test_a_zombie_is_gone() -> None:
    """Lesson W20: a zombie answers to signals, but nothing of it runs."""
    process = subprocess.Popen(
        [sys.executable, "-c", "input()"], stdin=subprocess.PIPE, start_new_session=True
    )
    identity = ProcessIdentity(this_host(), process.pid, start_time(process.pid) or "")
    assert identity.fate is Fate.ALIVE
    assert session_members(process.pid) == [process.pid]
    process.send_signal(signal.SIGKILL)
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # dead, not yet reaped
    os.killpg(process.pid, 0)  # the zombie still answers
    assert identity.fate is Fate.GONE
    assert session_members(process.pid) == []
    process.wait()
    assert session_members(process.pid) == []


def test_a_session_has_members_in_all_its_groups() -> None:
    program = (
        "import os, sys; os.fork() or os.setpgid(0, 0); os.write(1, b'%d\\n' % os.getpid());"
        "sys.stdin.read()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert process.stdout is not None
    both = {int(process.stdout.readline()), int(process.stdout.readline())}
    assert process.pid in both
    assert set(session_members(process.pid)) == both
    assert len({os.getpgid(pid) for pid in both}) == 2
    process.communicate()


def test_only_the_process_that_is_meant_gets_the_signal() -> None:
    process = subprocess.Popen(["cat"], stdin=subprocess.PIPE)
    assert not signal_if(lambda: False, process.pid, signal.SIGKILL)
    assert process.poll() is None
    assert signal_if(lambda: True, process.pid, signal.SIGKILL)
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert not signal_if(lambda: True, process.pid, signal.SIGKILL), "gone"


def test_a_reused_number_is_another_process() -> None:
    other = ProcessIdentity(this_host(), os.getpid(), "1")
    assert other.fate is Fate.GONE


def test_other_machines_and_other_boots() -> None:
    machine, boot, namespace = this_host().split("/", 2)
    elsewhere = ProcessIdentity(f"other/{boot}/{namespace}", 1, "1")
    assert elsewhere.fate is Fate.UNKNOWN
    before_the_reboot = ProcessIdentity(f"{machine}/00000000/{namespace}", 1, "1")
    assert before_the_reboot.fate is Fate.GONE
    other_namespace = ProcessIdentity(f"{machine}/{boot}/pid:[1]", 1, "1")
    assert other_namespace.fate is Fate.UNKNOWN


@pytest.mark.parametrize(
    ("host", "here", "fate"),
    [
        ("mac/1A2B3C4D/", "mac/1A2B3C4D/", None),
        ("mac/1A2B3C4D/", "mac/5E6F7A8B/", Fate.GONE),
        ("other/1A2B3C4D/", "mac/1A2B3C4D/", Fate.UNKNOWN),
        ("mac", "mac/1A2B3C4D/", None),
        ("other", "mac/1A2B3C4D/", Fate.UNKNOWN),
        ("mac", "mac", None),
    ],
)
def test_hosts_without_pid_namespaces(host: str, here: str, fate: Fate | None) -> None:
    """As macOS has them, and as versions wrote them that knew no boot there."""
    assert fate_by_host(host, here) is fate


def test_hosts_without_a_known_boot_are_not_of_the_same_boot(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(process_identity, "this_host", lambda: "mac")
    assert not ProcessIdentity("other", 1, "1").same_boot
    monkeypatch.setattr(process_identity, "this_host", lambda: "mac/1A2B3C4D/")
    assert ProcessIdentity("mac/1A2B3C4D/", 1, "1").same_boot
    assert not ProcessIdentity("other/5E6F7A8B/", 1, "1").same_boot


def test_the_boot_by_sysctl() -> None:
    macos = "0E8B6B6A-29C2-4B0F-8C5B-8A62C6B7DDE1\n"
    bsd = "{ sec = 1763490000, usec = 12 } Tue Nov 18 18:20:00 2026\n"
    assert parse_boot(macos, bsd) == "0E8B6B6A"
    assert parse_boot("", bsd) == "1763490000"
    assert parse_boot("", "sysctl: unknown oid") == ""


def test_what_is_not_an_identity() -> None:
    for text in ("", "a", "a|b|c", "x|1"):
        assert ProcessIdentity.parse(text) is None
