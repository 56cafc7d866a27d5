"""The REST interface of the NGC registry, on loopback: keys, tokens, files of model versions.

As public documentation and public clients describe it. Files come from another host.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from lab.wire import Call, Registry, Reply


@dataclass
class Version:
    files: dict[str, bytes]
    public: bool


@dataclass
class Ngc(Registry):
    """Registry, authority and storage, for the length of a `with`."""

    page_size: int = 1000
    first_page: int = 0
    """The number of the first page of a list."""
    redirects: bool = True
    """Whether who asks for a redirect gets one, or an address in JSON nevertheless."""
    keys: dict[str, str] = field(default_factory=dict)
    """Key to the organisation of its owner."""
    versions: dict[tuple[str, str, str], Version] = field(default_factory=dict)
    """By scope (`org/nvidia/team/tao`), model and version."""
    tokens: dict[str, str] = field(default_factory=dict)
    """Those that are valid now, and the organisation of each."""

    def __post_init__(self) -> None:
        self.open()

    @property
    def env(self) -> dict[str, str]:
        """What leads a client here."""
        return {"NGC_API_URL": self.server.url, "NGC_AUTH_URL": self.server.url}

    def add(
        self, scope: str, model: str, version: str, files: Mapping[str, bytes], public: bool = False
    ) -> None:
        self.versions[scope, model, version] = Version(dict(files), public)

    def _answer(self, call: Call) -> Reply:
        if call.path == "/token":
            return self._exchange(call)
        if call.path.startswith("/v2/models/org/"):  # the catalogue that is open to everybody
            *scope, model, version, _files = call.parts[2:]
            found = self.versions.get(("/".join(scope), model, version))
            return self._manifest(call, found) if found and found.public else _error(404)
        parts = call.parts[1:]
        at = parts.index("models")
        scope, model, rest = parts[:at], parts[at + 1], parts[at + 2 :]
        org = {**self.tokens, **{key: org for key, org in self.keys.items() if "nvapi-" in key}}
        if call.bearer not in org:
            return _error(401)
        listed = rest[0] == "versions"
        found = self.versions.get(("/".join(scope), model, rest[1] if listed else rest[0]))
        if found is None:
            return _error(404)
        if not (found.public or org[call.bearer] == scope[1]):
            return _error(403)
        return self._list(call, found) if listed else self._manifest(call, found)

    def _exchange(self, call: Call) -> Reply:
        basic = call.headers.get("authorization", "").partition("Basic ")[2]
        user, _, key = base64.b64decode(basic).decode().partition(":")
        scope = call.query.get("scope", "")
        if user != "$oauthtoken" or key not in self.keys or not scope.startswith("group/ngc:"):
            return _error(401)
        token = f"token-{len(self.server.calls)}"
        self.tokens[token] = self.keys[key]
        return _json({"token": token, "expires_in": 600})

    def _list(self, call: Call, version: Version) -> Reply:
        names = sorted(version.files)
        size = min(self.page_size, int(call.query.get("page-size", 100)))
        number = int(call.query.get("page-number", self.first_page))
        start = (number - self.first_page) * size
        about = {
            "index": number,
            "size": size,
            "totalResults": len(names),
            "totalPages": -(-len(names) // size),
        }
        rows = [
            {
                "path": name,
                "sizeInBytes": len(version.files[name]),
                "sha256_base64": _digest(version.files[name]),
            }
            for name in names[start : start + size]
        ]
        return _json({"requestStatus": _SUCCESS, "paginationInfo": about, "modelFiles": rows})

    def _manifest(self, call: Call, version: Version) -> Reply:
        wanted = call.query.get("path")
        names = [wanted] if wanted else sorted(version.files)
        if any(name not in version.files for name in names):
            return _error(404)
        urls = [self._signed_url(version.files[name]) for name in names]
        if self.redirects and call.query.get("redirect") == "true" and wanted:
            return Reply(302, b"", {"Location": urls[0]})
        digests = [_digest(version.files[name]) for name in names]
        return _json({"urls": urls, "filepath": names, "sha256_base64": digests})

    def _signed_url(self, data: bytes) -> str:
        name = hashlib.sha256(data).hexdigest()
        return self.storage.signed_url(name, self.storage.blobs.get(name, data))


_SUCCESS = {"statusCode": "SUCCESS", "requestId": "0"}


def _digest(data: bytes) -> str:
    return base64.b64encode(hashlib.sha256(data).digest()).decode()


def _json(value: object) -> Reply:
    return Reply(200, json.dumps(value).encode(), {"Content-Type": "application/json"})


def _error(status: int) -> Reply:
    body = {"requestStatus": {"statusCode": "ERROR", "statusDescription": "refused"}}
    return Reply(status, json.dumps(body).encode(), {"Content-Type": "application/json"})
