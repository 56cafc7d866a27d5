"""Checks of keywords that several platforms have."""

from __future__ import annotations

import math
from typing import Any

import pytest

from tao_sdk.errors import ValidationError
from tao_sdk.models import Mount
from tao_sdk.platforms.common.mounts import check_each_mount, results_mount
from tao_sdk.platforms.common.option_checks import check_amount, check_switch


@pytest.mark.parametrize("value", [1, 0, "yes", None])
def test_a_switch_is_a_bool(value: Any) -> None:
    assert check_switch("keep", True) is True
    with pytest.raises(ValidationError, match="keep: expected True or False"):
        check_switch("keep", value)


@pytest.mark.parametrize("value", [True, 0, -1, math.inf, math.nan, "2", None])
def test_an_amount_is_a_finite_number_above_0(value: Any) -> None:
    assert check_amount()("cpus", 2) == 2.0
    with pytest.raises(ValidationError, match=r"cpus: .* is not a number of processors above 0"):
        check_amount(" of processors")("cpus", value)


def test_an_amount_may_have_a_limit() -> None:
    with pytest.raises(ValidationError):
        check_amount(below=10)("hours", 10)


def test_a_target_is_mounted_once() -> None:
    mounts = [Mount("/a", "/data"), "/b:/data"]
    with pytest.raises(ValidationError, match="/data is the target of more than one"):
        check_each_mount("mounts", mounts, lambda where, one: Mount.parse(one, where), "/a:/b")


def test_results_outlive_the_container_only_where_they_can_be_written() -> None:
    kept = Mount("/kept", "/results")
    assert results_mount([Mount("/a", "/b"), kept]) is kept
    assert results_mount([Mount("/kept", "/results", read_only=True)]) is None
