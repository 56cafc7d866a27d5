"""A client of the API server: small, and not the one that the tests are about."""

from __future__ import annotations

import base64
import http.client
import json
import ssl
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import quote, urlencode, urlsplit

import yaml

Object: TypeAlias = dict[str, Any]
_SECONDS = 60


class RefusedError(Exception):
    """The server answered, and said no."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code


class Api:
    """Requests as the user of a kubeconfig; each has a connection of its own."""

    def __init__(self, kubeconfig: Path) -> None:
        content = yaml.safe_load(kubeconfig.read_text())
        cluster, user = content["clusters"][0]["cluster"], content["users"][0]["user"]
        self._server = urlsplit(cluster["server"])
        authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
        self._context = ssl.create_default_context(cadata=authority)
        self._headers = {"Accept": "application/json"}
        if "token" in user:
            self._headers["Authorization"] = f"Bearer {user['token']}"
        else:
            with tempfile.NamedTemporaryFile() as file:
                for part in ("client-certificate-data", "client-key-data"):
                    file.write(base64.b64decode(user[part]))
                file.flush()
                self._context.load_cert_chain(file.name)

    def get(self, path: str, **query: str) -> Object:
        return self._ask("GET", path, query)

    def create(self, path: str, body: Object) -> Object:
        return self._ask("POST", path, {}, body)

    def patch(self, path: str, body: Object) -> Object:
        return self._ask("PATCH", path, {}, body, "application/merge-patch+json")

    def delete(self, path: str, **query: str) -> Object:
        return self._ask("DELETE", path, query)

    def text(self, path: str, **query: str) -> str:
        """What is not JSON: logs, health."""
        return self._send("GET", path, query).read().decode()

    def exists(self, path: str) -> bool:
        try:
            self.get(path)
        except RefusedError as refused:
            if refused.code == 404:
                return False
            raise
        return True

    def answers(self) -> bool:
        """Is the server ready?"""
        try:
            return self.text("/readyz") == "ok"
        except (OSError, http.client.HTTPException, RefusedError):
            return False

    def watch(self, path: str, version: str) -> Iterator[Object]:
        """Events since that version, until the server has had enough."""
        query = {"watch": "1", "resourceVersion": version, "timeoutSeconds": str(_SECONDS // 2)}
        for line in self._send("GET", path, query):
            yield json.loads(line)

    def _ask(
        self,
        method: str,
        path: str,
        query: dict[str, str],
        body: Object | None = None,
        kind: str = "application/json",
    ) -> Object:
        told: Object = json.load(self._send(method, path, query, body, kind))
        return told

    def _send(
        self,
        method: str,
        path: str,
        query: dict[str, str],
        body: Object | None = None,
        kind: str = "application/json",
    ) -> http.client.HTTPResponse:
        connection = http.client.HTTPSConnection(
            self._server.hostname or "", self._server.port, timeout=_SECONDS, context=self._context
        )
        connection.request(
            method,
            f"{quote(path)}?{urlencode(query)}",
            None if body is None else json.dumps(body),
            {**self._headers, "Content-Type": kind, "Connection": "close"},
        )
        response = connection.getresponse()
        if response.status >= 400:
            raise RefusedError(response.status, response.read().decode())
        return response


def name_of(thing: Object) -> str:
    name: str = thing["metadata"]["name"]
    return name
