"""Who is who in a cluster: certificates, and the kubeconfigs that carry them."""

from __future__ import annotations

import base64
import datetime
import ipaddress
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_LIFE = datetime.timedelta(days=30)
_CLOCKS_DIFFER = datetime.timedelta(hours=1)


def make_authority(folder: Path) -> None:
    """A certificate authority (`ca`), and the key that signs tokens of service accounts (`sa`)."""
    key = _new_key(folder, "ca")
    name = _name("tao-lab", ())
    certificate = (
        _builder(name, name, key)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    (folder / "ca.crt").write_bytes(_pem(certificate))
    public = _new_key(folder, "sa").public_key()
    kind = serialization.PublicFormat.SubjectPublicKeyInfo
    (folder / "sa.pub").write_bytes(public.public_bytes(serialization.Encoding.PEM, kind))


def issue_user(folder: Path, file: str, user: str, groups: Sequence[str] = ()) -> None:
    """A certificate by which the API server knows a user and its groups."""
    _issue(folder, file, _name(user, groups), ExtendedKeyUsageOID.CLIENT_AUTH, ())


def issue_server(folder: Path, file: str, names: Sequence[str]) -> None:
    """A certificate for a server at these names and addresses."""
    _issue(folder, file, _name(file, ()), ExtendedKeyUsageOID.SERVER_AUTH, names)


def user_of_certificate(folder: Path, file: str) -> dict[str, str]:
    """The user of a kubeconfig who has that certificate."""
    return {
        "client-certificate-data": _encoded(folder / f"{file}.crt"),
        "client-key-data": _encoded(folder / f"{file}.key"),
    }


def write_kubeconfig(
    path: Path, server: str, authority: Path, user: dict[str, Any], namespace: str
) -> None:
    """A kubeconfig that needs no other file."""
    cluster = {"server": server, "certificate-authority-data": _encoded(authority)}
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "lab",
        "clusters": [{"name": "lab", "cluster": cluster}],
        "users": [{"name": "lab", "user": user}],
        "contexts": [
            {"name": "lab", "context": {"cluster": "lab", "user": "lab", "namespace": namespace}}
        ],
    }
    path.touch(mode=0o600)
    path.write_text(yaml.safe_dump(content))


def _issue(
    folder: Path, file: str, subject: x509.Name, usage: x509.ObjectIdentifier, names: Sequence[str]
) -> None:
    authority = serialization.load_pem_private_key((folder / "ca.key").read_bytes(), None)
    assert isinstance(authority, ec.EllipticCurvePrivateKey)
    issuer = x509.load_pem_x509_certificate((folder / "ca.crt").read_bytes()).subject
    request = _builder(subject, issuer, _new_key(folder, file)).add_extension(
        x509.ExtendedKeyUsage([usage]), critical=False
    )
    if names:
        alternatives = x509.SubjectAlternativeName([_general_name(name) for name in names])
        request = request.add_extension(alternatives, critical=False)
    (folder / f"{file}.crt").write_bytes(_pem(request.sign(authority, hashes.SHA256())))


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.timezone.utc)
    return x509.CertificateBuilder(
        issuer_name=issuer,
        subject_name=subject,
        public_key=key.public_key(),
        serial_number=x509.random_serial_number(),
        not_valid_before=now - _CLOCKS_DIFFER,
        not_valid_after=now + _LIFE,
    )


def _new_key(folder: Path, file: str) -> ec.EllipticCurvePrivateKey:
    # A tenth of the time that RSA takes.
    key = ec.generate_private_key(ec.SECP256R1())
    place = folder / f"{file}.key"
    place.touch(mode=0o600)
    place.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.TraditionalOpenSSL,
            serialization.NoEncryption(),
        )
    )
    return key


def _name(user: str, groups: Sequence[str]) -> x509.Name:
    return x509.Name(
        [
            *(x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups),
            x509.NameAttribute(NameOID.COMMON_NAME, user),
        ]
    )


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _encoded(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()
