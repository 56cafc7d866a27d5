"""`brev set` chooses another organisation, whose list has none of our instances."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, cast

import pytest

from tao_sdk.platforms.backend import JobIdentity, JobRef
from tao_sdk.platforms.brev.backend import BrevBackend
from tao_sdk.platforms.brev.ledger import KEPT, UNWANTED, Entry
from tao_sdk.platforms.brev.parse import parse_organization
from tao_sdk.platforms.whereabouts import Whereabouts

HOME, OTHER = "org-home", "org-other"


class Program:
    """The `brev` program with an empty organisation active."""

    def __init__(self, organization: str) -> None:
        self._organization = organization

    def organization(self) -> str:
        return self._organization

    def instances(self) -> list[Any]:
        return []


def backend_in(organization: str, folder: Path) -> BrevBackend:
    backend = BrevBackend(folder, lambda _: None)
    backend.instances._cli = cast("Any", Program(organization))
    return backend


@pytest.mark.parametrize("state", [KEPT, UNWANTED])
@pytest.mark.parametrize(("active", "is_kept"), [(HOME, False), (OTHER, True), ("", False)])
def test_its_instances_are_not_forgotten(
    tmp_path: Path, state: str, active: str, is_kept: bool
) -> None:
    backend = backend_in(active, tmp_path)
    ledger = backend.instances.ledger
    entry = Entry("tao-1", "1", "a", 1.0, time.time(), state=state, seen=True, organization=HOME)
    ledger.order(entry)
    backend.tend(())
    assert bool(ledger.entries()) == is_kept


def test_its_jobs_have_not_vanished(tmp_path: Path) -> None:
    native = {"instance": "tao-1", "ephemeral": True, "results": "", "organization": HOME}
    job = JobRef(JobIdentity("1", "token"), native, "")
    backend = backend_in(OTHER, tmp_path)
    seen = Whereabouts(backend).check([job], backend.observe([job]))
    assert "another organisation (org-home)" in seen["1"].unreachable
    backend = backend_in(HOME, tmp_path)
    assert Whereabouts(backend).check([job], backend.observe([job]))["1"].is_absence
    older = job._replace(native={**native, "organization": ""})
    assert Whereabouts(backend_in(OTHER, tmp_path)).elsewhere([older]) == {}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('[{"id": "a", "is_active": false}, {"id": "b", "is_active": true}]', "b"),
        ('[{"id": "a"}]', ""),
        ("null", ""),
    ],
)
def test_the_active_one(text: str, found: str) -> None:
    assert parse_organization(text) == found
