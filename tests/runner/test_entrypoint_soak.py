"""Whole runs with something going wrong at a random moment, and what is true afterwards.

A run fetches its inputs, computes their digest and delivers it with a copy of them. Between it and
the store stands a proxy that does harm; or the runner is killed or stopped, and started again as
the next attempt. Every run must end with the right bytes at both ends, or with an error that says
so; and what is there under its final name is whole, however the run ended.
"""

from __future__ import annotations

import random
import shlex
import signal
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from entrypoints import Container, Ended, container, entrypoint
from stores import Bucket

from lab.faults import SLOW_DOWN, Fault, FaultProxy
from lab.s3 import KINDS
from lab.transfers import noise
from tao_sdk.runner import download

SAMPLE, ALL = 50, 500
EACH = 5
"""Seeds in one test."""
QUICK = {"TAO_TRANSFER_ATTEMPTS": "4", "TAO_STALL_SECONDS": "0.5", "TAO_DELIVERY_SECONDS": "5"}
SIZES = (0, 1, 1000, 70_000, 400_000)
LARGE = download.LARGE + 1
MANY = 200
"""Files that come by two processes."""
ATTEMPTS = 4


@dataclass
class Trouble:
    """What goes wrong, from which request on, for how many of them."""

    kind: str
    dice: random.Random
    first: int
    times: int
    process: subprocess.Popen[str] | None = None
    happened: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self, number: int, method: str, target: str) -> Fault | None:
        with self._lock:
            if number < self.first or self.times <= 0:
                return None
            self.times -= 1
            self.happened = True
            return self._fault()

    def _fault(self) -> Fault | None:
        at = self.dice.choice((0, 150, 1200, self.dice.randrange(500_000)))
        if self.kind in ("kill", "stop"):
            self.times = 0
            if self.process is not None:
                number = signal.SIGKILL if self.kind == "kill" else signal.SIGTERM
                self.process.send_signal(number)
            return Fault(delay=0.05)
        return {
            "latency": Fault(delay=self.dice.random() / 4),
            "cut": Fault(cut_after=at),
            "reset": Fault(reset_after=at),
            "stall": Fault(stall_after=at),
            "500": Fault(status=500),
            "slow down": Fault(status=503, body=SLOW_DOWN),
            "flipped bit": Fault(flip_after=max(at, 1200)),
        }[self.kind]


TROUBLES = ("latency", "cut", "reset", "stall", "500", "slow down", "flipped bit", "kill", "stop")


@dataclass
class Run:
    """One seed's run: what it fetches, what goes wrong, what it left."""

    seed: int
    folder: Path
    bucket: Bucket

    def __post_init__(self) -> None:
        dice = self.dice = random.Random(f"soak {self.seed}")
        sizes = [dice.choice(SIZES) for _ in range(dice.randint(1, 6))]
        if dice.random() < 0.04:
            sizes.append(LARGE)
        elif dice.random() < 0.1:
            sizes += [dice.choice(SIZES[:3]) for _ in range(MANY)]
        self.files = {f"f{n}/{n}.bin": noise(size, self.seed + n) for n, size in enumerate(sizes)}
        self.job = f"soak-{self.seed}"
        self.persists = dice.random() < 0.5
        """Whether the next attempt finds the same disk."""
        self.trouble = Trouble(
            kind=dice.choice(TROUBLES),
            dice=dice,
            first=dice.randrange(2 * len(sizes) + 4),
            times=dice.choice((1, 1, 2, 3, 10_000)),
        )

    def end(self) -> tuple[Ended, int]:
        """How the last attempt ended, and its number."""
        self.bucket.put({f"in/{self.job}/{path}": data for path, data in self.files.items()})
        with FaultProxy(self.bucket.url, self.trouble) as proxy:
            for attempt in range(1, ATTEMPTS + 1):
                with self._container(attempt) as box:
                    ended = self._attempt(box, proxy.url, attempt)
                    self._check_what_is_there(box, ended)
                # A platform starts again what was killed or preempted, nothing else.
                if ended.code not in (-signal.SIGKILL, 143):
                    break
        return ended, attempt

    def _container(self, attempt: int) -> Iterator[Container]:
        name = "disk" if self.persists else f"disk-{attempt}"
        return container(self.folder / name, {"TAO_JOB_ID": self.job})

    def _attempt(self, box: Container, url: str, attempt: int) -> Ended:
        data, out = shlex.quote(f"{box.folder}/data"), shlex.quote(f"{box.folder}/out")
        command = entrypoint(
            command=f"rm -rf {out}; mkdir {out}; cp -r {data} {out}/copy; "
            f"cd {data} && find . -type f | LC_ALL=C sort | xargs sha256sum > {out}/digest",
            inputs={f"{box.folder}/data": f"s3://bucket/in/{self.job}"},
            outputs=[f"{box.folder}/out"],
        )
        # A name, of which the runner does not know that it is this machine's: as from elsewhere.
        url = url.replace("127.0.0.1", "localhost")
        env = {**self.bucket.results, **QUICK, "S3_ENDPOINT_URL": url, "TAO_ATTEMPT": str(attempt)}
        self.trouble.process = box.start(command, env)
        return box.end(self.trouble.process)

    def _check_what_is_there(self, box: Container, ended: Ended) -> None:
        """Nothing half has a final name, at either end; everything is there if it is said so."""
        for path, data in self.files.items():
            local = box.folder / "data" / path
            if ended.code == 0 or local.exists():
                assert local.read_bytes() == data, (self.seed, ended.err)
        delivered = self.bucket.below(f"results/{self.job}/out")
        for path, data in self.files.items():
            if ended.code == 0 or f"copy/{path}" in delivered:
                assert delivered[f"copy/{path}"] == data, (self.seed, ended.err)
        if ended.code == 0:
            digests = (box.folder / "out" / "digest").read_bytes()
            assert delivered["digest"] == digests, (self.seed, ended.err)
            assert len(delivered) == len(self.files) + 1
        elif ended.code != -signal.SIGKILL:
            assert ended.error or ended.code == 143, (self.seed, ended.err)


def soak(seeds: range, folder: Path) -> Counter[str]:
    """Run the seeds; how many of each trouble ended how."""
    counts: Counter[str] = Counter()
    for seed in seeds:
        bucket = Bucket(KINDS[seed % 4 == 3], empty=False)
        run = Run(seed, folder / str(seed), bucket)
        ended, attempt = run.end()
        assert ended.code in (0, 1, 74), (seed, ended.code, ended.err)
        how = "right bytes" if ended.code == 0 else f"error, exit code {ended.code}"
        what = run.trouble.kind if run.trouble.happened else "nothing happened"
        counts[f"{what}: {how}" + (f" in attempt {attempt}" if attempt > 1 else "")] += 1
    print("\n" + "\n".join(f"{count:4} {what}" for what, count in sorted(counts.items())))
    return counts


@pytest.mark.parametrize("first", range(0, SAMPLE, EACH))
def test_no_run_ends_with_wrong_bytes(tmp_path: Path, first: int) -> None:
    """Lesson A2: a sample; `make soak` runs all."""
    assert soak(range(first, first + EACH), tmp_path).total() == EACH


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("first", range(0, ALL, ALL // 10))
def test_no_run_of_many_ends_with_wrong_bytes(tmp_path: Path, first: int) -> None:
    """Lesson A2: the full count."""
    assert soak(range(first, first + ALL // 10), tmp_path).total() == ALL // 10
