"""Model versions of the NGC registry as listings: `ngc://org[/team]/model:version`.

The registry's REST interface is used, on standard-library HTTP:

* `NGC_KEY` is either a personal key (`nvapi-...`), which is a bearer token itself, or one of the
  older kind, which is exchanged for a token that lives for minutes and is renewed as needed.
* `/v2/org/<org>[/team/<team>]/models/<model>/versions/<version>/files` lists files with sizes and
  SHA-256; `.../models/<model>/<version>/files?path=...` yields a signed address of one file.
* Without a key, or when the key is of another organisation, the public catalogue is asked:
  `/v2/models/org/<org>[/team/<team>]/<model>/<version>/files`. It tells no sizes.

A version must be named: what is "latest" changes under a job's feet.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import urlencode

from .errors import CredentialError, NotFoundError, RunnerError, TransferError
from .http import Answer, Client
from .registries import MOST_PAGES, checked, decoded, understood
from .remote import Listing, RemoteFile, Request
from .signed_address import SignedAddress

_URI = re.compile(r"ngc://([\w.-]+)/(?:([\w.-]+)/)?([\w.-]+)(?::([\w.+-]+))?/?")
_REFUSALS = (400, 401, 403)
"""400 is what an organisation answers that the key does not belong to."""


class Model(NamedTuple):
    """What a URI names."""

    org: str
    team: str
    name: str
    version: str

    @property
    def scope(self) -> str:
        return f"org/{self.org}/team/{self.team}" if self.team else f"org/{self.org}"


def parse(uri: str) -> Model:
    match = _URI.fullmatch(uri)
    if not match:
        raise RunnerError(f"{uri}: write ngc://org/model:version or ngc://org/team/model:version")
    org, team, name, version = (part or "" for part in match.groups())
    if not version:
        raise RunnerError(f"{uri}: names no version; write {uri.rstrip('/')}:<version>")
    return Model(org, team, name, version)


def listing(uri: str, env: Mapping[str, str]) -> Listing:
    """All files of the version."""
    model, refused = parse(uri), ""
    key = env.get("NGC_KEY", "").strip()
    if key:
        try:
            return _Registry(uri, model, env, key).listing()
        except CredentialError as error:
            refused = str(error)
    try:
        return _Registry(uri, model, env, "").listing()
    except RunnerError:
        if refused:  # the key is wrong; that the model is not public is no news
            raise CredentialError(refused) from None
        raise


class _Registry:
    """One model version, and how to ask for it: with a key, or in the public catalogue."""

    def __init__(self, uri: str, model: Model, env: Mapping[str, str], key: str) -> None:
        self.uri, self.model, self.key, self.client = uri, model, key, Client(env)
        self.authority = (env.get("NGC_AUTH_URL") or "https://authn.nvidia.com").rstrip("/")
        api = (env.get("NGC_API_URL") or "https://api.ngc.nvidia.com").rstrip("/") + "/v2"
        self.complaint = (
            f"{uri}: {api} does not answer as the registry does: check NGC_API_URL and NGC_AUTH_URL"
        )
        self.token = key if key.startswith("nvapi-") else ""
        if key:
            self.base = f"{api}/{model.scope}/models/{model.name}"
            self.index = f"{self.base}/versions/{model.version}/files"
        else:
            self.base = f"{api}/models/{model.scope}/{model.name}"
            self.index = f"{self.base}/{model.version}/files"

    def listing(self) -> Listing:
        with understood(self.complaint):
            return self._listing()

    def _listing(self) -> Listing:
        page = self._read(self._ask(self.index, {"page-size": "1000"}))
        about = page.get("paginationInfo") or {}
        found = _files(page)
        # The registry says itself whether it counts its pages from 0 or from 1.
        first = about.get("index", 1)
        for number in range(first + 1, first + min(about.get("totalPages", 1), MOST_PAGES)):
            query = {"page-size": "1000", "page-number": str(number)}
            found.update(_files(self._read(self._ask(self.index, query))))
        if len(found) < about.get("totalResults", 0):
            raise TransferError(
                f"{self.uri}: the registry listed {len(found)} of {about['totalResults']} files; "
                "try again"
            )
        return Listing(self.uri, True, tuple(self._file(*item) for item in sorted(found.items())))

    def _file(self, path: str, facts: tuple[int, str]) -> RemoteFile:
        size, digest = facts
        described = RemoteFile(
            path=path,
            size=size,
            fingerprint=digest or f"{self.model.version}/{path}",
            checksum="sha256:" + digest if digest else "",
            uri=f"{self.uri}/{path}",
            request=SignedAddress(lambda: self._located(path)).request,
        )
        return checked(described)

    def _located(self, path: str) -> Request:
        """The registry redirects to a file's address, or answers with it."""
        url = f"{self.base}/{self.model.version}/files"
        with understood(f"{self.uri}/{path}: the registry gave no address for this file"):
            answer = self._ask(url, {"redirect": "true", "path": path})
            target = answer.headers.get("location", "")
            (target,) = [target] if target else self._read(answer)["urls"]
            target.encode("ascii")
            return Request("GET", target)

    def _ask(self, url: str, query: Mapping[str, str]) -> Answer:
        """An answer to a request with the key; an expired token is renewed once."""
        for renewed in (False, True):
            if self.key and not self.token:
                self.token = self._exchange()
            headers = {"Authorization": "Bearer " + self.token} if self.token else {}
            answer = self._send(Request("GET", f"{url}?{urlencode(query)}", headers))
            if renewed or answer.status != 401 or self.token == self.key:
                break
            self.token = ""  # it has expired
        return answer

    def _send(self, request: Request) -> Answer:
        return self.client.fetch(lambda: request, self.uri, follow=False)

    def _exchange(self) -> str:
        """A token for a key of the older kind."""
        group = f"group/ngc:{self.model.org}"
        scope = f"{group}/{self.model.team}" if self.model.team else group
        basic = base64.b64encode(f"$oauthtoken:{self.key}".encode()).decode("ascii")
        url = f"{self.authority}/token?{urlencode({'service': 'ngc', 'scope': scope})}"
        answer = self._send(Request("GET", url, {"Authorization": "Basic " + basic}))
        return str(self._read(answer)["token"])

    def _read(self, answer: Answer) -> dict[str, Any]:
        if answer.status != 200:
            raise self._error(answer.status)
        body: dict[str, Any] = decoded(answer)
        return body

    def _error(self, status: int) -> RunnerError:
        model = self.model
        owner = f"{model.org}/{model.team}" if model.team else model.org
        if status == 404:
            return NotFoundError(
                f"{self.uri}: {owner} has no version {model.version} of a model {model.name}"
                + ("" if self.key else " that is public; if it is private, set NGC_KEY")
            )
        if status in _REFUSALS:
            return CredentialError(
                f"{self.uri}: the registry refused NGC_KEY ({status}). Check that the key is "
                f"valid, is allowed the NGC catalogue, and that its owner belongs to {owner}"
                if self.key
                else f"{self.uri}: not public; set NGC_KEY to the key of a member of {owner}"
            )
        return TransferError(f"{self.uri}: the registry keeps answering {status}; try again later")


def _files(page: Mapping[str, Any]) -> dict[str, tuple[int, str]]:
    """Path to size and SHA-256 of the two shapes in which the registry lists files."""
    rows: list[tuple[str, int, str]] = [
        (row["path"], row.get("sizeInBytes", -1), row.get("sha256_base64") or "")
        for row in page.get("modelFiles") or []
    ]
    paths, digests = page.get("filepath") or [], page.get("sha256_base64") or []
    if not isinstance(paths, list):
        raise TypeError("no list of paths")
    rows += [(path, -1, "".join(digests[at : at + 1])) for at, path in enumerate(paths)]
    return {path: (size, base64.b64decode(digest).hex()) for path, size, digest in rows}
