"""Signed requests to a store, and what its answers mean."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256

from ..http import Answer, Client, FilePart, Patience, Sent
from ..remote import Request
from .addresses import Addresses, Place
from .credentials import CredentialChain, profile_settings
from .signing import EMPTY_SHA256, Signer, encoded_query

_NONE: Mapping[str, str] = {}


class Store:
    """One object store, as the environment describes it."""

    def __init__(self, env: Mapping[str, str], patience: Patience | None = None) -> None:
        self._env = env
        self._chain = CredentialChain(env)
        self._addresses = Addresses(env)
        self._region = ""
        self._regions: dict[str, str] = {}
        self._signers: dict[str, Signer] = {}
        self.client = Client(env, patience)
        self.is_encrypted = self._addresses.is_encrypted
        self.tags_are_md5 = True
        """No tag was seen that is not."""
        self.unfinished: dict[str, Place] = {}
        """Uploads in parts that have begun, by their ids."""
        self.gives_up = False

    def region_of(self, bucket: str) -> str:
        """The region of a bucket, as far as it is known."""
        if not self._region:
            names = ("AWS_REGION", "AWS_DEFAULT_REGION", "CLOUD_REGION")
            named = next((self._env[name] for name in names if self._env.get(name)), "")
            self._region = named or profile_settings(self._env).get("region") or "us-east-1"
        return self._regions.get(bucket, self._region)

    def request(
        self,
        method: str,
        place: Place,
        query: Mapping[str, str] = _NONE,
        headers: Mapping[str, str] = _NONE,
        body: bytes = b"",
        payload: str = "",
    ) -> Request:
        """A request that may be sent within some minutes. `payload`: the body's SHA-256."""
        region = self.region_of(place.bucket)
        address = self._addresses.of(place, region)
        text = encoded_query(query)
        if not self._chain.is_anonymous:
            payload = payload or (sha256(body).hexdigest() if body else EMPTY_SHA256)
            signer = self._signer(region)
            headers = signer.headers(method, address.host, address.path, text, headers, payload)
        url = f"{address.base}{address.path}" + (f"?{text}" if text else "")
        return Request(method, url, headers, body)

    def _signer(self, region: str) -> Signer:
        credentials = self._chain.get()
        signer = self._signers.get(region)
        if not signer or signer.credentials is not credentials:
            signer = self._signers[region] = Signer(credentials, region)
        return signer

    def ask(
        self,
        method: str,
        place: Place,
        query: Mapping[str, str] = _NONE,
        headers: Mapping[str, str] = _NONE,
        body: bytes | FilePart = b"",
        payload: str = "",
        sent: Sent | None = None,
    ) -> Answer:
        """The final answer, good or bad. The region of a bucket is learnt on the way.

        `sent` is this request, if it is on its way.
        """
        data = body if isinstance(body, bytes) else b""
        for is_second in (False, True):
            # What is on its way was signed before others may have learnt the region.
            region = "" if sent else self.region_of(place.bucket)
            answer = self.client.fetch(
                lambda: self.request(method, place, query, headers, data, payload),
                place.uri,
                body,
                follow=False,
                sent=sent,
            )
            sent = None
            if is_second or answer.status < 300:
                break
            right = answer.region
            if not right or right == region:
                break
            self._regions[place.bucket] = right
        return answer

    def call(
        self,
        method: str,
        place: Place,
        query: Mapping[str, str] = _NONE,
        headers: Mapping[str, str] = _NONE,
        sent: Sent | None = None,
    ) -> Answer:
        """Ask, and raise unless the answer is a success."""
        answer = self.ask(method, place, query, headers, sent=sent)
        if answer.status >= 300 or answer.code:
            raise answer.error(place.uri)
        return answer
