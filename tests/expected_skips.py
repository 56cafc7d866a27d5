"""Why a test may be skipped although every lab is demanded (`TAO_LAB_REQUIRE`)."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

EXPECTED: Mapping[str, str] = {
    r"full count: run by `make soak`": "a seeded sample of the same suite runs",
    r"lab '[\w-]+' is not available": "the lab is not demanded; a demanded one fails instead",
    r"this platform has single-node jobs only": "the platform refuses more nodes, which is tested",
    r"this platform starts every job at once": "the platform that the documentation writes",
    r"this lab has no image with Python": "the platform that the documentation writes",
    r"this lab cannot show its platform's state": "the platform that the documentation writes",
    r"there is no Python [\d.]+ here": "one interpreter more than the machine has",
    r"could not import 'torch'": "it takes gigabytes; the trainer's NumPy backend is tested",
    r"the TOML reader came with Python 3\.11": "Python 3.10 has no tomllib",
}
"""What the reason of a skip begins with -> why that is accepted."""


def why_expected(reason: str) -> str | None:
    """Why a test may be skipped for this reason; None if it may not."""
    return next((why for begins, why in EXPECTED.items() if re.match(begins, reason)), None)


def refusal(longrepr: object) -> str | None:
    """Why a report with this `longrepr` must fail the run; None if it need not.

    Without demanded labs any skip is accepted.
    """
    if not os.environ.get("TAO_LAB_REQUIRE") or not isinstance(longrepr, tuple):
        return None
    file, line, words = longrepr
    reason = reason_of(words)
    if why_expected(reason) is not None:
        return None
    return (
        f"{file}:{line}: skipped although every lab is demanded: {reason}\n"
        "Make it run, or add the reason to tests/expected_skips.py."
    )


def reason_of(words: str) -> str:
    """The reason alone, of what pytest says of a skip."""
    return words.removeprefix("Skipped: ")
