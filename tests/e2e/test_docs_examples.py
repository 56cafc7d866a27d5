"""What the documentation shows is run, and does what it says.

The blocks of a page run in their order, in one folder and with one job store: `python` blocks in
one namespace, `console` blocks (lines that begin with `$`) in a shell at a terminal. The lines
below a command, and an `output` block below a `python` block, are compared with what comes out;
ids, times and process numbers may differ, and a line `...` stands for any lines. The pages about
SLURM, Kubernetes and Brev run on clusters and clouds of the lab, the one about Lepton in a played
workspace. That no block is overlooked is
tested in tests/unit/test_docs.py.
"""

from __future__ import annotations

import contextlib
import io
import os
import pty
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import tao_sdk
from lab.brev import brev_cloud
from lab.docker import shared_engine
from lab.docker.images import BUSYBOX
from lab.kubernetes import ADMIN, WITH_NODES, KubernetesLab
from lab.kubernetes import shared_cluster as shared_kubernetes
from lab.kubernetes.images import TRAINER
from lab.lepton import LeptonServer
from lab.packages import cache
from lab.slurm import shared_cluster, slurm_lab
from tao_sdk import settings
from tao_sdk.job_store import JobStore
from tao_sdk.platforms import registry
from tao_sdk.platforms.conformance import *  # noqa: F403 - the suite, for the example platform

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))  # for `docs`

from docs import generate
from docs.examples.shell_lab import ShellLab
from docs.snippets import Snippet, snippets_of

SOURCE = Path(tao_sdk.__file__).parents[1]
SLURM_PAGE = ROOT / "docs" / "how-to" / "slurm.md"
# The programs of the lab are built once, and lie in the cache of whoever runs the tests.
CACHE = cache().parent
BREV_PAGE = ROOT / "docs" / "how-to" / "brev.md"
LAUNCH_PAGE = ROOT / "docs" / "how-to" / "launch.md"
KUBERNETES_PAGE = ROOT / "docs" / "how-to" / "kubernetes.md"
LEPTON_PAGE = ROOT / "docs" / "how-to" / "lepton.md"
IMAGE = "nvcr.io/nvidia/tao/tao-toolkit:6.26.3-pyt"
Places = Mapping[str, str]
"""Folders of this machine, by the names that the pages have for them."""
_END = "--- end of this command ---"


def examples_of(page: Path) -> list[Snippet]:
    """The blocks of a page that are run or compared."""
    snippets = snippets_of(page.read_text(encoding="utf-8"))
    return [snippet for snippet in snippets if snippet.is_run or snippet.is_compared]


PAGES = [page for page in generate.pages() if examples_of(page)]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A user without any settings, in a folder of their own."""
    before = set(os.environ)
    for setting in settings.SETTINGS.values():
        for name in (setting.name, *setting.aliases):
            monkeypatch.delenv(name, raising=False)
    home, tools = tmp_path / "home", tmp_path / "tools"
    (home / "project").mkdir(parents=True)
    tools.mkdir()
    (tools / "tao-sdk").write_text(f'#!/bin/sh\nexec {sys.executable} -m tao_sdk.cli "$@"\n')
    (tools / "tao-sdk").chmod(0o755)
    for name, value in {
        "HOME": str(home),
        "TAO_SDK_STATE_DIR": str(home / ".tao_sdk"),
        "TAO_GPU_LEASE_DIR": str(tmp_path / "leases"),
        "PATH": f"{tools}:{os.environ['PATH']}",
        "PYTHONPATH": str(SOURCE),
        "TERM": "xterm",
        "COLUMNS": "100",
        "NO_COLOR": "1",
        "TZ": "UTC",
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(home / "project")
    yield home
    end_all_jobs(tmp_path)
    for name in set(os.environ) - before:
        monkeypatch.delenv(name)


@pytest.fixture
def places(
    page: Path, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Places]:
    """Where the examples of a page run."""
    if page == KUBERNETES_PAGE:
        monkeypatch.setenv("XDG_CACHE_HOME", str(CACHE))
        with shared_kubernetes(WITH_NODES) as cluster, KubernetesLab(cluster).namespace() as space:
            monkeypatch.setenv("KUBECONFIG", str(space.kubeconfig(ADMIN)))
            space.add_volume("results")
            yield {"/home/you": str(home), IMAGE: TRAINER}
            end_all_jobs(tmp_path)
        return
    if page == BREV_PAGE:
        monkeypatch.setenv("XDG_CACHE_HOME", str(CACHE))
        with shared_engine() as engine, brev_cloud(engine) as cloud:
            cloud.make("my-box")
            monkeypatch.setenv("PATH", f"{cloud.folder / 'bin'}:{os.environ['PATH']}")
            yield {"/home/you": str(home), "/home/ubuntu": str(cloud.folder), IMAGE: BUSYBOX}
            end_all_jobs(tmp_path)
        return
    if page == LEPTON_PAGE:
        with LeptonServer(tmp_path / "lepton") as server:
            for name, value in server.variables().items():
                monkeypatch.setenv(name, value)
            yield {"/home/you": str(home)}
            end_all_jobs(tmp_path)
        return
    if page == LAUNCH_PAGE:
        yield places_with_trainer(home, monkeypatch)
        return
    if page != SLURM_PAGE:
        yield {"/home/you": str(home)}
        return
    with shared_cluster() as cluster, slurm_lab(cluster) as lab:
        image = cluster.layout.registry / f"{IMAGE}.sqsh"
        image.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError):  # another process runs this test
            image.hardlink_to(lab.images["trainer"])
        for name, value in lab.environment().items():
            monkeypatch.setenv(name, value)
        yield {"/home/you": str(home), "/lustre/fsw/users/you": str(lab.shared)}
        end_all_jobs(tmp_path)


def places_with_trainer(home: Path, monkeypatch: pytest.MonkeyPatch) -> Places:
    """The demo trainer can run: `python3` has what it needs, and the checkout is where it is."""
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    return {"/home/you/tao-sdk": str(ROOT), "/home/you": str(home)}


def end_all_jobs(folder: Path) -> None:
    """Stop what is left running, in the default store and in those beside state files."""
    for state_file in (None, *folder.rglob("*.tao.db")):
        for row in JobStore.for_state_file(state_file).active_jobs():
            if row["phase"] == "submitted":
                registry.get(row["backend_type"])(state_file=state_file).cancel_job(row["job_id"])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_page(page: Path, home: Path, places: Places) -> None:
    run_page(page, places)


def run_page(page: Path, places: Places) -> None:
    """Run the examples of a page in their order, and compare what they print."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    printed = ""
    for shown in examples_of(page):
        block = replace(shown, text=in_reality(shown.text, places))
        place = f"{page.relative_to(ROOT)}:{block.line}"
        if block.language == "python":
            printed = run_python(block, page, namespace)
        elif block.language == "output":
            assert_alike(block.text, printed, places, place)
        else:
            commands = commands_of(block.text)
            outputs = run_at_terminal([command for command, _ in commands])
            for (command, expected), output in zip(commands, outputs, strict=True):
                assert_alike(expected, output, places, f"{place}: {command}")


def in_reality(text: str, places: Places) -> str:
    for name, real in places.items():
        text = text.replace(name, real)
    return text


def run_python(block: Snippet, page: Path, namespace: dict[str, Any]) -> str:
    # Empty lines before it, so that a traceback names the line of the page.
    code = compile("\n" * (block.line - 1) + block.text, str(page), "exec")
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(code, namespace)  # noqa: S102 - that is the test
    return out.getvalue()


def commands_of(text: str) -> list[tuple[str, str]]:
    """Each command with the lines below it."""
    assert text.startswith("$ "), text
    parts = re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]
    return [(command, expected) for command, _, expected in (p.partition("\n") for p in parts)]


def run_at_terminal(commands: list[str]) -> list[str]:
    """Run commands in one shell whose output is a terminal; what each of them printed."""
    # After the mark the exit code is put back, so that the next command may show it.
    script = "\n".join(f'{command}\nc=$?; echo "{_END}"; (exit $c)' for command in commands)
    master, slave = pty.openpty()
    shell = subprocess.Popen(
        ["/bin/sh", "-c", script], stdin=subprocess.DEVNULL, stdout=slave, stderr=slave
    )
    os.close(slave)
    said = b""
    while True:
        try:
            data = os.read(master, 65536)
        except OSError:  # how Linux says that nobody writes any more
            break
        if not data:
            break
        said += data
    os.close(master)
    shell.wait()
    return said.decode().replace("\r\n", "\n").split(f"{_END}\n")[:-1]


_SPAN = r"\d+(?:\.\d+)? (?:s|min|h|d)\b(?: \d+ (?:s|min|h)\b)?"
_MASKS = (
    # What the terminal showed for a moment: a cursor that hides, lines that were erased again.
    (r"\x1b\[\?25[lh]", ""),
    (r"[^\n]*\n\r\x1b\[1A\x1b\[2K", ""),
    (r"[^\n]*\r\x1b\[2K", ""),
    (r"\x1b\[[0-9;]*m", ""),
    (r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", "<id>"),
    (r"\b(?=\w*\d)[0-9a-f]{8}\b", "<short id>"),
    (r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:\.\d+)?(?:\+00:00|Z| UTC)?", "<time>"),
    (r"\bjust now\b|\b\d+ (?:s|min|h|d) ago\b", "<ago>"),
    # A job that was stopped before it started took no time at all.
    (rf" after {_SPAN}", ""),
    (rf"\b{_SPAN}", "<span>"),
    (r"\b(process|supervisor|Queued as Slurm job) [\d_]+", r"\1 <number>"),
    (r"[ \t]+", " "),
)


def masked(text: str, places: Places) -> list[str]:
    """The lines of a text without what differs from run to run."""
    for name, real in places.items():
        text = text.replace(real, name)
    for pattern, mask in _MASKS:
        text = re.sub(pattern, mask, text)
    return [line.strip() for line in text.strip().splitlines()]


def assert_alike(expected: str, output: str, places: Places, place: str) -> None:
    wanted, found = masked(expected, places), masked(output, places)
    # "…" stands for the rest of a cell that the terminal was too narrow for.
    lines = [
        "(?:.*\n)*" if line == "..." else f"{re.escape(line).replace('…', '.*')}\n"
        for line in wanted
    ]
    if re.fullmatch("".join(lines), "".join(f"{line}\n" for line in found)) is None:
        assert found == wanted, place


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ShellLab]:
    """docs/how-to/write-a-platform.md: the example platform passes the suite."""
    for name in ("ACCESS_KEY", "SECRET_KEY", "HF_TOKEN", "NGC_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TAO_SDK_STATE_DIR", str(tmp_path / "state"))
    # What the entry point of an installed package would do.
    target = "docs.examples.shell_platform:ShellSDK"
    monkeypatch.setattr(registry, "_registered", lambda: {"shell": target})
    lab = ShellLab(tmp_path)
    yield lab
    end_all_jobs(tmp_path)
