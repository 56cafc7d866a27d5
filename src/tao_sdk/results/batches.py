"""Many files at once, but not too many."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tao_sdk.results.sources import Entry


def batches(entries: Iterable[Entry], *, files: int, nbytes: int) -> Iterator[list[Entry]]:
    """The entries in their order, in groups of at most so much; a larger file is alone."""
    batch: list[Entry] = []
    size = 0
    for entry in entries:
        if batch and (len(batch) == files or size + entry.size > nbytes):
            yield batch
            batch, size = [], 0
        batch.append(entry)
        size += entry.size
    if batch:
        yield batch
