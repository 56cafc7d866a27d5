"""The HTTP interface of the Hugging Face Hub, on loopback.

Repositories with commits, branches and tags; small files at the Hub itself (behind a relative
redirect, as there), large ones by LFS on another host; pages, gates, private repositories.
The real `huggingface_hub` client works with it, which a test proves.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import parse_qs, quote

from lab.wire import Call, Registry, Reply

LFS_FROM = 1000
"""Files of so many bytes and more are kept by LFS."""


@dataclass
class Repository:
    kind: str
    """`models` or `datasets`."""
    id: str
    gated: bool = False
    private: bool = False
    refs: dict[str, str] = field(default_factory=dict)
    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)

    def commit(self, files: Mapping[str, bytes], ref: str = "main") -> str:
        """Make a commit of these files and let a branch or tag point at it."""
        names = "".join(f"{path} {git_sha1(data)}\n" for path, data in sorted(files.items()))
        sha = hashlib.sha1((self.id + names).encode()).hexdigest()  # noqa: S324 - as stores and the Hub do
        self.commits[sha] = dict(files)
        self.refs[ref] = sha
        return sha


def git_sha1(data: bytes) -> str:
    """What git calls a file's content."""
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()  # noqa: S324 - as stores and the Hub do


class Hub(Registry):
    """A Hub and its storage host, for the length of a `with`."""

    def __init__(self, page_size: int = 1000) -> None:
        self.page_size = page_size
        self.tokens: set[str] = set()
        self.licences: set[tuple[str, str]] = set()
        """(token, repository): whose holder accepted which licence."""
        self.repositories: dict[tuple[str, str], Repository] = {}
        self.open()
        self.public_url = self.server.url
        """Where it believes itself to be, which a mirror in front of it does not change."""

    @property
    def url(self) -> str:
        return self.server.url

    def add(
        self, kind: str, name: str, files: Mapping[str, bytes], gated: bool = False
    ) -> Repository:
        repository = self.repositories[kind, name] = Repository(kind, name, gated)
        repository.commit(files)
        return repository

    def _answer(self, call: Call) -> Reply:
        if call.bearer and call.bearer not in self.tokens:
            return _error(401, "", "Invalid credentials in Authorization header")
        parts = call.parts
        if parts[:2] == ["api", "resolve-cache"]:
            return self._small_file(call, parts[2:])
        if parts[0] == "api":
            kind, rest = parts[1], parts[2:]
        else:
            kind = "datasets" if parts[0] == "datasets" else "models"
            rest = parts[1:] if kind == "datasets" else parts
        for length in (2, 1):
            repository = self.repositories.get((kind, "/".join(rest[:length])))
            if repository and not (repository.private and not call.bearer):
                return self._ask(call, repository, rest[length:])
        if not call.bearer:  # nobody learns from the answer which private repositories exist
            return _error(401, "RepoNotFound", "Invalid username or password.")
        return _error(404, "RepoNotFound", "Repository not found")

    def _ask(self, call: Call, repository: Repository, rest: list[str]) -> Reply:
        verb, rest = (rest[0], rest[1:]) if rest else ("revision", ["main"])
        if verb in ("resolve", "auth-check") and not self._may_read(call, repository):
            status = 403 if call.bearer else 401
            return _error(status, "GatedRepo", f"Access to {repository.id} is restricted.")
        if verb == "auth-check":
            return _json({})
        revision, path = rest[0], "/".join(rest[1:])
        sha = repository.refs.get(revision, revision)
        if sha not in repository.commits:
            return _error(404, "RevisionNotFound", f"Invalid rev id: {revision}")
        files = repository.commits[sha]
        if verb == "revision":
            return _json(
                {
                    "_id": "0",
                    "id": repository.id,
                    "sha": sha,
                    "private": repository.private,
                    "gated": "manual" if repository.gated else False,
                    "tags": [],
                    "downloads": 0,
                    "likes": 0,
                    "siblings": [{"rfilename": name} for name in sorted(files)],
                }
            )
        if verb == "tree":
            return self._tree(call, files, path)
        if verb == "paths-info":
            wanted = parse_qs(call.body.decode()).get("paths", [])
            known = {entry["path"]: entry for entry in _entries(files)}
            return _json([known[name] for name in wanted if name in known])
        if path not in files:
            return _error(404, "EntryNotFound", "Entry not found")
        return self._resolve(repository, sha, path, files[path])

    def _may_read(self, call: Call, repository: Repository) -> bool:
        return not repository.gated or (call.bearer, repository.id) in self.licences

    def _tree(self, call: Call, files: Mapping[str, bytes], folder: str) -> Reply:
        below = folder + "/" if folder else ""
        entries = [entry for entry in _entries(files) if str(entry["path"]).startswith(below)]
        if not entries:
            return _error(404, "EntryNotFound", f"{folder} does not exist")
        if call.query.get("recursive", "").lower() != "true":
            entries = [e for e in entries if "/" not in str(e["path"])[len(below) :]]
        start = int(call.query.get("cursor", 0))
        page, following = entries[start : start + self.page_size], start + self.page_size
        if following >= len(entries):
            return _json(page)
        query = f"recursive={call.query.get('recursive')}&cursor={following}"
        link = f"{self.public_url}{call.path}?{query}"
        return _json(page, {"Link": f'<{link}>; rel="next"'})

    def _resolve(self, repository: Repository, sha: str, path: str, data: bytes) -> Reply:
        headers = {"X-Repo-Commit": sha, "Accept-Ranges": "bytes"}
        if len(data) < LFS_FROM:
            where = f"/api/resolve-cache/{repository.kind}/{repository.id}/{sha}/{quote(path)}"
            etag = {"ETag": f'"{git_sha1(data)}"', "X-Linked-Size": str(len(data))}
            return Reply(307, b"", {**headers, **etag, "Location": where})
        digest = hashlib.sha256(data).hexdigest()
        linked = {"X-Linked-Size": str(len(data)), "X-Linked-Etag": f'"{digest}"'}
        where = self.storage.signed_url(digest, self.storage.blobs.get(digest, data))
        return Reply(302, b"", {**headers, **linked, "Location": where})

    def _small_file(self, call: Call, parts: list[str]) -> Reply:
        for length in (2, 1):
            repository = self.repositories.get((parts[0], "/".join(parts[1 : 1 + length])))
            if repository:
                sha, path = parts[1 + length], "/".join(parts[2 + length :])
                hidden = repository.private and not call.bearer
                if hidden or not self._may_read(call, repository):
                    return _error(401, "RepoNotFound", "Invalid username or password.")
                data = repository.commits[sha][path]
                headers = {"ETag": f'"{git_sha1(data)}"', "X-Repo-Commit": sha}
                return Reply(200, data, headers, ranged=True)
        return _error(404, "RepoNotFound", "Repository not found")


def _entries(files: Mapping[str, bytes]) -> list[dict[str, object]]:
    """Files and folders, as the Hub lists them."""
    folders = {path[:at] for path in files for at, char in enumerate(path) if char == "/"}
    found: dict[str, dict[str, object]] = {
        folder: {"type": "directory", "path": folder, "size": 0, "oid": git_sha1(folder.encode())}
        for folder in folders
    }
    for path, data in files.items():
        size = len(data)
        found[path] = {"type": "file", "path": path, "size": size, "oid": git_sha1(data)}
        if size >= LFS_FROM:
            digest = hashlib.sha256(data).hexdigest()
            pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{digest}\n"
            pointer += f"size {size}\n"
            found[path]["oid"] = git_sha1(pointer.encode())
            found[path]["lfs"] = {"oid": digest, "size": size, "pointerSize": len(pointer)}
    return [found[path] for path in sorted(found)]


def _json(value: object, headers: Mapping[str, str] | None = None) -> Reply:
    kind = {"Content-Type": "application/json; charset=utf-8"}
    return Reply(200, json.dumps(value).encode(), {**kind, **(headers or {})})


def _error(status: int, code: str, message: str) -> Reply:
    headers = {"Content-Type": "application/json", "X-Error-Message": message}
    if code:
        headers["X-Error-Code"] = code
    return Reply(status, json.dumps({"error": message}).encode(), headers)
