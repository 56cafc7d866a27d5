"""From what an instance says to states: the whole table."""

from __future__ import annotations

import pytest

from tao_sdk.failures import explain
from tao_sdk.platforms.brev.status import End, judge, parse_answer, with_log
from tao_sdk.platforms.remote.framing import Section

ENDED = (
    "code {code}\nstarted 2026-01-01T00:00:01.123456789Z\nended 2026-01-01T00:00:05Z\n"
    "oom {oom}\ncanceled {canceled}\nnow 2026-01-01T00:00:06Z\nwhy {why}\n"
)


def ended(code: str = "0", oom: str = "false", canceled: str = "no", why: str = "") -> Section:
    text = ENDED.format(code=code, oom=oom, canceled=canceled, why=why)
    return Section("ended", "j", text.encode())


@pytest.mark.parametrize(
    ("said", "state", "message"),
    [
        (ended("0"), "Complete", "completed"),
        (ended("3"), "Error", "exit code 3"),
        (ended("137", oom="true"), "Error", "memory ran out"),
        (ended("143", canceled="yes"), "Canceled", "cancelled"),
        (ended("", canceled="yes", why="cancelled before it began"), "Canceled", "cancelled"),
        (ended("", why="its image could not be pulled: denied"), "Error", "could not be pulled"),
        (Section("open", "j running", b"starting"), "Running", "running on box"),
        (Section("open", "j none", b"pulling x"), "Pending", "pulling x"),
        (Section("open", "j created", b"starting"), "Pending", "starting"),
        (Section("open", "j none", b""), "Pending", "about to begin"),
        (Section("open", "j exited", b"starting"), "Running", "ending"),
        (Section("open", "j paused", b"starting"), "Paused", ""),
    ],
)
def test_table(said: Section, state: str, message: str) -> None:
    seen = judge("j", parse_answer([said, Section("others", "0", b"")]), "box")
    assert seen.state is not None
    assert seen.state.value == state
    assert message in seen.message


def test_unknown_is_missing_and_silence_is_not() -> None:
    assert judge("j", parse_answer([Section("unknown", "j", b"")]), "box").state is None
    silent = [Section("silent", "no daemon", b""), Section("open", "j none", b"starting")]
    seen = judge("j", parse_answer(silent), "box")
    assert seen.state is None
    assert "no daemon" in seen.unreachable


def test_a_lost_supervisor_is_due() -> None:
    said = [Section("open", "j running", b"starting"), Section("unattended", "j", b"")]
    assert [judge("j", parse_answer(said[:count]), "box").due for count in (1, 2)] == [False, True]


def test_an_end_is_known_though_docker_is_silent() -> None:
    said = [Section("silent", "no daemon", b""), ended("4")]
    assert judge("j", parse_answer(said), "box").exit_code == 4


def test_times() -> None:
    end = End.parse(ended("0").text)
    assert end.started_at == "2026-01-01T00:00:01.123456+00:00"
    assert end.started_at < end.ended_at
    never = End.parse(
        "code \nstarted 0001-01-01T00:00:00Z\nended \nnow 2026-01-01T00:00:06Z\nwhy x"
    )
    assert (never.started_at, never.ended_at) == ("", "2026-01-01T00:00:06+00:00")


@pytest.mark.seed("000.23")
@pytest.mark.parametrize(
    ("why", "err_class"),
    [
        ("its image could not be pulled: pull access denied for nvcr.io/nvidia/x", "ERR_"),
        ("not enough GPUs: 8 asked for, and the instance has 2", "ERR_CAPACITY"),
        ("the instance has no GPUs (nvidia-smi names none)", "ERR_CAPACITY"),
    ],
)
def test_what_never_ran_is_explained(why: str, err_class: str) -> None:
    """Cause and fix of launches that fail on the instance."""
    found = explain(End.parse(f"code \nnow 2026-01-01T00:00:06Z\nwhy {why}").evidence)
    assert found["err_class"].startswith(err_class), found
    assert found["suggestion"]


def test_secrets_of_the_environment_are_not_quoted() -> None:
    end = with_log(
        End(3, why="token=s3cret-value"),
        "it said s3cret-value\nand more",
        "export TOKEN='s3cret-value'\nexport SHORT=abc\ntao_boot=whole\n",
    )
    assert "s3cret-value" not in end.log_tail + end.why
    assert "and more" in end.log_tail
