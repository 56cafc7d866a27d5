"""Kubeconfig files, read as kubectl reads them, and the credential programs that they name.

Several files make one configuration: for each name the first file that has it wins, as does the
first that sets a current context. Relative paths are relative to the file that they are in.

Clusters of cloud providers issue credentials by a program (`aws eks get-token`,
`gke-gcloud-auth-plugin`, `kubelogin`), which `user.exec` names. It gets a request in
KUBERNETES_EXEC_INFO and prints an ExecCredential. It cannot prompt the user: jobs are watched
unattended.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tao_sdk import settings
from tao_sdk.plain_data import parse_json, parse_yaml
from tao_sdk.secrets import Secret, redact

# Which values of an entry are paths.
_PATHS = {
    "clusters": ("certificate-authority",),
    "users": ("client-certificate", "client-key", "tokenFile"),
    "contexts": (),
}
_ENTRY = {"clusters": "cluster", "users": "user", "contexts": "context"}
PLUGIN_SECONDS = 60.0
_PLUGIN_GROUP = "client.authentication.k8s.io"
_PLUGIN_VERSIONS = (f"{_PLUGIN_GROUP}/v1", f"{_PLUGIN_GROUP}/v1beta1")
_PLUGIN_EXTENSION = f"{_PLUGIN_GROUP}/exec"
_QUOTED_CHARACTERS = 400


class KubeconfigError(Exception):
    """The configuration is wrong. The message names the file."""


class Entry(NamedTuple):
    """A cluster, user or context, and its file. Its values are not shown: users hold secrets."""

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
        return [settings.expanded("~/.kube/config")]
    found = [settings.expanded(part) for part in named.split(":") if part]
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
        raise KubeconfigError(f"{file} is not a kubeconfig: it is not a mapping")
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


# ---------------------------------------------------------------------- credential programs


class PluginError(Exception):
    """A program issued no credential. The message says why and what to do."""


class Issued(NamedTuple):
    """What a program issued."""

    token: Secret
    certificate: str
    key: Secret
    expires: float | None
    """Seconds since the epoch."""


class ExecPlugin:
    """One program and how it is called."""

    def __init__(self, user: Entry, cluster: Mapping[str, Any]) -> None:
        """`cluster` is passed to a program with `provideClusterInfo`."""
        described = Entry(user.name, user.mapping("exec"), user.file)
        self.command = described.text("command")
        self.where = f"user {user.name!r} of {user.file}"
        self._folder = user.file.absolute().parent
        self._arguments = described.texts("args")
        self._variables = _variables(described)
        self._version = described.text("apiVersion")
        self._hint = described.text("installHint").strip()
        self._cluster = cluster if described.flag("provideClusterInfo") else None
        if not self.command:
            raise KubeconfigError(f"{self.where}: exec names no command")
        if self._version not in _PLUGIN_VERSIONS:
            raise KubeconfigError(
                f"{self.where}: exec has apiVersion {self._version!r}; {self.command} must be "
                f"configured for {' or '.join(_PLUGIN_VERSIONS)}"
            )
        if described.text("interactiveMode") == "Always":
            raise KubeconfigError(
                f"{self.where}: {self.command} prompts the user (interactiveMode: Always), but "
                "jobs are watched unattended; use a credential without prompts"
            )

    def __repr__(self) -> str:
        return f"ExecPlugin({self.command})"

    def run(self) -> Issued:
        """Run the program, for a minute at most."""
        import subprocess  # most users have no such program

        program = self._program()
        environment = {
            **settings.process_environment(),
            **{name: secret.reveal() for name, secret in self._variables.items()},
            "KUBERNETES_EXEC_INFO": json.dumps(self._request()),
        }
        try:
            ended = subprocess.run(
                [program, *self._arguments],
                env=environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=PLUGIN_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise PluginError(f"{self._named()} did not answer in {PLUGIN_SECONDS:.0f} s") from None
        except OSError as error:
            raise PluginError(f"{self._named()} cannot be started: {error.strerror}") from None
        if ended.returncode:
            output = redact(ended.stderr.decode(errors="replace"), self._variables.values()).strip()
            raise PluginError(
                f"{self._named()} failed with exit code {ended.returncode}: "
                f"{output[-_QUOTED_CHARACTERS:] or 'no output'}"
            )
        return self._issued(ended.stdout)

    def _program(self) -> str:
        import shutil

        # A path belongs to the kubeconfig, a bare name is looked up.
        if "/" in self.command:
            return str(self._folder / self.command)
        path = self._variables.get("PATH")
        found = shutil.which(self.command, path=path.reveal() if path else None)
        if found is None:
            hint = f": {self._hint}" if self._hint else "; install it or put it on PATH"
            raise PluginError(f"{self._named()} is not installed{hint}")
        return found

    def _named(self) -> str:
        return f"the credential program {self.command} ({self.where})"

    def _request(self) -> dict[str, Any]:
        spec: dict[str, Any] = {"interactive": False}
        if self._cluster is not None:
            spec["cluster"] = dict(self._cluster)
        return {"apiVersion": self._version, "kind": "ExecCredential", "spec": spec}

    def _issued(self, printed: bytes) -> Issued:
        # What was printed is never quoted: it is the credential.
        try:
            answer = parse_json(printed)
            status = answer["status"]
            token = str(status.get("token") or "")
            certificate = str(status.get("clientCertificateData") or "")
            key = str(status.get("clientKeyData") or "")
            until = status.get("expirationTimestamp")
            expires = _seconds(until) if until else None
        except (ValueError, KeyError, TypeError, AttributeError):
            raise PluginError(f"{self._named()} did not print an ExecCredential") from None
        if answer.get("apiVersion") != self._version:
            raise PluginError(
                f"{self._named()} answered in another version than {self._version}: set apiVersion "
                "in the kubeconfig to the one that it speaks"
            )
        if bool(certificate) != bool(key):
            raise PluginError(f"{self._named()} issued half of a certificate and its key")
        if not token and not certificate:
            raise PluginError(f"{self._named()} issued neither a token nor a certificate")
        return Issued(Secret(token), certificate, Secret(key), expires)


def cluster_info(cluster: Entry, authority: str) -> dict[str, Any]:
    """The cluster as its description is passed to a program; `authority` is the CA in base64."""
    info: dict[str, Any] = {"server": cluster.text("server")}
    for key in ("tls-server-name", "proxy-url"):
        if value := cluster.text(key):
            info[key] = value
    for key in ("insecure-skip-tls-verify", "disable-compression"):
        if cluster.flag(key):
            info[key] = True
    if authority:
        info["certificate-authority-data"] = authority
    extensions = cluster.values.get("extensions")
    for item in extensions if isinstance(extensions, list) else ():
        if isinstance(item, dict) and item.get("name") == _PLUGIN_EXTENSION:
            info["config"] = item.get("extension")
    return info


def _variables(described: Entry) -> dict[str, Secret]:
    listed = described.values.get("env") or []
    try:
        return {str(item["name"]): Secret(str(item["value"])) for item in listed}
    except (TypeError, KeyError):
        raise KubeconfigError(
            f"{described.file}: exec.env of user {described.name!r} must list names and values"
        ) from None


def _seconds(timestamp: str) -> float:
    from tao_sdk.platforms.common.times import parse_time

    return parse_time(timestamp).timestamp()
