"""Platforms by name, and jobs by address."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import tao_sdk
from tao_sdk import platforms
from tao_sdk.errors import JobNotFoundError, PlatformError, UnsupportedError, ValidationError
from tao_sdk.job_store import JobStore
from tao_sdk.platforms import registry
from tao_sdk.platforms.docker import DockerSDK


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


ATTACH = """
import sys, tao_sdk
job = tao_sdk.attach(sys.argv[1])
print(job.wait(timeout=60).status, job.id, job.uri == sys.argv[1])
"""


def attached(uri: str, **environment: str) -> list[str]:
    """What another process finds at an address, with none of our settings."""
    inherited = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
    found = subprocess.run(
        [sys.executable, "-c", ATTACH, uri],
        capture_output=True,
        text=True,
        check=True,
        env={**inherited, **environment},
    )
    return found.stdout.split()


@pytest.mark.parametrize("way", ["store", "odd.json", "state_file", "setting", "default"])
def test_an_address_leads_to_its_store_from_any_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    home = str(tmp_path / "home")
    monkeypatch.setenv("HOME", home)
    monkeypatch.delenv("TAO_SDK_STATE_DIR", raising=False)
    monkeypatch.chdir(tmp_path)
    keywords: dict[str, Any] = {"work_dir": tmp_path / "work"}
    if way == "store":
        keywords["store"] = JobStore("odd name.sqlite")
    elif way == "odd.json":
        keywords["store"] = JobStore(way)
    elif way == "state_file":
        keywords["state_file"] = "runs/a.json"
    elif way == "setting":
        monkeypatch.setenv("TAO_SDK_STATE_DIR", str(tmp_path / "state"))
    with tao_sdk.LocalSDK(**keywords) as sdk:
        job = sdk.create_job(command="true", gpu_count=0)
        monkeypatch.chdir("/")
        uri, job_id = job.uri, job.id
        assert ("?state=" in uri) == (way != "default")
        assert attached(uri, HOME=home) == ["Complete", job_id, "True"]


def test_attaching_creates_nothing(tmp_path: Path) -> None:
    path = tmp_path / "odd.json"
    with JobStore(path) as store:
        store.create_job("a", "", "", "", backend_type="local")
        before = sorted(tmp_path.iterdir())
        assert tao_sdk.attach(f"tao://local/a?state={path}").id == "a"
        with pytest.raises(JobNotFoundError, match=rf"no job b of local in {path}$"):
            tao_sdk.attach(f"tao://local/b?state={path}")
        assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize("kind", ["text", "database"])
def test_an_address_beside_an_unrelated_file_creates_no_store(tmp_path: Path, kind: str) -> None:
    """`run.db` might be a database of NVIDIA's SDK, whose jobs `run.json` takes over."""
    unrelated = tmp_path / "run.db"
    if kind == "text":
        unrelated.write_text("not a database")
    else:
        with contextlib.closing(sqlite3.connect(unrelated)) as connection:
            connection.execute("CREATE TABLE jobs (title TEXT)")
    uri = f"tao://local/a?state={tmp_path / 'run.json'}"
    with pytest.raises(JobNotFoundError, match="no job a of local"):
        tao_sdk.attach(uri)
    ended = subprocess.run(
        [sys.executable, "-m", "tao_sdk.cli", "status", uri], capture_output=True, check=False
    )
    assert b"no job a of local" in ended.stderr
    assert list(tmp_path.iterdir()) == [unrelated]


@pytest.mark.parametrize("theirs", ["another", "none", "the same"])
def test_an_address_of_the_default_store_leads_there_whatever_the_setting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, theirs: str
) -> None:
    home, folder = tmp_path / "home", tmp_path / "state"
    if theirs == "another":
        JobStore(folder / "jobs.db").create_job("other", "", "", "", backend_type="local")
    elif theirs == "the same":
        folder = home / ".tao_sdk"
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("TAO_SDK_STATE_DIR", raising=False)
    with tao_sdk.LocalSDK(work_dir=tmp_path / "work") as sdk:
        job = sdk.create_job(command="true", gpu_count=0)
        assert job.uri == f"tao://local/{job.id}"
        found = attached(job.uri, HOME=str(home), TAO_SDK_STATE_DIR=str(folder))
        assert found == ["Complete", job.id, "True"]
    assert (folder / "jobs.db").exists() == (theirs != "none")


def test_an_address_without_a_store_means_the_default_one_of_this_process_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("TAO_SDK_STATE_DIR", str(tmp_path / "state"))
    for folder, action in ((".tao_sdk", "theirs"), ("state", "ours")):
        JobStore(tmp_path / folder / "jobs.db").create_job(
            "twin", "", action, "", backend_type="local"
        )
    assert tao_sdk.attach("tao://local/twin").action == "ours"
    missing = "no job other of local in .*/state/jobs.db or .*/.tao_sdk/jobs.db"
    with pytest.raises(JobNotFoundError, match=missing):
        tao_sdk.attach("tao://local/other")


def test_a_job_of_a_store_in_memory_has_no_address(tmp_path: Path) -> None:
    with tao_sdk.LocalSDK(store=JobStore(":memory:"), work_dir=tmp_path) as sdk:
        job = sdk.create_job(command="true", gpu_count=0)
        with pytest.raises(UnsupportedError, match="in memory has no address: give state_file="):
            _ = job.uri
        job.wait(timeout=60)


@pytest.mark.parametrize("name", ["odd.sqlite", ":memory:"])
def test_the_monitor_of_a_given_store_leaves_the_default_folder_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("TAO_SDK_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    seen = threading.Event()
    with tao_sdk.LocalSDK(0.05, store=JobStore(name), work_dir=tmp_path / "work") as sdk:
        hooks = {"on_complete": lambda _: seen.set()}
        sdk.create_job(command="true", gpu_count=0, hooks=hooks)
        assert seen.wait(60)
        assert Path(sdk.store.session_file).is_file()
    assert not (tmp_path / "state").exists()
    assert not (tmp_path / ":memory:").exists()


def test_a_docker_sdk_with_a_store_in_memory_makes_no_folder_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TAO_SDK_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    with DockerSDK(store=JobStore(":memory:"), docker_host="unix:///nowhere") as sdk:
        assert sdk.backend is not None
        assert sdk.list_jobs() == []
    assert list(tmp_path.iterdir()) == []


def test_an_address_of_a_job_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(JobNotFoundError, match="no job abc of local"):
        tao_sdk.attach(f"tao://local/abc?state={tmp_path}/s.json")
    assert list(tmp_path.iterdir()) == []
