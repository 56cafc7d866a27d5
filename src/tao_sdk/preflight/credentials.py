"""Whether the variables that a platform and a model need are set. Values are never looked at."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from tao_sdk import settings
from tao_sdk.preflight.checks import Check, failed, passed


def is_set(name: str) -> bool:
    """Whether a variable has a value, under its own name or another that counts."""
    if name in settings.SETTINGS:
        return bool(settings.lookup(name))
    return bool(settings.process_environment().get(name, "").strip())


def credential_checks(described: Mapping[str, Any]) -> Iterator[Check]:
    """What the platform requires, as the bank's manifest describes it."""
    required = [
        credential
        for credential in described["required_credentials"]
        if credential.get("source", "env_var") == "env_var"
    ]
    missing = [(c["name"], c) for c in required if not is_set(c["name"])]
    for group in described["credential_groups"]:
        members: Sequence[str] = group["require_one_of"]
        if not any(map(is_set, members)):
            # One of several equal choices would be a question; the preferred one is an answer.
            missing.append((group.get("preferred") or f"one of {', '.join(members)}", group))
    present = [c["name"] for c in required if is_set(c["name"])]
    if missing:
        yield failed(
            "credentials",
            f"not set: {', '.join(name for name, _ in missing)}",
            "\n".join(_how_to_get(name, entry) for name, entry in missing),
            missing=[name for name, _ in missing],
        )
    else:
        told = f"set: {', '.join(present)}" if present else "the platform asks for none"
        yield passed("credentials", told)


def model_credential_checks(names: Iterable[str]) -> Iterator[Check]:
    """What the model requires."""
    wanted = list(dict.fromkeys(names))
    missing = [name for name in wanted if not is_set(name)]
    if missing:
        yield failed(
            "model_credentials",
            f"the model needs {', '.join(missing)}, which is not set",
            "\n".join(f"export {name}=…{_obtain(name)}" for name in missing),
            missing=missing,
        )
    elif wanted:
        yield passed("model_credentials", f"set: {', '.join(wanted)}")


def _how_to_get(name: str, entry: Mapping[str, Any]) -> str:
    told = [str(entry.get("description") or ""), str(entry.get("how_to_get") or "")]
    text = " ".join(filter(None, told))
    return f"{name}: {text}" if text else f"export {name}=…{_obtain(name)}"


def _obtain(name: str) -> str:
    setting = settings.SETTINGS.get(name)
    return f"   # {setting.meaning} ({setting.obtain})" if setting and setting.obtain else ""
