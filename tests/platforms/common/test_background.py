"""Tasks in the background."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

from tao_sdk.platforms.common.background import BackgroundQueue


def test_tasks_are_done_in_order_by_a_thread_that_ends() -> None:
    done: list[int] = []
    tasks = BackgroundQueue("test-order", done.append)
    for number in range(50):
        tasks.add(number)
    tasks.finish()
    assert done == list(range(50))
    assert "test-order" not in [thread.name for thread in threading.enumerate()]
    tasks.add(50)
    tasks.finish()
    assert done[-1] == 50


def test_what_has_not_begun_can_be_dropped() -> None:
    done: list[int] = []
    begun, go_on = threading.Event(), threading.Event()

    def do(number: int) -> None:
        begun.set()
        assert go_on.wait(30)
        done.append(number)

    tasks = BackgroundQueue("test-drop", do)
    for number in range(3):
        tasks.add(number)
    assert begun.wait(30)
    tasks.drop()
    go_on.set()
    tasks.finish()
    assert done == [0]


def test_a_task_may_finish_the_queue() -> None:
    """The thread may be the one that closes a client whose last user is gone."""
    done = []

    def do(number: int) -> None:
        tasks.finish()
        done.append(number)

    tasks: BackgroundQueue[int] = BackgroundQueue("test-self", do)
    tasks.add(1)
    tasks.finish()
    assert done == [1]


def test_a_forked_child_has_a_thread_of_its_own() -> None:
    begun, go_on = threading.Event(), threading.Event()
    read, write = os.pipe()

    def do(text: str) -> None:
        if text == "parent":
            begun.set()
            assert go_on.wait(30)
        else:
            os.write(write, text.encode())

    tasks = BackgroundQueue("test-fork", do)
    tasks.add("parent")
    assert begun.wait(30)
    child = os.fork()
    if child == 0:
        tasks.add("child")
        tasks.finish()
        os._exit(0)
    os.waitpid(child, 0)
    os.close(write)
    go_on.set()
    tasks.finish()
    with open(read, "rb") as told:
        assert told.read() == b"child"


def test_a_program_that_ends_waits_for_its_tasks() -> None:
    program = (
        "import sys, time; from tao_sdk.platforms.common.background import BackgroundQueue\n"
        "def do(text):\n    time.sleep(0.2); sys.stdout.write(text)\n"
        "BackgroundQueue('test-exit', do).add('done')"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    assert ended.stdout == "done"
