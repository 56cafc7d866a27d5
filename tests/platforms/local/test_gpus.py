"""Which GPUs a job may have: discovery and choice."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tao_sdk.errors import BackendUnreachableError, ValidationError
from tao_sdk.platforms.gpus.discovery import (
    discover,
    parse_nvidia_smi,
    pretend,
    restrict,
)

SMI = """0, GPU-5a1f0c2e-0000-1111-2222-333344445555, 40000, NVIDIA H200
1, GPU-6b2f0c2e-0000-1111-2222-333344445555, 3, NVIDIA H200, odd name
"""


@pytest.fixture(autouse=True)
def no_gpu_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TAO_LOCAL_GPUS", "CUDA_VISIBLE_DEVICES"):
        monkeypatch.delenv(name, raising=False)


def fake_nvidia_smi(folder: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    program = folder / "nvidia-smi"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


def test_nvidia_smi_is_read() -> None:
    gpus = parse_nvidia_smi(SMI)
    assert [gpu.index for gpu in gpus] == ["0", "1"]
    assert gpus[0].key == "GPU-5a1f0c2e-0000-1111-2222-333344445555"
    assert gpus[1].model == "NVIDIA H200, odd name"
    assert [gpu.used_mib for gpu in gpus] == [40000, 3]
    assert parse_nvidia_smi("No devices were found\n") == []


def test_discovery_asks_nvidia_smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_nvidia_smi(tmp_path, f"printf '{SMI}'", monkeypatch)
    assert len(discover()) == 2


def test_a_broken_driver_is_said_not_hidden(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_nvidia_smi(tmp_path, "echo 'Driver/library version mismatch' >&2; exit 18", monkeypatch)
    with pytest.raises(BackendUnreachableError, match="version mismatch"):
        discover()


def test_a_program_that_cannot_be_run_is_no_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_nvidia_smi(tmp_path, "", monkeypatch)
    (tmp_path / "nvidia-smi").write_bytes(b"\x7fELF, not really")
    with pytest.raises(BackendUnreachableError, match="nvidia-smi cannot be run"):
        discover()


def test_without_a_driver_there_are_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert discover() == []


def test_pretended_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAO_LOCAL_GPUS", "3")
    assert [gpu.index for gpu in discover()] == ["0", "1", "2"]
    monkeypatch.setenv("TAO_LOCAL_GPUS", "4, 7")
    assert [gpu.index for gpu in discover()] == ["4", "7"]
    with pytest.raises(ValidationError, match="TAO_LOCAL_GPUS"):
        pretend("1,,2")


def test_the_callers_own_restriction_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAO_LOCAL_GPUS", "4")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,1")
    assert [gpu.index for gpu in discover()] == ["3", "1"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert discover() == []
    gpus = parse_nvidia_smi(SMI)
    assert restrict(gpus, gpus[1].key) == [gpus[1]]
