"""Single questions about this machine. None of them raises."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any

from tao_sdk.preflight.gpu_architecture import parse_compute_capabilities
from tao_sdk.preflight.result import PreflightResult

_Run = Callable[..., Any]
"""`subprocess.run`, or what behaves like it."""
_INSTALL_SECONDS = 600


def ensure_aws_cli(
    *,
    auto_install: bool = False,
    python_executable: str = sys.executable,
    which: Callable[[str], str | None] = shutil.which,
    run: _Run = subprocess.run,
) -> PreflightResult:
    """Whether `aws` is on PATH; installed by pip only if that is asked for.

    The SDK itself does not need it: it has an S3 client of its own.
    """
    path = which("aws")
    if path:
        return PreflightResult(True, f"aws is {path}", {"path": path})
    words = [python_executable, "-m", "pip", "install", "awscli"]
    command = " ".join(words)
    if not auto_install:
        return PreflightResult(
            False, f"aws is not on PATH; to have it: {command}", {"install_command": command}
        )
    done = _answer(run, words, _INSTALL_SECONDS)
    if isinstance(done, str) or done.returncode != 0:
        said = done if isinstance(done, str) else str(done.stderr or "").strip()
        return PreflightResult(
            False, f"awscli could not be installed: {said}", {"install_command": command}
        )
    path = which("aws")
    if not path:
        return PreflightResult(
            False,
            "awscli was installed, and aws is still not on PATH: add the folder of Python's "
            "scripts to PATH",
            {"install_command": command},
        )
    return PreflightResult(True, f"aws was installed as {path}", {"path": path})


def query_host_sms(*, run: _Run = subprocess.run, timeout: float = 10) -> PreflightResult:
    """The architectures of this machine's GPUs, as `details["sms"]`."""
    query = ["nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader"]
    done = _answer(run, query, timeout)
    if isinstance(done, str):
        return PreflightResult(False, f"nvidia-smi could not be asked: {done}")
    if done.returncode != 0:
        said = str(done.stderr or done.stdout or "").strip()
        return PreflightResult(False, f"nvidia-smi failed ({done.returncode}): {said}")
    sms = parse_compute_capabilities(str(done.stdout))
    if not sms:
        return PreflightResult(False, "nvidia-smi lists no GPU")
    return PreflightResult(True, f"GPUs: {', '.join(sms)}", {"sms": sms})


def check_nvidia_container_runtime(
    *, run: _Run = subprocess.run, timeout: float = 10
) -> PreflightResult:
    """Whether the Docker daemon of the docker command has the NVIDIA runtime."""
    done = _answer(run, ["docker", "info", "--format", "{{json .Runtimes}}"], timeout)
    if isinstance(done, str):
        return PreflightResult(False, f"docker could not be asked: {done}")
    runtimes = str(done.stdout or "").strip()
    if done.returncode != 0:
        said = str(done.stderr or runtimes).strip()
        return PreflightResult(False, f"docker info failed ({done.returncode}): {said}")
    if "nvidia" not in runtimes.lower():
        return PreflightResult(
            False,
            "the NVIDIA runtime is not registered with Docker: install the NVIDIA Container "
            "Toolkit, then `nvidia-ctk runtime configure --runtime=docker`",
            {"runtimes": runtimes},
        )
    return PreflightResult(True, "the NVIDIA runtime is registered", {"runtimes": runtimes})


def _answer(run: _Run, words: Sequence[str], timeout: float) -> Any:
    """What became of the program; a sentence when it did not run to its end."""
    try:
        return run(list(words), capture_output=True, text=True, timeout=timeout, check=False)
    except subprocess.TimeoutExpired:
        return f"{words[0]} did not answer within {timeout:g} s"
    except FileNotFoundError:
        return f"there is no program {words[0]} on PATH"
    except (OSError, subprocess.SubprocessError) as error:
        return str(error)
