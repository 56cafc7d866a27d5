"""Which process is that, and is it still the same one?"""

from __future__ import annotations

import os
import signal
import subprocess
import sys

from tao_sdk.process_identity import (
    Fate,
    ProcessIdentity,
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


def test_what_is_not_an_identity() -> None:
    for text in ("", "a", "a|b|c", "x|1"):
        assert ProcessIdentity.parse(text) is None
