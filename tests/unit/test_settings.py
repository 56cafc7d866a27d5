"""One table of environment variables, and nobody else who reads them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import tao_sdk
from tao_sdk import CredentialError, settings
from tao_sdk.errors import ValidationError

SOURCES = Path(tao_sdk.__file__).parent


def test_only_the_settings_module_reads_the_environment() -> None:
    """Except what runs elsewhere: the runner in a container, and lab support for tests."""
    reads = re.compile(r"os\.environ|os\.getenv|getenv\(")
    offenders = [
        str(path.relative_to(SOURCES))
        for path in SOURCES.rglob("*.py")
        if reads.search(path.read_text())
    ]
    assert sorted(offenders) == [
        "platforms/conformance/lab.py",
        "runner/download.py",
        "runner/entry.py",
        "settings.py",
    ]


def test_value_alias_default(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ACCESS_KEY", "AWS_ACCESS_KEY_ID"):
        monkeypatch.delenv(name, raising=False)
    assert settings.get("ACCESS_KEY") == ""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "from-alias")
    assert settings.get("ACCESS_KEY") == "from-alias"
    monkeypatch.setenv("ACCESS_KEY", "  own  ")
    assert settings.get("ACCESS_KEY") == "own"
    monkeypatch.delenv("MASTER_PORT", raising=False)
    assert settings.get("MASTER_PORT") == "29500"


@pytest.mark.parametrize("text", ["-1", "soon", "nan", "inf"])
def test_seconds_must_be_seconds(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("TAO_GRACE_SECONDS", text)
    with pytest.raises(ValidationError, match=f"TAO_GRACE_SECONDS='{text}'"):
        settings.get_seconds("TAO_GRACE_SECONDS")


@pytest.mark.seed("000.3", "000.23")
def test_missing_credentials_are_named_with_where_to_get_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("NGC_KEY", raising=False)
    monkeypatch.setenv("HF_TOKEN", "canary-hf-value")
    with pytest.raises(CredentialError) as caught:
        settings.require("NGC_KEY", "HF_TOKEN", purpose="pulling nvcr.io/x")
    message = str(caught.value)
    assert message.startswith("NGC_KEY is not set; needed for pulling nvcr.io/x")
    assert "https://org.ngc.nvidia.com" in message
    assert "canary" not in message
    settings.require("HF_TOKEN", purpose="anything")


@pytest.mark.seed("000.4")
def test_the_variables_of_the_seeds_are_in_the_table() -> None:
    names = {"S3_BUCKET_NAME", "ACCESS_KEY", "SECRET_KEY", "S3_ENDPOINT_URL", "CLOUD_REGION"}
    assert names | {"NGC_KEY", "HF_TOKEN"} <= set(settings.SETTINGS)
    secret = {name for name, setting in settings.SETTINGS.items() if setting.secret}
    assert secret == {
        "ACCESS_KEY",
        "SECRET_KEY",
        "AWS_SESSION_TOKEN",
        "NGC_KEY",
        "HF_TOKEN",
        "BREV_API_TOKEN",
        "LEPTON_AUTH_TOKEN",
    }


@pytest.mark.seed("000.4")
def test_what_a_job_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    for setting in settings.SETTINGS.values():
        for name in (setting.name, *setting.aliases):
            monkeypatch.delenv(name, raising=False)
    assert settings.injected_credentials() == {}
    monkeypatch.setenv("ACCESS_KEY", "a")
    monkeypatch.setenv("S3_BUCKET_NAME", "b")
    monkeypatch.setenv("CLOUD_REGION", "c")
    assert settings.injected_credentials() == {
        "AWS_ACCESS_KEY_ID": "a",
        "S3_BUCKET_NAME": "b",
        "AWS_DEFAULT_REGION": "c",
    }
