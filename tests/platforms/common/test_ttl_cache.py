"""Answers that are good for a while."""

from __future__ import annotations

import math
import time

import pytest

from tao_sdk.platforms.common.ttl_cache import TtlCache


def test_it_asks_again_only_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    asked: list[float] = []

    def ask() -> int:
        asked.append(now)
        return len(asked)

    cache: TtlCache[int] = TtlCache(10)
    assert [cache.get("nodes", ask), cache.get("nodes", ask)] == [1, 1]
    assert cache.get("pods", ask) == 2
    now = 110.0
    assert cache.get("nodes", ask) == 1
    now = 110.1
    assert not cache.has("nodes")
    assert cache.get("nodes", ask) == 3


def test_a_failed_question_is_not_remembered() -> None:
    cache: TtlCache[int] = TtlCache(math.inf)
    with pytest.raises(ZeroDivisionError):
        cache.get("nodes", lambda: 1 // 0)
    assert cache.get("nodes", lambda: 7) == 7


def test_answers_can_be_put_and_forgotten() -> None:
    cache: TtlCache[None] = TtlCache(math.inf)
    cache.put("nodes", None)
    assert cache.has("nodes")
    assert cache.get("nodes", lambda: pytest.fail("it is known")) is None
    cache.forget("nodes")
    cache.forget("nodes")
    assert not cache.has("nodes")
