"""Programs that issue credentials: `user.exec` of a kubeconfig.

Clusters of the cloud providers work this way (`aws eks get-token`, `gke-gcloud-auth-plugin`,
`kubelogin`). A program gets the request in KUBERNETES_EXEC_INFO and prints an ExecCredential. It
cannot prompt the user: jobs are watched unattended.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from tao_sdk import settings
from tao_sdk.platforms.kubernetes.kubeconfig import Entry, KubeconfigError
from tao_sdk.secrets import Secret, redact

SECONDS = 60.0
_GROUP = "client.authentication.k8s.io"
_VERSIONS = (f"{_GROUP}/v1", f"{_GROUP}/v1beta1")
_EXTENSION = f"{_GROUP}/exec"
_QUOTED_CHARACTERS = 400


class PluginError(Exception):
    """The program issued nothing. The message says why and what to do."""


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
        if self._version not in _VERSIONS:
            raise KubeconfigError(
                f"{self.where}: exec has apiVersion {self._version!r}; {self.command} must be "
                f"configured for {' or '.join(_VERSIONS)}"
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
                timeout=SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise PluginError(f"{self._named()} did not answer in {SECONDS:.0f} s") from None
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
            answer = json.loads(printed)
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
    """What a program gets to know; `authority` is the CA in base64."""
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
        if isinstance(item, dict) and item.get("name") == _EXTENSION:
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
