"""The preflight commands of the seed documents, as they stand there, on real platforms."""

from __future__ import annotations

from pathlib import Path

import pytest
from launches import CANARIES, isolate, write_data
from seed_shell import BANK, Shell

from lab.docker import Engine
from lab.docker.images import SMOKE
from lab.docker.ssh_server import SshServer
from lab.slurm import SlurmLab

LAUNCH = f"""\
{BANK}/scripts/check_tao_launch_preflight.py \\
  --skill-bank {BANK} \\
  --platform %s \\
  --path train_annotation=%s \\
  --path train_media=%s"""
FIELDS = """ \\
  --json-required-field train_annotation=video_fps"""
LOCAL_DOCKER = f"""\
{BANK}/scripts/check_tao_launch_preflight.py \\
--platform local-docker \\
--container-image "%s" \\
--path train_annotation=%s \\
--path train_media=%s
"""
REMOTE_DOCKER = f"""\
{BANK}/scripts/check_tao_launch_preflight.py \\
--platform remote-docker \\
--docker-host %s \\
--container-image "%s" \\
--gpu-smoke-image %s \\
--path train_annotation=%s \\
--path train_media=%s
"""


@pytest.fixture(params=["sh", "bash"])
def shell(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shell:
    isolate(monkeypatch, tmp_path)
    shell = Shell(tmp_path, request.param, exported=request.param == "bash")
    write_data(tmp_path / "data")
    shell.environment["HF_TOKEN"] = CANARIES["HF_TOKEN"]
    shell.environment["TAO_GPU_LEASE_DIR"] = str(tmp_path / "leases")
    return shell


def told(said: str) -> str:
    """The last line, which is the verdict."""
    assert CANARIES["HF_TOKEN"] not in said
    return said.splitlines()[-1]


@pytest.mark.seed("001.9", "001.10")
def test_slurm(shell: Shell, shared_slurm: SlurmLab) -> None:
    shell.environment |= shared_slurm.environment()
    data = shared_slurm.shared / "data"
    write_data(data)
    command = LAUNCH % ("slurm", data / "annotations.json", data / "media")
    assert told(shell.run(command)).startswith("Preflight passed: ")
    assert "fields:train_annotation" in shell.run(command + FIELDS)
    missing = LAUNCH % ("slurm", data / "annotations.json", data / "nothing")
    said = shell.run(missing, code=2, stdout=True)
    assert told(said).startswith("Preflight failed: path:train_media (1 of ")


@pytest.mark.seed("001.9", "004.5")
def test_local_docker(shell: Shell, engine: Engine, tmp_path: Path) -> None:
    shell.environment["DOCKER_HOST"] = engine.url
    data = tmp_path / "data"
    command = LOCAL_DOCKER % (SMOKE, data / "annotations.json", data / "media")
    said = shell.run(command)
    assert told(said).startswith("Preflight passed: ")
    assert "passed   docker.smoke: a container of " in said


@pytest.mark.seed("001.9", "004.5")
def test_remote_docker(shell: Shell, ssh_to_engine: SshServer, tmp_path: Path) -> None:
    shell.environment["PATH"] = f"{ssh_to_engine.folder / 'bin'}:/usr/bin:/bin"
    data = tmp_path / "data"
    asked = (ssh_to_engine.url(), SMOKE, SMOKE, data / "annotations.json", data / "media")
    said = shell.run(REMOTE_DOCKER % asked)
    assert told(said).startswith("Preflight passed: ")
    assert "passed   path:train_media: " in said
