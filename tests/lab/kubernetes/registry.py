"""A registry that gives images to those who know the password.

`python -m lab.kubernetes.registry ADDRESS PORT FOLDER`, where the folder holds images as
`lab.kubernetes.images` lays them out.
"""

from __future__ import annotations

import base64
import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from lab.docker.registry import PASSWORD, USER
from lab.kubernetes.images import NAME

_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_LETS_IN = "Basic " + base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    folder: Path

    def do_GET(self) -> None:
        if self.headers.get("Authorization") != _LETS_IN:
            asked = {"WWW-Authenticate": 'Basic realm="lab"'}
            self._answer(401, b'{"errors": [{"code": "UNAUTHORIZED"}]}', **asked)
            return
        parts = self.path.removeprefix("/v2/").rsplit("/", 2)
        if parts == [""]:
            self._answer(200, b"{}")
        elif len(parts) == 3 and parts[1] == "manifests":
            self._give(self._digest(parts[0], parts[2]), _MANIFEST)
        else:
            self._give(parts[-1], "application/octet-stream")

    def do_HEAD(self) -> None:
        self.do_GET()

    def _give(self, digest: str, kind: str) -> None:
        name = digest.removeprefix("sha256:")
        blob = self.folder / "blobs" / "sha256" / name
        if name.isalnum() and blob.exists():
            headers = {"Content-Type": kind, "Docker-Content-Digest": digest}
            self._answer(200, blob.read_bytes(), **headers)
        else:
            self._answer(404, b'{"errors": [{"code": "MANIFEST_UNKNOWN"}]}')

    def _digest(self, repository: str, reference: str) -> str:
        """What a tag stands for; a digest stands for itself; "" for an unknown tag."""
        if reference.startswith("sha256:"):
            return reference
        index = json.loads((self.folder / "index.json").read_text())
        known = {entry["annotations"][NAME]: entry["digest"] for entry in index["manifests"]}
        digest: str = known.get(f"{repository}:{reference}", "")
        return digest

    def _answer(self, code: int, body: bytes, **headers: str) -> None:
        self.send_response(code)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


if __name__ == "__main__":
    address, port, _Handler.folder = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])
    ThreadingHTTPServer((address, port), _Handler).serve_forever()
