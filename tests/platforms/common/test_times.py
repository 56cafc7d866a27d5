"""Times as platforms write them."""

from __future__ import annotations

import pytest

from tao_sdk.platforms.common.times import container_time, parse_time, time_text


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("2025-10-09T08:53:20Z", "2025-10-09T08:53:20+00:00"),
        ("2025-10-09T08:53:20", "2025-10-09T08:53:20+00:00"),
        ("2025-10-09T08:53:20.5Z", "2025-10-09T08:53:20.500000+00:00"),
        ("2025-10-09T08:53:20.123456789+02:00", "2025-10-09T08:53:20.123456+02:00"),
    ],
)
def test_every_form_has_its_zone(text: str, meant: str) -> None:
    assert parse_time(text).isoformat() == meant


def test_what_is_no_time_is_refused() -> None:
    with pytest.raises(ValueError, match="Invalid isoformat"):
        parse_time("2 weeks ago")


def test_seconds_become_text() -> None:
    assert time_text(1760000000) == "2025-10-09T08:53:20+00:00"


def test_container_times() -> None:
    assert container_time("0001-01-01T00:00:00Z") == container_time("") == container_time("?") == ""
    assert container_time("2025-10-09T08:53:20.123456789Z") == "2025-10-09T08:53:20.123456+00:00"
