"""Certificates for tests of TLS."""

import datetime
import ipaddress
import ssl
from dataclasses import dataclass
from pathlib import Path

import grpc
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID


@dataclass(frozen=True)
class CertificateFiles:
    """A certificate and its key, as files."""

    cert_file: str
    key_file: str

    def server_credentials(self, client_ca: str | None = None) -> grpc.ServerCredentials:
        pair = (Path(self.key_file).read_bytes(), Path(self.cert_file).read_bytes())
        root = Path(client_ca).read_bytes() if client_ca else None
        return grpc.ssl_server_credentials([pair], root, require_client_auth=client_ca is not None)

    def server_context(self, client_ca: str | None = None) -> ssl.SSLContext:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=client_ca)
        context.load_cert_chain(self.cert_file, self.key_file)
        context.verify_mode = ssl.CERT_REQUIRED if client_ca else ssl.CERT_NONE
        return context


# Python 3.13 and newer require this extension and both key identifiers (RFC 5280).
_SIGNS_CERTIFICATES = x509.KeyUsage(
    key_cert_sign=True,
    crl_sign=True,
    digital_signature=False,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    encipher_only=False,
    decipher_only=False,
)


class Authority:
    """A certificate authority for tests."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test authority")])
        constraints = x509.BasicConstraints(ca=True, path_length=None)
        certificate = self._sign(self._name, self._key, constraints, _SIGNS_CERTIFICATES)
        self.ca_file = self._write("ca.pem", certificate.public_bytes(serialization.Encoding.PEM))

    def issue(self, name: str, file: str | None = None, *, expired: bool = False) -> CertificateFiles:
        """A certificate for a host (and 127.0.0.1) or a client. The same `file` overwrites its older files."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        names = x509.SubjectAlternativeName([x509.DNSName(name), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
        usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
        certificate = self._sign(subject, key, names, usage, expired=expired)
        private = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        return CertificateFiles(
            self._write(f"{file or name}.pem", certificate.public_bytes(serialization.Encoding.PEM)),
            self._write(f"{file or name}.key", private),
        )

    def channel_credentials(self, client: CertificateFiles | None = None) -> grpc.ChannelCredentials:
        """Those of a client that trusts this authority."""
        names = (self.ca_file, *((client.key_file, client.cert_file) if client else ()))
        return grpc.ssl_channel_credentials(*(Path(name).read_bytes() for name in names))

    def client_context(self, client: CertificateFiles | None = None) -> ssl.SSLContext:
        """That of a client that trusts this authority."""
        context = ssl.create_default_context(cafile=self.ca_file)
        if client:
            context.load_cert_chain(client.cert_file, client.key_file)
        return context

    def _sign(
        self,
        subject: x509.Name,
        key: ec.EllipticCurvePrivateKey,
        *extensions: x509.ExtensionType,
        expired: bool = False,
    ) -> x509.Certificate:
        now = datetime.datetime.now(datetime.UTC)
        builder = x509.CertificateBuilder(self._name, subject, key.public_key(), x509.random_serial_number())
        builder = builder.not_valid_before(now - datetime.timedelta(days=2))
        builder = builder.not_valid_after(now + datetime.timedelta(days=-1 if expired else 1))
        keys = (
            x509.SubjectKeyIdentifier.from_public_key(key.public_key()),
            x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()),
        )
        for extension in (*extensions, *keys):
            builder = builder.add_extension(extension, critical=isinstance(extension, x509.BasicConstraints))
        return builder.sign(self._key, hashes.SHA256())

    def _write(self, name: str, content: bytes) -> str:
        path = self._folder / name
        path.write_bytes(content)
        return str(path)
