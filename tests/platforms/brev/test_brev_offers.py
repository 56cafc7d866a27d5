"""Which type of instance is ordered."""

from __future__ import annotations

from typing import Any

import pytest

from tao_sdk.errors import CapacityError, UnsupportedError
from tao_sdk.platforms.brev.offers import choose
from tao_sdk.platforms.brev.options import BrevOptions
from tao_sdk.platforms.brev.parse import Offer

OFFERS = [
    Offer("g5.xlarge", "A10G", 1, 1.2, "aws", "us-east-1"),
    Offer("g6e.xlarge", "L40S", 1, 2.2, "aws", "us-east-1"),
    Offer("g6e.cheap", "L40S", 1, 1.9, "crusoe", "eu-north"),
    Offer("g6e.12xlarge", "L40S", 4, 8.9, "aws", "us-west-2"),
    Offer("dear", "NVIDIA L40S-48GB", 2, 5.0),
    Offer("unpriced", "A10G", 1, None),
    Offer("g5g.xlarge", "T4G", 1, 0.4, arch="arm64"),
]


def names(count: int = 1, offers: list[Offer] = OFFERS, **options: Any) -> list[str]:
    return [offer.type for offer in choose(offers, BrevOptions(**options), count)]


@pytest.mark.parametrize(
    ("gpu_type", "count", "chosen"),
    [
        ("L40S", 1, "g6e.cheap"),  # the cheapest
        ("l40s", 3, "g6e.12xlarge"),  # the fewest that suffice
        ("L40S", -1, "g6e.cheap"),
        ("l40s48", 2, "dear"),  # by a part of the name
        ("g6e.xlarge", 1, "g6e.xlarge"),  # by the type
        ("", 1, "g5.xlarge"),
        ("", 4, "g6e.12xlarge"),
        ("A10G", 1, "g5.xlarge"),  # one with a price before one without
        ("T4G", 1, "g5g.xlarge"),  # images for ARM only where they are asked for
        ("g5g.xlarge", 1, "g5g.xlarge"),
    ],
)
def test_the_first_choice(gpu_type: str, count: int, chosen: str) -> None:
    assert names(count, gpu_type=gpu_type)[0] == chosen


def test_what_is_tried_next() -> None:
    assert names(gpu_type="L40S") == ["g6e.cheap", "g6e.xlarge"], "as many GPUs, by price"
    assert names() == ["g5.xlarge", "g6e.cheap", "g6e.xlarge", "unpriced"]


def test_a_limit_of_the_price() -> None:
    assert names(max_price=1.9) == ["g5.xlarge", "g6e.cheap"], "none whose price is not known"
    with pytest.raises(CapacityError, match=r"max_price: .*for \$1\.00 an hour; .*g6e\.cheap \("):
        names(gpu_type="L40S", max_price=1.0)


def test_provider_and_region() -> None:
    assert names(gpu_type="L40S", provider="AWS") == ["g6e.xlarge"]
    assert names(gpu_type="L40S", region="eu") == ["g6e.cheap"]
    assert names(4, provider="aws", region="west") == ["g6e.12xlarge"]
    with pytest.raises(CapacityError, match=r"provider: no fitting offer in 'gcp'.*aws, crusoe"):
        names(gpu_type="L40S", provider="gcp")
    nowhere = [Offer("g5.xlarge", "A10G", 1, 1.2, "aws")]
    with pytest.raises(UnsupportedError, match="region: this brev program does not tell"):
        names(offers=nowhere, region="us")


def test_none_of_that_name() -> None:
    with pytest.raises(CapacityError, match=r"no 'H100'.*A10G, L40S.*T4G"):
        names(gpu_type="H100")


def test_not_so_many() -> None:
    with pytest.raises(CapacityError, match=r"8 x L40S asked for, .* more than 4"):
        names(8, gpu_type="L40S")


def test_nothing_at_all() -> None:
    with pytest.raises(CapacityError, match="nothing at all"):
        names(offers=[], gpu_type="L40S")
