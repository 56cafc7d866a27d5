"""Which credentials a launch needs. Only whether they are set is ever looked at.

Asked for are the required ones of the chosen platform, one of each of its groups, those of the
model, and an optional one when its condition is known to hold. Conditions are sentences of the
bank; what cannot be judged from the launch itself (a site's rules, a custom endpoint) is left to
the person.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tao_sdk import settings
from tao_sdk.preflight.credentials import is_set

__all__ = ["Credential", "Situation", "needed_credentials"]

PLATFORM, MODEL = "platform", "model"
_PUBLIC = "nvcr.io/nvidia/"


@dataclass(frozen=True)
class Credential:
    """A variable, or one of a group of which one is enough."""

    name: str
    owner: str
    """Who wants it: the platform or the model."""
    description: str = ""
    how_to_get: str = ""
    only_when: str = ""
    instead: tuple[str, ...] = ()
    """Other variables that serve as well."""
    in_job: bool = False
    """The job is given it by the launch itself, which is enough for a model."""

    @property
    def present(self) -> bool:
        return self.in_job or any(map(is_set, (self.name, *self.instead)))

    def as_json(self) -> dict[str, Any]:
        """What may be said about it: never its value."""
        return {
            "name": self.name,
            "owner": self.owner,
            "description": self.description,
            "how_to_get": self.how_to_get,
            "only_when": self.only_when,
            "present": self.present,
        }


@dataclass(frozen=True)
class Situation:
    """What conditions are judged by."""

    addresses: tuple[str, ...]
    """Where data and results are."""
    image: str
    """What would be pulled; "" where images are not used."""
    model_wants: tuple[str, ...]
    job_has: frozenset[str] = frozenset()
    """Variables that the launch gives to the job."""

    @property
    def uses_s3(self) -> bool:
        return any(address.startswith("s3://") for address in self.addresses)

    @property
    def uses_private_ngc(self) -> bool:
        """An image of an organisation at nvcr.io, or data at NGC."""
        private = self.image.startswith("nvcr.io/") and not self.image.startswith(_PUBLIC)
        return private or any(address.startswith("ngc://") for address in self.addresses)


_JUDGED: tuple[tuple[tuple[str, ...], Callable[[Situation], bool]], ...] = (
    (("s3://",), lambda now: now.uses_s3),
    (("nvcr.io", "ngc"), lambda now: now.uses_private_ngc),
    (("hugging",), lambda now: "HF_TOKEN" in now.model_wants),
)
"""Words of a condition, and how it is judged; the first that fits counts."""


def needed_credentials(
    platform: Mapping[str, Any] | None, definitions: Mapping[str, Any], situation: Situation
) -> list[Credential]:
    """Everything that this launch cannot do without, in the order in which it is asked for.

    `platform` is its description (`describe_platform`), None before one is chosen.
    """
    found = {one.name: one for one in _of_platform(platform or {}, situation)}
    for name in situation.model_wants:
        found.pop(name, None)  # it is the model that wants it
        found[name] = _of_model(name, definitions, in_job=name in situation.job_has)
    return list(found.values())


def _of_platform(platform: Mapping[str, Any], situation: Situation) -> Iterator[Credential]:
    # The identity comes first: without it none of the others can be tried out.
    for group in platform.get("credential_groups") or []:
        members = list(group["require_one_of"])
        first = group.get("preferred") or members[0]
        others = tuple(name for name in members if name != first)
        yield _of_entry({**group, "name": first}, others)
    yield from map(_of_entry, platform.get("required_credentials") or [])
    for entry in platform.get("optional_credentials") or []:
        if _applies(entry, situation):
            yield _of_entry(entry)


def _applies(entry: Mapping[str, Any], situation: Situation) -> bool:
    condition = str(entry.get("only_when") or "").casefold()
    if not condition:
        # Some banks list this one without a condition; a private image cannot do without.
        return entry["name"] == "NGC_KEY" and situation.uses_private_ngc
    for words, holds in _JUDGED:
        if any(word in condition for word in words):
            return holds(situation)
    return False


def _of_entry(entry: Mapping[str, Any], instead: tuple[str, ...] = ()) -> Credential:
    return Credential(
        name=str(entry["name"]),
        owner=PLATFORM,
        description=str(entry.get("description") or ""),
        how_to_get=str(entry.get("how_to_get") or ""),
        only_when=str(entry.get("only_when") or ""),
        instead=instead,
    )


def _of_model(name: str, definitions: Mapping[str, Any], *, in_job: bool) -> Credential:
    known = definitions.get(name) or {}
    setting = settings.SETTINGS.get(name)
    return Credential(
        name=name,
        owner=MODEL,
        description=str(known.get("description") or (setting.meaning if setting else "")),
        how_to_get=str(known.get("how_to_get") or (setting.obtain if setting else "")),
        in_job=in_job,
    )
