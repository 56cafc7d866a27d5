"""Repositories of the Hugging Face Hub as listings.

    hf_model://org/name[@revision][/file or folder]        hf_dataset:// likewise
    hf_model://name[@revision[/file or folder]]            a repository without an organisation

The revision is a branch, a tag or a commit, by default `main`, and is pinned to its commit before
anything is listed. Slashes in it are written `%2F`; `refs/pr/1` and `refs/convert/parquet` may be
written as they are. (`gpt2/config.json` reads as organisation and name, so a part of a repository
without an organisation needs the revision: `gpt2@main/config.json`.)

Why not through `huggingface_hub`, where an image has it? The one thing it could add is Xet, the
Hub's storage in chunks. But files kept there come by a plain `resolve` request as well: who does
not speak Xet is redirected to a bridge that serves the whole file, with ranges, and their SHA-256
is in the tree as for LFS. So there is one way for every image, and one downloader with its
promises: checked, resumed, nothing half-written under a final name.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple
from urllib.parse import quote, unquote, urlencode

from .errors import CredentialError, NotFoundError, RunnerError, TransferError
from .http import Answer, Client
from .registries import MOST_PAGES, checked, decoded, understood
from .remote import Listing, RemoteFile, Request
from .signed_address import SignedAddress

_URI = re.compile(
    r"hf_(model|dataset)://([\w.-]+/[\w.-]+|[\w.-]+(?=@|/?$))"
    r"(?:@(refs/(?:pr|convert)/[^/]+|[^/@]+))?(?:/(.*))?"
)
_NEXT_PAGE = re.compile(r'<[^>?]*\?([^>]+)>\s*;\s*rel="?next"?')


class Place(NamedTuple):
    """What a URI names."""

    kind: str
    repository: str
    revision: str
    path: str


def parse(uri: str) -> Place:
    """The parts of a URI; the path without slashes at its ends, "" for the whole repository."""
    match = _URI.fullmatch(uri)
    path = (match.group(4) or "").strip("/") if match else ""
    if not match or {".", ".."} & set(path.split("/")):
        raise RunnerError(
            f"{uri}: not the name of anything on the Hugging Face Hub; write "
            "hf_model://org/name, hf_model://org/name@revision or "
            "hf_model://org/name@revision/folder/file (slashes of a revision as %2F)"
        )
    kind, repository, revision = match.group(1, 2, 3)
    return Place(kind, repository, unquote(revision or "main"), path)


def listing(uri: str, env: Mapping[str, str]) -> Listing:
    """The file, the files of the folder, or those of the whole repository."""
    hub = _Hub(uri, parse(uri), env)
    with understood(hub.complaint):
        return _listing(hub)


def _listing(hub: _Hub) -> Listing:
    uri, place = hub.uri, hub.place
    about, _ = hub.ask(Request("GET", hub.api("revision", place.revision)))
    if about.get("gated"):
        hub.check_access()
    commit = about["sha"]
    if place.path:
        form = urlencode({"paths": place.path, "expand": "false"}).encode()
        kind = {"Content-Type": "application/x-www-form-urlencoded"}
        found, _ = hub.ask(Request("POST", hub.api("paths-info", commit), kind, form))
        if not found:
            raise hub.missing_entry()
        if found[0]["type"] == "file":
            name = place.path.rsplit("/", 1)[-1]
            return Listing(uri, False, (hub.file(found[0], name, commit),))
    skipped = len(place.path) + 1 if place.path else 0
    files = [
        hub.file(entry, entry["path"][skipped:], commit)
        for entry in hub.tree(commit, place.path)
        if entry["type"] == "file"
    ]
    return Listing(uri, True, tuple(files))


class _Hub:
    """One repository, and how to ask for it."""

    def __init__(self, uri: str, place: Place, env: Mapping[str, str]) -> None:
        self.uri, self.place = uri, place
        self.endpoint = (env.get("HF_ENDPOINT") or "https://huggingface.co").rstrip("/")
        self.complaint = f"{uri}: {self.endpoint} does not answer as a Hub does: check HF_ENDPOINT"
        self.client = Client(env)
        token, self.source = _token(env)
        self.headers = {"Authorization": "Bearer " + token} if token else {}

    def api(self, verb: str, *parts: str) -> str:
        where = f"{self.endpoint}/api/{self.place.kind}s/{self.place.repository}/{verb}"
        return "/".join([where] + [quote(part, safe="") for part in parts])

    @property
    def page(self) -> str:
        """The repository for people."""
        folder = "datasets/" if self.place.kind == "dataset" else ""
        return f"{self.endpoint}/{folder}{self.place.repository}"

    def file(self, entry: dict[str, Any], path: str, commit: str) -> RemoteFile:
        whole, lfs = entry["path"], entry.get("lfs")
        content = Request("GET", f"{self.page}/resolve/{commit}/{quote(whole)}", self.headers)
        described = RemoteFile(
            path=path,
            size=entry["size"],
            fingerprint=f"{commit}/{whole}",
            checksum="sha256:" + lfs["oid"] if lfs else "git-sha1:" + entry["oid"],
            uri=f"hf_{self.place.kind}://{self.place.repository}@{self.place.revision}/{whole}",
            request=SignedAddress(lambda: self.located(content)).request
            if lfs
            else lambda: content,
        )
        return checked(described)

    def located(self, content: Request) -> Request:
        """Where the Hub redirects a request for this content."""
        answer = self.send(content._replace(method="HEAD"))
        if answer.status >= 400:
            raise self.error(answer)
        target = answer.headers.get("location", "")
        elsewhere = "://" in target and not target.startswith(self.endpoint + "/")
        return Request("GET", target) if elsewhere else content

    def tree(self, commit: str, folder: str) -> Iterator[dict[str, Any]]:
        """Everything below a folder, page by page."""
        url = self.api("tree", commit) + ("/" + quote(folder) if folder else "")
        query = "recursive=true&expand=false"
        asked: set[str] = set()
        while query:
            if query in asked or len(asked) >= MOST_PAGES:
                raise TransferError(f"{self.uri}: the Hub's listing has no end")
            asked.add(query)
            entries, headers = self.ask(Request("GET", f"{url}?{query}"))
            yield from entries
            # Only the query of the next page's address: a mirror may pass on the Hub's own.
            following = _NEXT_PAGE.search(headers.get("link", ""))
            query = following.group(1) if following else ""

    def check_access(self) -> None:
        """Refuse a gated repository that this user may not read: its files are listed to all."""
        answer = self.send(Request("GET", self.api("auth-check")))
        if answer.status in (401, 403):  # a mirror may not know the question
            raise self.error(answer)

    def ask(self, request: Request) -> tuple[Any, Mapping[str, str]]:
        """What the Hub answers, and the headers of the answer."""
        answer = self.send(request)
        if answer.status != 200:
            raise self.error(answer)
        return decoded(answer), answer.headers

    def send(self, request: Request) -> Answer:
        full = request._replace(headers={**request.headers, **self.headers})
        return self.client.fetch(lambda: full, self.uri, follow=request.method != "HEAD")

    def missing_entry(self) -> NotFoundError:
        wanted, revision = self.place.path, self.place.revision
        return NotFoundError(
            f"{self.uri}: there is no file or folder {wanted} at revision {revision}; "
            f"see {self.page}/tree/{quote(revision, safe='')}"
        )

    def error(self, answer: Answer) -> RunnerError:
        """What a refusal means, and what to do about it."""
        status, name = answer.status, self.place.repository
        code = answer.headers.get("x-error-code", "")
        token = f"the token in {self.source}" if self.source else "HF_TOKEN, which is not set"
        if code == "GatedRepo":
            return CredentialError(
                f"{self.uri}: {name} is gated: accept its licence or ask for access at "
                f"{self.page}, and check {token}: it must be of the same account, and may read "
                "gated repositories"
            )
        if code == "RevisionNotFound":
            return NotFoundError(
                f"{self.uri}: {name} has no branch, tag or commit {self.place.revision}; "
                f"see {self.page}/tree/main"
            )
        if code == "EntryNotFound":
            return self.missing_entry()
        if code == "RepoNotFound" or status == 404:
            return NotFoundError(
                f"{self.uri}: the Hub has no {self.place.kind} {name}: check the name; "
                f"if it is private, check {token}"
            )
        if status in (401, 403):
            return CredentialError(
                f"{self.uri}: access denied ({status}): check {token}; "
                f"one that may read {name} is made at {self.endpoint}/settings/tokens"
            )
        hint = "; with HF_TOKEN it allows more requests" if status == 429 else ""
        return TransferError(f"{self.uri}: the Hub keeps answering {status}{hint}; try again later")


def _token(env: Mapping[str, str]) -> tuple[str, str]:
    """The token and where it was found; both "" without one."""
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"):
        if env.get(name, "").strip():
            return env[name].strip(), name
    cache = env.get("XDG_CACHE_HOME") or os.path.join(env.get("HOME") or "/", ".cache")
    home = env.get("HF_HOME") or os.path.join(cache, "huggingface")
    path = env.get("HF_TOKEN_PATH") or os.path.join(home, "token")
    try:
        with open(path, encoding="utf-8") as file:
            token = file.read().strip()
    except (OSError, ValueError):  # no login here, or of another user; or not text
        token = ""
    return token, path if token else ""
