"""Find secret values in a text without having kept them. Pure.

Some platforms never show a secret again. So a process that submits a job keeps keyed hashes of
every form in which its secrets may be printed. The key is a credential that every process with
access to the job has, and no file: the hashes alone are of no use.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator

from tao_sdk.secrets import Secret

# How many characters are compared at every position of a text; the whole value only after a hit.
_HEAD_CHARACTERS = 16
_KEY_CHECK = "the same key"


class Fingerprints:
    """Makes and reads the fingerprints of one job."""

    def __init__(self, key: Secret, job_id: str) -> None:
        self._key = hashlib.sha256(f"{job_id} {key.reveal()}".encode()).digest()

    def make(self, secrets: Iterable[Secret]) -> str:
        """The fingerprints, as a line of JSON."""
        forms = {form for secret in secrets for form in secret.spellings()}
        entries = sorted(
            (len(form), self._hash(form[:_HEAD_CHARACTERS]), self._hash(form)) for form in forms
        )
        return json.dumps({"key": self._hash(_KEY_CHECK), "values": entries})

    def find(self, made: str, text: str) -> list[Secret] | None:
        """The secrets that occur in a text; None if the fingerprints have another key."""
        kept = json.loads(made)
        if kept["key"] != self._hash(_KEY_CHECK):
            return None
        wanted: dict[int, dict[str, list[tuple[int, str]]]] = {}
        for length, head, whole in kept["values"]:
            by_head = wanted.setdefault(min(length, _HEAD_CHARACTERS), {})
            by_head.setdefault(head, []).append((length, whole))
        found = {
            value for width, heads in wanted.items() for value in self._scan(text, width, heads)
        }
        return [Secret(value) for value in found]

    def _scan(
        self, text: str, width: int, heads: dict[str, list[tuple[int, str]]]
    ) -> Iterator[str]:
        for start in range(len(text) - width + 1):
            for length, whole in heads.get(self._hash(text[start : start + width]), ()):
                value = text[start : start + length]
                if self._hash(value) == whole:
                    yield value

    def _hash(self, text: str) -> str:
        data = text.encode(errors="surrogatepass")
        return hashlib.blake2b(data, digest_size=12, key=self._key).hexdigest()
