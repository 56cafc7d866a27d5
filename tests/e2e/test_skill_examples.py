"""What the agent skills of the packaged bank show is run, as the documentation's examples are.

The page about SLURM runs on a cluster of the lab, the one about Docker on its engine.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from test_docs_examples import (
    ROOT,
    Places,
    end_all_jobs,
    examples_of,
    places_with_trainer,
    run_page,
)
from test_docs_examples import home as home

sys.path.append(str(ROOT / "tests" / "conformance"))

from common_lab import isolate
from docker_lab import DockerLab
from docs.snippets import snippets_of

from lab.docker import Engine, shared_engine
from lab.docker.images import BUSYBOX
from lab.slurm import shared_cluster, slurm_lab

BANK = ROOT / "src" / "tao_sdk" / "skills" / "bank"
PAGES = sorted((BANK / "skills").rglob("*.md"))
IMAGE = "nvcr.io/nvidia/tao/tao-toolkit:7.0.1-pyt"
each_page = pytest.mark.parametrize(
    "page", PAGES, ids=lambda page: page.relative_to(BANK).as_posix()
)


@pytest.fixture
def engine(page: Path) -> Iterator[Engine | None]:
    """Docker for its page; before `home`, since the lab keeps its things in the real one."""
    if page.parent.name != "tao-run-on-local-docker":
        yield None
        return
    with shared_engine() as engine:
        yield engine


@pytest.fixture
def places(
    page: Path,
    engine: Engine | None,
    home: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Places]:
    """Where the examples of a page run."""
    with contextlib.ExitStack() as stack:
        names = {"/home/you": str(home)}
        if page.parent.name == "tao-run-on-slurm":
            cluster = stack.enter_context(shared_cluster())
            lab = stack.enter_context(slurm_lab(cluster))
            for name, value in lab.environment().items():
                monkeypatch.setenv(name, value)
            names["/lustre/fsw/users/you"] = str(lab.shared)
        elif page.parent.name == "tao-launch-workflow":
            names = {**places_with_trainer(home, monkeypatch)}
        elif engine is not None:
            docker = DockerLab(tmp_path, engine)
            isolate(monkeypatch, docker)
            stack.callback(docker.end_all)
            names[IMAGE] = BUSYBOX
        yield names
        end_all_jobs(tmp_path)


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if examples_of(page)],
    ids=lambda page: page.relative_to(BANK).as_posix(),
)
def test_examples(page: Path, engine: Engine | None, home: Path, places: Places) -> None:
    run_page(page, places)


@each_page
def test_every_snippet_is_run_or_says_why_not(page: Path) -> None:
    snippets = snippets_of(page.read_text(encoding="utf-8"))
    assert [f"line {s.line}: {s.language}" for s in snippets if not s.is_accounted_for] == []


@each_page
def test_front_matter(page: Path) -> None:
    """Agents find a skill by its name and description, so both must be right."""
    _, matter, _ = page.read_text(encoding="utf-8").split("---\n", 2)
    fields = yaml.safe_load(matter)
    assert fields["name"] == page.parent.name
    assert 40 < len(fields["description"]) <= 1024


def test_every_platform_that_can_be_used_has_a_skill() -> None:
    """A platform of the SDK without one would be invisible to agents."""
    from tao_sdk.platforms import registry

    skills = {page.parent.name.removeprefix("tao-run-on-") for page in PAGES}
    names = {"docker": "local-docker", "virtualenv": "local"}
    assert {names.get(name, name) for name in registry.names()} <= skills
