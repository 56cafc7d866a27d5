"""The pure parts of the command line: how times and ids are written and read."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest

from tao_sdk.cli import humanise
from tao_sdk.cli.jobs import FoundJob
from tao_sdk.cli.launch_options import option_value
from tao_sdk.cli.output import Output
from tao_sdk.cli.session import Place
from tao_sdk.cli.table import show_table
from tao_sdk.errors import ValidationError
from tao_sdk.platforms.request import Option, check_positive, check_text
from tao_sdk.visible_text import one_line, visible

NOW = datetime(2030, 1, 2, 3, 4, 5, tzinfo=timezone.utc)


@pytest.mark.parametrize(
    ("seconds", "long", "rough", "ago"),
    [
        (0.04, "0.0 s", "0 s", "just now"),
        (9.96, "10.0 s", "9 s", "9 s ago"),
        (59.9, "59 s", "59 s", "59 s ago"),
        (60, "1 min", "1 min", "1 min ago"),
        (185, "3 min 5 s", "3 min", "3 min ago"),
        (3600, "1 h", "1 h", "1 h ago"),
        (7805, "2 h 10 min", "2 h", "2 h ago"),
        (349_200, "4 d 1 h", "4 d", "4 d ago"),
    ],
)
def test_spans(seconds: float, long: str, rough: str, ago: str) -> None:
    assert humanise.span(seconds) == long
    assert humanise.rough_span(seconds) == rough
    assert humanise.ago(seconds) == ago


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90), ("1.5s", 1.5), ("5m", 300), ("5 min", 300), ("2H", 7200), ("30d", 2_592_000)],
)
def test_spans_are_read(text: str, seconds: float) -> None:
    assert humanise.parse_span(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize("text", ["", "soon", "-5s", "5 parsecs", "s", "1h30m", "nan"])
def test_other_words_are_no_span(text: str) -> None:
    assert humanise.parse_span(text) is None


def test_a_unit_can_be_required() -> None:
    assert humanise.parse_span("30", unit_required=True) is None
    assert humanise.parse_span("30d", unit_required=True) == timedelta(days=30)


def test_stored_times_in_every_style() -> None:
    for text in ("2030-01-02T03:04:05Z", "2030-01-02T04:04:05+01:00", "2030-01-02T03:04:05"):
        assert humanise.moment(text) == NOW
    assert humanise.moment("") is None
    assert humanise.moment("yesterday") is None


def test_a_clock_that_went_backwards_makes_no_negative_span() -> None:
    later = (NOW + timedelta(hours=1)).isoformat()
    assert humanise.seconds_between(later, "", NOW) == 0.0
    assert humanise.seconds_between("", later, NOW) is None


def test_a_job_of_the_future_has_no_negative_age(capsys: pytest.CaptureFixture[str]) -> None:
    row = {
        **dict.fromkeys(
            (
                "network_arch",
                "action",
                "started_at",
                "ended_at",
                "phase",
                "poll_error",
                "updated_at",
            )
        ),
        "job_id": "j",
        "backend_type": "local",
        "status": "Pending",
        "request": "{}",
        "created_at": "2999-01-01T00:00:00Z",
        "message": "",
    }
    show_table(Output(), [FoundJob(Place(None), row)])
    assert capsys.readouterr().out.splitlines()[1].split("\t")[3] == "0 s"


def test_only_generated_ids_are_shortened() -> None:
    assert humanise.short_id("3f2a9c1e-78d9-4288-9e52-268dcd174c4a") == "3f2a9c1e"
    assert humanise.short_id("experiment-12") == "experiment-12"


def test_a_line_is_one_line() -> None:
    assert one_line("a\n\tb\x1b[2Jc\u2028d\x00") == r"a b\x1b[2Jc d\x00"
    assert visible("a\n\tb", lines=False) == r"a\n\tb"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b]0;title\x07", r"\x1b]0;title\x07"),
        ("over\rwritten\x08", r"over\rwritten\x08"),
        ("\x9b2J\x85", r"\x9b2J\x85"),
        ("user\u202etxt.exe\u2066\u200b", r"user\u202etxt.exe\u2066\u200b"),
        ("\udcff\U000e0041", r"\udcff\U000e0041"),
        ("lines\nand\ttabs, é 日本 🚀 \xa0", "lines\nand\ttabs, é 日本 🚀 \xa0"),
    ],
)
def test_what_acts_on_a_terminal_is_escaped(text: str, shown: str) -> None:
    assert visible(text) == shown


@pytest.mark.parametrize(
    ("status", "code", "mirrored"),
    [
        ("Complete", 0, 0),
        ("Error", 3, 3),
        ("Error", 255, 255),
        ("Error", None, 1),
        ("Error", 0, 1),
        ("Error", 256, 1),
        ("Canceled", 0, 143),
        ("Canceled", 9, 143),
    ],
)
def test_the_exit_code_mirrors_the_job(status: str, code: int | None, mirrored: int) -> None:
    assert FoundJob(Place(None), {"status": status, "exit_code": code}).exit_code == mirrored


def test_options_are_text_unless_the_option_wants_more() -> None:
    assert option_value(Option("name", "", check_text), "123") == "123"
    assert option_value(Option("count", "", check_positive), "123") == 123
    assert option_value(Option("sizes", "", _check_list), "[1, 2]") == [1, 2]
    assert option_value(Option("count", "", check_positive), "many") == "many"
    assert option_value(None, "7") == "7"


def _check_list(where: str, value: object) -> object:
    if not isinstance(value, list):
        raise ValidationError(f"{where}: expected a list")
    return value
