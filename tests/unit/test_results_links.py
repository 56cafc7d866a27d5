"""Where links of a tree lead that is known by its listing only."""

from __future__ import annotations

import pytest

from tao_sdk.results import Entry, Kind
from tao_sdk.results.links import follow, link_entry

ROOTS = ("/real/results/job", "/alias/results/job")
LINKS = {
    "latest": "train/model",
    "train/up": "../status",
    "folder": "train",
    "through": "folder/up",
    "absolute": "/real/results/job/train",
    "by-alias": "/alias/results/job/train/model",
    "around": "../../results/job/status",
    "itself": "/alias/results/job",
    "out": "/etc/hosts",
    "above": "..",
    "sibling": "../job2/x",
    "chain": "out",
    "behind": "above/x",
    "loop": "pool",
    "pool": "loop",
}


@pytest.mark.parametrize(
    ("path", "leads_to"),
    [
        ("latest", "train/model"),
        ("train/up", "status"),
        ("folder", "train"),
        ("through", "status"),
        ("absolute", "train"),
        ("by-alias", "train/model"),
        ("around", "status"),
        ("itself", "."),
        ("out", None),
        ("above", None),
        ("sibling", None),
        ("chain", None),
        ("behind", None),
        ("loop", "loop"),
        ("train/plain", "train/plain"),
    ],
)
def test_where_a_link_leads(path: str, leads_to: str | None) -> None:
    assert follow(path, LINKS, ROOTS) == leads_to


@pytest.mark.parametrize(
    ("path", "target", "leads_to", "kept"),
    [
        ("latest", "train/model", "train/model", "train/model"),
        ("train/up", "../status", "status", "../status"),
        ("train/deep/x", "/real/results/job/status", "status", "../../status"),
        ("train/round", "../../job/status", "status", "../status"),
        ("train/all", "/real/results/job", ".", ".."),
        ("odd", "train//./model", "train/model", "train/model"),
    ],
)
def test_the_copy_of_a_link_stays_in_the_copy(
    path: str, target: str, leads_to: str, kept: str
) -> None:
    assert link_entry(path, target, leads_to) == Entry(path, Kind.LINK, target=kept)


def test_a_link_out_is_no_thing_to_copy() -> None:
    entry = link_entry("out", "/etc/hosts", None)
    assert (entry.kind, entry.target) == (Kind.UNFIT, "")
    assert "/etc/hosts" in entry.problem
