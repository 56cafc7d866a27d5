"""Which type of instance is ordered."""

from __future__ import annotations

import pytest

from tao_sdk.errors import CapacityError
from tao_sdk.platforms.brev.offers import choose
from tao_sdk.platforms.brev.parse import Offer

OFFERS = [
    Offer("g5.xlarge", "A10G", 1, 1.2),
    Offer("g6e.xlarge", "L40S", 1, 2.2),
    Offer("g6e.cheap", "L40S", 1, 1.9),
    Offer("g6e.12xlarge", "L40S", 4, 8.9),
    Offer("dear", "NVIDIA L40S-48GB", 2, 5.0),
    Offer("unpriced", "A10G", 1, None),
    Offer("g5g.xlarge", "T4G", 1, 0.4, arch="arm64"),
]


class TestChoice:
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
    def test_choice(self, gpu_type: str, count: int, chosen: str) -> None:
        assert choose(OFFERS, gpu_type, count).type == chosen

    def test_none_of_that_name(self) -> None:
        with pytest.raises(CapacityError, match=r"no 'H100'.*A10G, L40S.*T4G"):
            choose(OFFERS, "H100", 1)

    def test_not_so_many(self) -> None:
        with pytest.raises(CapacityError, match=r"8 x L40S asked for, .* more than 4"):
            choose(OFFERS, "L40S", 8)

    def test_nothing_at_all(self) -> None:
        with pytest.raises(CapacityError, match="nothing at all"):
            choose([], "L40S", 1)
