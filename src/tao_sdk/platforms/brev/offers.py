"""Which type of instance is taken for a job."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tao_sdk.errors import CapacityError, UnsupportedError
from tao_sdk.platforms.brev.client import BrevClient
from tao_sdk.platforms.brev.options import BrevOptions
from tao_sdk.platforms.brev.parse import Offer

FOR_A_CLOUD = ("cloud_cred_id", "workspace_group_id")
"""Options that not every version of the program can pass on."""


_ARM = ("arm", "aarch")


def best_offer(cli: BrevClient, options: BrevOptions, gpu_count: int) -> Offer:
    """What would be ordered for a job; Brev is asked."""
    for name in FOR_A_CLOUD:
        flag = name.replace("_", "-")
        if getattr(options, name) and flag not in cli.facts().create_flags:
            raise UnsupportedError(
                f"{name}: this brev program has no `create --{flag}`; choose that in Brev's "
                "console, and give the instance's name as instance_id="
            )
    gpu_type = options.gpu_type
    return choose(cli.offers(gpus=bool(gpu_count or gpu_type)), gpu_type, gpu_count)


def choose(offers: Sequence[Offer], gpu_type: str, gpu_count: int) -> Offer:
    """The cheapest one with these GPUs: as many as asked for, or the fewest more than that.

    `gpu_type` is the name of a GPU (L40S), or of a type of instance (g5.xlarge). A count of -1 is
    any number of them, 0 is none needed. One with an ARM processor only where there is no other.
    """
    fitting = _of_that_name(offers, gpu_type) if gpu_type else list(offers)
    # The cheapest of all is often one for which hardly any image is made.
    fitting = [offer for offer in fitting if not offer.arch.startswith(_ARM)] or fitting
    if not fitting:
        raise CapacityError(f"gpu_type: Brev offers no {gpu_type!r}; {_named(offers)}")
    if gpu_count > 0:
        enough = [offer for offer in fitting if offer.gpus >= gpu_count]
        if not enough:
            most = max(offer.gpus for offer in fitting)
            what = gpu_type or "GPU"
            raise CapacityError(
                f"gpu_count: {gpu_count} x {what} asked for, and no instance has more than {most}"
            )
        fewest = min(offer.gpus for offer in enough)
        fitting = [offer for offer in enough if offer.gpus == fewest]
    elif gpu_count < 0:
        fitting = [offer for offer in fitting if offer.gpus] or fitting
    return min(fitting, key=lambda offer: (offer.price is None, offer.price or 0.0))


def _of_that_name(offers: Sequence[Offer], asked: str) -> list[Offer]:
    """By type of instance; by GPU; by a part of the GPU's name: the first of these that fits."""
    word = _plain(asked)
    for fits in (
        lambda offer: offer.type == asked,
        lambda offer: _plain(offer.gpu) == word,
        lambda offer: bool(offer.gpu) and word in _plain(offer.gpu),
    ):
        found = [offer for offer in offers if fits(offer)]
        if found:
            return found
    return []


def _plain(name: str) -> str:
    """`NVIDIA L40-S` and `l40s` are the same GPU."""
    return re.sub(r"nvidia|[^a-z0-9]", "", name.lower())


def _named(offers: Sequence[Offer]) -> str:
    names = sorted({offer.gpu for offer in offers if offer.gpu})
    if not names:
        return "it offers nothing at all at present"
    more = f" and {len(names) - 12} more" if len(names) > 12 else ""
    return f"there are: {', '.join(names[:12])}{more}"
