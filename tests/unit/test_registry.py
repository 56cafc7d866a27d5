"""Platforms by name, and jobs by address."""

from __future__ import annotations

from pathlib import Path

import pytest

import tao_sdk
from tao_sdk import platforms
from tao_sdk.errors import JobNotFoundError, PlatformError, ValidationError
from tao_sdk.platforms import registry


def test_by_name() -> None:
    assert platforms.get("local") is tao_sdk.LocalSDK
    assert platforms.get("virtualenv") is tao_sdk.VirtualEnvSDK
    assert {"docker", "local", "virtualenv"} <= set(platforms.names())


@pytest.mark.seed("004.7")
@pytest.mark.parametrize("name", ["docker", "local-docker", "remote-docker"])
def test_docker_by_any_of_its_names(name: str) -> None:
    assert platforms.get(name).platform == registry.canonical(name) == "docker"


def test_a_name_nobody_knows() -> None:
    with pytest.raises(ValidationError, match="did you mean 'local'"):
        platforms.get("locl")


@pytest.mark.seed("000.25")
def test_a_missing_package_is_named_with_its_install_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(registry, "_registered", lambda: {"odd": "no_such_package.sdk:OddSDK"})
    with pytest.raises(PlatformError, match=r"no_such_package.*pip install 'tao-sdk\[odd\]'"):
        platforms.get("odd")


def test_platforms_of_other_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An installed package registers a platform by an entry point."""
    (tmp_path / "other_platform.py").write_text(
        "from tao_sdk.platforms.local import LocalSDK\n"
        "class OtherSDK(LocalSDK):\n    platform = 'other'\n"
    )
    info = tmp_path / "other_platform-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: other-platform\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[tao_sdk.platforms]\nother = other_platform:OtherSDK\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert "other" in platforms.names()
    assert platforms.get("other").platform == "other"


def test_an_address_of_a_job_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(JobNotFoundError, match="no job abc of local"):
        tao_sdk.attach(f"tao://local/abc?state={tmp_path}/s.json")
