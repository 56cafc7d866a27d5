"""The catalogue: every cause we know, as data, by family."""

from __future__ import annotations

from types import ModuleType

from tao_sdk.failures.catalogue import (
    data,
    distributed,
    endings,
    gpu,
    hub,
    image,
    instances,
    memory,
    network,
    python,
    scheduler,
    spec,
    staging,
    storage,
)
from tao_sdk.failures.cause import Cause

FAMILIES: dict[str, ModuleType] = {
    "GPU": gpu,
    "Memory": memory,
    "Storage": storage,
    "Several processes": distributed,
    "Network": network,
    "Python": python,
    "Data and checkpoints": data,
    "Spec and command line": spec,
    "Images and containers": image,
    "Credentials and hubs": hub,
    "Staging and delivery": staging,
    "Schedulers": scheduler,
    "Rented instances": instances,
    "How it ended": endings,
}

CATALOGUE: tuple[Cause, ...] = tuple(
    cause for family in FAMILIES.values() for cause in family.CAUSES
)
BY_ID: dict[str, Cause] = {cause.id: cause for cause in CATALOGUE}
