"""Rented instances that were ordered for jobs of the store, and are unused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tao_sdk.cli.checks.findings import Finding, note, problem
from tao_sdk.cli.checks.state import usable_store
from tao_sdk.cli.humanise import short_id
from tao_sdk.cli.session import Place
from tao_sdk.job_states import TERMINAL_STATES
from tao_sdk.job_store import JobStore
from tao_sdk.job_store.paths import state_paths
from tao_sdk.platforms.brev.ledger import DELETED, KEPT, ORDERED, UNWANTED, Entry, ledger_of

# How long Brev may take to delete one before it is worth a look.
_DELETED_HOURS = 1.0


def check_instances(place: Place) -> Iterator[Finding]:
    entries = ledger_of(Path(state_paths(place.state_file).database)).entries()
    with usable_store(place) as store:
        findings = [found for entry in entries if (found := _finding(entry, store))]
    yield from findings
    if not findings:
        used = f"{len(entries)} of ours, each used by a job" if entries else "none of ours"
        yield Finding("instances", used)


def _finding(entry: Entry, store: JobStore | None) -> Finding | None:
    facts = f"of job {short_id(entry.job_id)}, {entry.age_hours:.1f} hours old, {entry.cost}"
    delete = f"brev delete {entry.name}"
    if entry.state == UNWANTED:
        why = f"it is not needed ({entry.why}), and it could not be deleted yet"
        return problem(entry.name, f"{facts}; {why}", delete)
    if entry.state == KEPT:
        return note(entry.name, f"{facts}; kept: {entry.why}", f"if you are done with it: {delete}")
    if entry.state == ORDERED and not entry.overdue:
        return Finding(entry.name, f"{facts}; it is being made")
    if entry.state == DELETED:
        if entry.state_hours < _DELETED_HOURS:
            return None
        return note(
            entry.name, f"{facts}; Brev has been asked to delete it", f"make sure: {delete}"
        )
    row = store.get_job(entry.job_id) if store is not None else None
    if row is not None and row["status"] not in TERMINAL_STATES:
        return None
    why = "its job has ended" if row is not None else "no job of this store uses it"
    return problem(entry.name, f"{facts}; {why}", delete)
