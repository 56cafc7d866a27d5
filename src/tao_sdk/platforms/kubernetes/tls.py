"""How the server proves itself, and a client certificate proves us."""

from __future__ import annotations

import contextlib
import os
import ssl
from collections.abc import Iterator
from pathlib import Path

from tao_sdk.platforms.kubernetes.credentials import COULD_NOT, Credential, NoAccessError


def context(authority: str, insecure: bool, credential: Credential) -> ssl.SSLContext:
    """For connections to one server. Without an authority, those of the system are trusted."""
    try:
        made = ssl.create_default_context(cadata=authority or None)
    except ssl.SSLError:
        raise NoAccessError(f"{COULD_NOT}: its certificate-authority is no certificate") from None
    # Python 3.13 began to insist on extensions that the authorities of many clusters do not have.
    made.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if insecure:
        made.check_hostname = False
        made.verify_mode = ssl.CERT_NONE
    if credential.certificate:
        _load(made, credential)
    return made


def _load(made: ssl.SSLContext, credential: Credential) -> None:
    both = f"{credential.certificate.rstrip()}\n{credential.key.reveal()}".encode("ascii")
    try:
        with _private_file(both) as path:
            made.load_cert_chain(path, password=_no_password)
    except ssl.SSLError as error:
        wrong = "do not belong together" if "MISMATCH" in str(error) else "cannot be read"
        raise NoAccessError(f"{COULD_NOT}: client certificate and key {wrong}") from None


def _no_password() -> str:
    # Without this, OpenSSL would ask whoever sits at the terminal.
    raise NoAccessError(f"{COULD_NOT}: the client key has a passphrase; use a key without one")


@contextlib.contextmanager
def _private_file(content: bytes) -> Iterator[str]:
    """A path for OpenSSL, which reads certificates and keys from files only."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("tao-client-certificate")
        path = f"/proc/self/fd/{descriptor}"
        is_named = False
    else:
        import tempfile

        descriptor, path = tempfile.mkstemp(prefix="tao-")  # of mode 0600
        is_named = True
    try:
        with os.fdopen(descriptor, "wb", closefd=False) as file:
            file.write(content)
        yield path
    finally:
        os.close(descriptor)
        if is_named:
            Path(path).unlink()
