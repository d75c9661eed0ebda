"""Certificates for servers of tests: an authority of our own, and what it signs or ought not to have."""

from __future__ import annotations

import ipaddress
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

DAY = timedelta(days=1)


class CertificateAuthority:
    """Signs whatever it is asked to. `file` holds its own certificate."""

    def __init__(self, folder: Path, name: str = "an authority for tests") -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name(name)
        builder = _builder(self._name, self._name, self._key, days=(-1, 1))
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        self.file = folder / "authority.pem"
        self.file.write_bytes(_pem(builder.sign(self._key, hashes.SHA256())))

    def context(
        self, host: str = "127.0.0.1", *, days: tuple[int, int] = (-1, 1), self_signed: bool = False
    ) -> ssl.SSLContext:
        """What a server at `host` needs, with a certificate that is valid from and until so many days on."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = _name("a server for tests")
        builder = _builder(subject, subject if self_signed else self._name, key, days=days)
        names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(host))])
        certificate = builder.add_extension(names, critical=False).sign(
            key if self_signed else self._key, hashes.SHA256()
        )
        file = self._folder / "server.pem"
        secret = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        file.write_bytes(secret + _pem(certificate))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(file)
        return context


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, *, days: tuple[int, int]
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + days[0] * DAY)
        .not_valid_after(now + days[1] * DAY)
    )


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)
