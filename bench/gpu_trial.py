"""The local platform on a machine with an NVIDIA GPU: detection, leases, a real CUDA failure.

Run `python -m bench.gpu_trial` there (torch is needed for the failure). Prints what was seen; it
asserts what must hold, so a green run is a proof and its output can be quoted.
"""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from tao_sdk import LocalSDK
from tao_sdk.platforms.gpus.discovery import discover

CUDA_OOM = """
import torch
print("allocating on", torch.cuda.get_device_name(0), flush=True)
blocks = []
while True:
    blocks.append(torch.empty(8 * 2**30, dtype=torch.uint8, device="cuda"))
"""
DEVICE_ASSERT = """
import torch
table = torch.nn.Embedding(4, 2).cuda()
print(table(torch.tensor([9], device="cuda")).sum().item())
"""


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        trial = Trial(Path(folder))
        trial.detection()
        trial.lease()
        trial.failure("CUDA out of memory", CUDA_OOM)
        trial.failure("device-side assert", DEVICE_ASSERT)
        trial.latency()


class Trial:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._sdk = LocalSDK(state_file=folder / "state.json", work_dir=folder / "work")

    def detection(self) -> None:
        self._gpus = discover()
        assert self._gpus, "this machine has no NVIDIA GPU"
        for gpu in self._gpus:
            print(f"found GPU {gpu.index}: {gpu.model} ({gpu.key})")

    def lease(self) -> None:
        """All GPUs taken: the next job waits, says so, and gets one afterwards."""
        everything = self._sdk.create_job(command="sleep 600", gpu_count=-1)
        self._until(everything.id, "Running")
        waiting = self._sdk.create_job(
            command='echo "$CUDA_VISIBLE_DEVICES"; nvidia-smi -L', gpu_count=1
        )
        self._until(waiting.id, "Pending", "position 1")
        print(f"while all GPUs are leased: {waiting.refresh().message}")
        everything.cancel()
        assert waiting.wait(timeout=60).status == "Complete"
        print(f"afterwards it ran on GPU {self._sdk.get_job_logs(waiting.id).splitlines()[0]}")

    def failure(self, what: str, program: str) -> None:
        script = self._folder / "program.py"
        script.write_text(program)
        job = self._sdk.create_job(command=["python3", str(script)], gpu_count=1)
        status = job.wait(timeout=300)
        assert status.status == "Error", status
        analysis: dict[str, Any] = job.explain() or {}
        print(f"{what}: {json.dumps(analysis, indent=2)}")

    def latency(self) -> None:
        taken = []
        for _ in range(20):
            began = time.perf_counter()
            job = self._sdk.create_job(command="true", gpu_count=1)
            taken.append(time.perf_counter() - began)
            job.wait(timeout=60)
        print(f"submission with one GPU, median of 20: {statistics.median(taken) * 1000:.0f} ms")

    def _until(self, job_id: str, state: str, message: str = "") -> None:
        deadline = time.monotonic() + 60
        while True:
            status = self._sdk.get_job_status(job_id)
            if status.status == state and message in status.message:
                return
            assert time.monotonic() < deadline, status
            time.sleep(0.05)


if __name__ == "__main__":
    main()
