"""Which types of instances can be ordered for a job, in the order in which they are tried."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tao_sdk.errors import CapacityError, UnsupportedError
from tao_sdk.platforms.brev.client import BrevClient
from tao_sdk.platforms.brev.options import BrevOptions
from tao_sdk.platforms.brev.parse import Offer, cost

CREATE_FLAGS = ("cloud_cred_id", "workspace_group_id")
"""Options that become flags of `brev create`, in the versions that have these flags."""
OFFER_OPTIONS = ("gpu_type", "max_price", "provider", "region", *CREATE_FLAGS)
"""Options that decide which instance is ordered."""
MAX_OFFERS = 3
"""So many types are tried, at most, until Brev has one."""

_ARM = ("arm", "aarch")


def fitting_offers(cli: BrevClient, options: BrevOptions, gpu_count: int) -> tuple[Offer, ...]:
    """What would be ordered for a job, and what instead if Brev has none left; Brev is asked."""
    for name in CREATE_FLAGS:
        flag = name.replace("_", "-")
        if getattr(options, name) and flag not in cli.facts().create_flags:
            raise UnsupportedError(
                f"{name}: this brev program has no `create --{flag}`; choose that in Brev's "
                "console, and give the instance's name as instance_id="
            )
    gpus_needed = bool(gpu_count or options.gpu_type)
    return choose(cli.offers(gpus=gpus_needed), options, gpu_count)[:MAX_OFFERS]


def choose(offers: Sequence[Offer], options: BrevOptions, gpu_count: int) -> tuple[Offer, ...]:
    """The offers with as many GPUs as the job needs, or the fewest more; the cheapest first.

    A count of -1 is any number, 0 is none needed. Offers with an ARM processor only where there
    are no others, because few images are made for them.
    """
    fitting = _of_gpu_type(offers, options.gpu_type) if options.gpu_type else list(offers)
    fitting = [offer for offer in fitting if not offer.arch.startswith(_ARM)] or fitting
    if not fitting:
        raise CapacityError(f"gpu_type: Brev offers no {options.gpu_type!r}; {_named(offers)}")
    fitting = _in_place(fitting, "provider", options.provider)
    fitting = _in_place(fitting, "region", options.region)
    fitting = _with_gpus(fitting, options.gpu_type, gpu_count)
    fitting.sort(key=lambda offer: (offer.price is None, offer.price or 0.0))
    limit = options.max_price
    if limit is None:
        return tuple(fitting)
    affordable = [offer for offer in fitting if offer.price is not None and offer.price <= limit]
    if not affordable:
        raise CapacityError(
            f"max_price: nothing fitting is offered for {cost(limit)}; the cheapest is {fitting[0]}"
        )
    return tuple(affordable)


def _of_gpu_type(offers: Sequence[Offer], asked: str) -> list[Offer]:
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


def _in_place(offers: list[Offer], option: str, asked: str) -> list[Offer]:
    """The offers whose provider or region has this in its name."""
    if not asked:
        return offers
    names = sorted({name for offer in offers if (name := getattr(offer, option))})
    if not names:
        raise UnsupportedError(
            f"{option}: this brev program does not tell the {option} of an offer; name a type of "
            "instance (gpu_type=), or make one in Brev's console and give it as instance_id="
        )
    found = [offer for offer in offers if asked.lower() in getattr(offer, option).lower()]
    if not found:
        raise CapacityError(
            f"{option}: no fitting offer in {asked!r}; there are: {', '.join(names)}"
        )
    return found


def _with_gpus(offers: list[Offer], gpu_type: str, count: int) -> list[Offer]:
    if count < 0:
        return [offer for offer in offers if offer.gpus] or offers
    if count == 0:
        return offers
    enough = [offer for offer in offers if offer.gpus >= count]
    if not enough:
        most = max(offer.gpus for offer in offers)
        raise CapacityError(
            f"gpu_count: {count} x {gpu_type or 'GPU'} asked for, and no instance has more than "
            f"{most}"
        )
    fewest = min(offer.gpus for offer in enough)
    return [offer for offer in enough if offer.gpus == fewest]


def _plain(name: str) -> str:
    """`NVIDIA L40-S` and `l40s` are the same GPU."""
    return re.sub(r"nvidia|[^a-z0-9]", "", name.lower())


def _named(offers: Sequence[Offer]) -> str:
    names = sorted({offer.gpu for offer in offers if offer.gpu})
    if not names:
        return "it offers nothing at all at present"
    more = f" and {len(names) - 12} more" if len(names) > 12 else ""
    return f"there are: {', '.join(names[:12])}{more}"
