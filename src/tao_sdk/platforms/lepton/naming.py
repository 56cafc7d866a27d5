"""Names and labels of our objects in a workspace, and the paths of its API. Pure.

A job's name has at most 36 characters, so it is `tao-` and our id without dashes; the server adds
some characters to make its own id. A list of secrets has nothing but names, so the name of a secret
has the job's id and the second of its creation.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple
from urllib.parse import quote

LABEL = "tao-toolkit"
LABEL_JOB = "tao-sdk-job-id"
LABEL_TOKEN = "tao-sdk-token"  # noqa: S105 - the name of a label
LABEL_NETWORK = "tao-sdk-network"
LABEL_ACTION = "tao-sdk-action"
LABEL_LOOK = "tao-sdk-look"
OURS = f"{LABEL}=true"
"""Selects all our jobs."""

GATE = "TAO_SUBMISSION"
"""The variable of a job that has no other secret; its value is the token in the label."""
PULL_SECRET = "tao-image-pull-secret"  # noqa: S105 - the name of a secret
JOBS = "/jobs"
SECRETS = "/usersecrets"
PULL_SECRETS = "/imagepullsecrets"
GROUPS = "/dedicated-node-groups"
SHAPES = "/shapes"
LOGS = "/logs"
STORAGE = "/storage"
EVERYWHERE = "alive_and_archive"
"""Makes a request include archived jobs."""

FENCED = "fenced"
"""Marks a job whose secrets were deleted, so that it cannot start any more."""
UNWANTED = "unwanted"
"""Marks a job that was declared never submitted: if it appears later, it is deleted."""
FINGERPRINTS = "fingerprints"
"""The file with the fingerprints of a job's secrets."""

_NOT_IN_A_LABEL = re.compile(r"[^A-Za-z0-9_.-]+")
_LONGEST_LABEL = 63
_SECRET = re.compile(r"TAO_([0-9a-f]{32})_([0-9a-f]{8})_(\w+)", re.ASCII)


def job_name(job_id: str) -> str:
    return f"tao-{job_id.replace('-', '')}"


def label_value(text: str) -> str:
    """The nearest text that can be the value of a label. The store has the original."""
    return _NOT_IN_A_LABEL.sub("_", text)[:_LONGEST_LABEL].strip("_.-")


class SecretName(NamedTuple):
    """The name of a secret of ours."""

    job: str
    """The job's id, without its dashes."""
    made_at: int
    variable: str

    @property
    def job_id(self) -> str:
        import uuid  # here, because only a sweep needs it

        return str(uuid.UUID(self.job))

    def __str__(self) -> str:
        return f"TAO_{self.job}_{self.made_at:08x}_{self.variable}"


def parse_secret(name: str) -> SecretName | None:
    """None for a secret that is not ours."""
    found = _SECRET.fullmatch(name)
    return SecretName(found[1], int(found[2], 16), found[3]) if found else None


def hides_something(names: Iterable[str]) -> bool:
    """Whether one of these secrets of ours has a secret value."""
    return any(not name.endswith(f"_{GATE}") for name in names)


def below(path: str, *words: str) -> str:
    """A path of the API; `words` are quoted."""
    return "/".join([path, *(quote(word, safe="") for word in words)])


def part(thing: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """A mapping in an answer; empty if it is anything else."""
    found = thing.get(name)
    return found if isinstance(found, Mapping) else {}


def listed(thing: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    """The mappings in a list of an answer; none if it is anything else."""
    found = thing.get(name)
    return [one for one in found if isinstance(one, Mapping)] if isinstance(found, list) else []


def number(value: Any) -> float:
    """A number in an answer; 0 if it is anything else."""
    return float(value) if isinstance(value, (int, float)) else 0.0


def whole(value: Any) -> int:
    return int(number(value))


def id_of(thing: Mapping[str, Any]) -> str:
    """The server's id of a job, replica, shape, volume or node group."""
    metadata = part(thing, "metadata")
    return str(metadata.get("id") or thing.get("id") or metadata.get("name") or "")


def labels_of(job: Mapping[str, Any]) -> Mapping[str, str]:
    return part(part(job, "metadata"), "labels")


def job_id_in(job: Mapping[str, Any]) -> str:
    """Our id of a job; "" for one that is not ours."""
    return str(labels_of(job).get(LABEL_JOB) or "")
