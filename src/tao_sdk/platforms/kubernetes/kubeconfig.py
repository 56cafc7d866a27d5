"""Kubeconfig files, read as kubectl reads them.

Several files make one configuration: for each name the first file that has it wins, as does the
first that sets a current context. Relative paths belong to the file that they stand in.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tao_sdk import settings
from tao_sdk.plain_data import parse_yaml

# Which values of an entry are paths.
_PATHS = {
    "clusters": ("certificate-authority",),
    "users": ("client-certificate", "client-key", "tokenFile"),
    "contexts": (),
}
_ENTRY = {"clusters": "cluster", "users": "user", "contexts": "context"}


class KubeconfigError(Exception):
    """What is wrong with the configuration, and in which file."""


class Entry(NamedTuple):
    """A cluster, user or context, and the file that it came from.

    Users hold secrets: the values are not shown.
    """

    name: str
    values: Mapping[str, Any]
    file: Path

    def __repr__(self) -> str:
        return f"Entry({self.name!r} of {self.file})"

    def text(self, key: str) -> str:
        """A value that must be text; "" without it."""
        value = self.values.get(key)
        if value is None:
            return ""
        if isinstance(value, (dict, list)):
            raise KubeconfigError(f"{self.file}: {key} of {self.name!r} must be text")
        return str(value)

    def flag(self, key: str) -> bool:
        value = self.values.get(key)
        if value is not None and not isinstance(value, bool):
            raise KubeconfigError(f"{self.file}: {key} of {self.name!r} must be true or false")
        return bool(value)

    def mapping(self, key: str) -> Mapping[str, Any]:
        value = self.values.get(key)
        if value is not None and not isinstance(value, dict):
            raise KubeconfigError(f"{self.file}: {key} of {self.name!r} must be a mapping")
        return value or {}

    def texts(self, key: str) -> list[str]:
        value = self.values.get(key)
        if value is not None and not isinstance(value, list):
            raise KubeconfigError(f"{self.file}: {key} of {self.name!r} must be a list")
        return [str(item) for item in value or ()]


class Chosen(NamedTuple):
    """A context with its cluster and its user."""

    context: Entry
    cluster: Entry
    user: Entry

    @property
    def namespace(self) -> str:
        return self.context.text("namespace")


class Kubeconfig(NamedTuple):
    """The merged configuration."""

    clusters: Mapping[str, Entry]
    users: Mapping[str, Entry]
    contexts: Mapping[str, Entry]
    current_context: str
    files: tuple[Path, ...]
    """Those that exist."""

    def __repr__(self) -> str:
        return f"Kubeconfig({', '.join(map(str, self.files))})"

    def choose(self, wanted: str) -> Chosen:
        """The wanted context, or the current one."""
        name = wanted or self.current_context
        where = ", ".join(map(str, self.files))
        if not name:
            raise KubeconfigError(f"{where}: no current-context is set{self._contexts()}")
        if name not in self.contexts:
            raise KubeconfigError(f"{where}: there is no context {name!r}{self._contexts()}")
        context = self.contexts[name]
        return Chosen(
            context,
            self._part(context, "cluster", self.clusters),
            self._part(context, "user", self.users),
        )

    def _contexts(self) -> str:
        return f"; the contexts are {', '.join(sorted(self.contexts))}" if self.contexts else ""

    def _part(self, context: Entry, kind: str, entries: Mapping[str, Entry]) -> Entry:
        name = context.text(kind)
        if kind == "user" and not name:
            return Entry("", {}, context.file)  # a server without authentication
        if name not in entries:
            raise KubeconfigError(
                f"{context.file}: context {context.name!r} names the {kind} {name!r}, which is not "
                f"in {', '.join(map(str, self.files))}"
            )
        return entries[name]


def paths() -> list[Path]:
    """The files that KUBECONFIG names, or ~/.kube/config."""
    named = settings.lookup("KUBECONFIG")
    if not named:
        return [Path("~/.kube/config").expanduser()]
    found = [Path(part).expanduser() for part in named.split(":") if part]
    return list(dict.fromkeys(found))


def read(files: Sequence[Path]) -> Kubeconfig:
    """Merge files. Those that do not exist are left out; kubectl does the same."""
    merged: dict[str, dict[str, Entry]] = {section: {} for section in _PATHS}
    current = ""
    existing = []
    for file in files:
        document = _document(file)
        if document is None:
            continue
        existing.append(file)
        current = current or str(document.get("current-context") or "")
        for section, entries in merged.items():
            for entry in _entries(file, document, section):
                entries.setdefault(entry.name, entry)
    return Kubeconfig(
        merged["clusters"], merged["users"], merged["contexts"], current, tuple(existing)
    )


def _document(file: Path) -> dict[str, Any] | None:
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or "not UTF-8"
        raise KubeconfigError(f"{file} cannot be read: {reason}") from None
    try:
        document = parse_yaml(text)
    except ValueError as error:
        # Not the error's own text, which quotes the line: it may hold a token.
        mark = getattr(error.__cause__, "problem_mark", None)
        place = f"not YAML (line {mark.line + 1})" if mark else "not plain YAML"
        raise KubeconfigError(f"{file} is {place}") from None
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise KubeconfigError(f"{file} is not a kubeconfig: it holds no mapping")
    return document


def _entries(file: Path, document: Mapping[str, Any], section: str) -> list[Entry]:
    listed = document.get(section) or []
    if not isinstance(listed, list):
        raise KubeconfigError(f"{file}: {section} must be a list")
    found = []
    for number, item in enumerate(listed):
        kind = _ENTRY[section]
        values = (item.get(kind) or {}) if isinstance(item, dict) else None
        if not isinstance(values, dict) or not item.get("name"):
            raise KubeconfigError(f"{file}: {section}[{number}] must have a name and a {kind}")
        found.append(Entry(str(item["name"]), _with_paths(file, section, values), file))
    return found


def _with_paths(file: Path, section: str, values: Mapping[str, Any]) -> dict[str, Any]:
    resolved = dict(values)
    for key in _PATHS[section]:
        if isinstance(path := resolved.get(key), str) and path:
            resolved[key] = str(file.absolute().parent / path)
    return resolved
