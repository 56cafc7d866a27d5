"""Credentials that the client hands to jobs."""

from __future__ import annotations

import pytest

from tao_sdk.platforms.common.credentials import job_credentials


def test_what_the_job_sets_itself_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf-of-the-client")
    monkeypatch.setenv("ACCESS_KEY", "key-of-the-client")
    given = job_credentials({"HF_TOKEN": "its own"})
    assert "HF_TOKEN" not in given
    assert given["AWS_ACCESS_KEY_ID"] == "key-of-the-client"
