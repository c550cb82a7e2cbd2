"""The `tls` section of a server, with the keys and defaults of the OpenTelemetry Collector."""

from typing import Annotated, Final, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from otel_zernel.types import Duration, ReadableFile, Secret, Section

_CURVES: Final = {"P256": "prime256v1", "P384": "secp384r1", "P521": "secp521r1", "X25519": "X25519"}
"""OpenSSL's names of the curves by Go's names."""
_TLS13_CIPHERS: Final = ("TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256")
"""Always enabled with TLS 1.3, in Go too."""
_TLS12_CIPHERS: Final = {
    f"TLS_{exchange}_WITH_{cipher}": f"{exchange.replace('_', '-')}-{name}"
    for exchange in ("ECDHE_RSA", "ECDHE_ECDSA")
    for cipher, name in (
        ("AES_128_GCM_SHA256", "AES128-GCM-SHA256"),
        ("AES_256_GCM_SHA384", "AES256-GCM-SHA384"),
        ("CHACHA20_POLY1305_SHA256", "CHACHA20-POLY1305"),
        ("CHACHA20_POLY1305", "CHACHA20-POLY1305"),
        ("AES_128_CBC_SHA", "AES128-SHA"),
        ("AES_256_CBC_SHA", "AES256-SHA"),
    )
}
"""OpenSSL's names by Go's names (`tls.CipherSuites`), without those that Go calls insecure."""


def _version(value: object) -> object:
    text = str(value)
    if text in ("1.0", "1.1"):
        raise ValueError(f"TLS {text} is not secure (RFC 8996): use 1.2 or 1.3")
    return text


def _cipher(name: str) -> str:
    if name not in _TLS12_CIPHERS and name not in _TLS13_CIPHERS:
        raise ValueError(
            f"{name!r} is not a secure cipher suite; valid names: {', '.join((*_TLS12_CIPHERS, *_TLS13_CIPHERS))}"
        )
    return name


def _curve(name: str) -> str:
    if name not in _CURVES:
        raise ValueError(f"{name!r} is not supported; valid curves: {', '.join(_CURVES)}")
    return name


def _one(curves: tuple[str, ...]) -> tuple[str, ...]:
    if len(curves) > 1:
        raise ValueError("Python's TLS supports one curve only: keep the first")
    return curves


class ServerTlsConfig(Section):
    """TLS of a server. The certificate and its key are required, as files or as PEM texts."""

    cert_file: Annotated[str | None, ReadableFile()] = None
    """PEM file of the server's certificate, followed by its intermediate certificates."""
    cert_pem: str | None = None
    """The same as a text."""
    key_file: Annotated[str | None, ReadableFile()] = None
    """PEM file of the private key, without a password."""
    key_pem: Secret | None = None
    """The same as a text. It is never printed."""
    ca_file: Annotated[str | None, ReadableFile()] = None
    """Without effect on a server; the file must be readable. Authorities of clients are in `client_ca_file`."""
    client_ca_file: Annotated[str | None, ReadableFile()] = None
    """PEM file of the authorities that sign clients' certificates. If it is set, every client needs a certificate."""
    client_ca_file_reload: bool = False
    """Read `client_ca_file` again when its content changes. Checked every second."""
    include_system_ca_certs_pool: bool = False
    """Accept clients' certificates of the system's authorities too."""
    min_version: Annotated[Literal["1.2", "1.3"], BeforeValidator(_version)] = "1.2"
    """The oldest version of TLS."""
    max_version: Annotated[Literal["", "1.2", "1.3"], BeforeValidator(_version)] = ""
    """The newest version of TLS. Empty for the newest that OpenSSL has."""
    cipher_suites: tuple[Annotated[str, AfterValidator(_cipher)], ...] = ()
    """Cipher suites for TLS 1.2, by the names of IANA. Empty for OpenSSL's. Those of TLS 1.3 are always enabled."""
    curve_preferences: Annotated[tuple[Annotated[str, AfterValidator(_curve)], ...], AfterValidator(_one)] = ()
    """The curve of the key exchange: P256, P384, P521 or X25519."""
    reload_interval: Annotated[Duration, Field(ge=0)] = 0.0
    """Seconds between checks of the certificate and its key for changes; 0 for never."""

    @model_validator(mode="after")
    def _has_one_certificate(self) -> Self:
        for name in ("cert", "key"):
            file, text = getattr(self, f"{name}_file"), getattr(self, f"{name}_pem")
            if file and text:
                raise ValueError(f"{name}_file and {name}_pem exclude each other: remove one")
            if not file and not text:
                raise ValueError(f"a server needs a certificate and its key: set {name}_file or {name}_pem")
        return self

    @model_validator(mode="after")
    def _versions_are_in_order(self) -> Self:
        if self.max_version and self.max_version < self.min_version:
            raise ValueError(f"max_version {self.max_version} is older than min_version {self.min_version}")
        return self

    @model_validator(mode="after")
    def _reloads_an_existing_file(self) -> Self:
        if self.client_ca_file_reload and not self.client_ca_file:
            raise ValueError("client_ca_file_reload needs client_ca_file")
        return self

    @property
    def openssl_ciphers(self) -> str:
        """The cipher suites for TLS 1.2 in OpenSSL's notation. Empty for the defaults."""
        return ":".join(_TLS12_CIPHERS[name] for name in self.cipher_suites if name in _TLS12_CIPHERS)

    @property
    def openssl_curve(self) -> str:
        """The curve by OpenSSL's name. Empty for the defaults."""
        return _CURVES[self.curve_preferences[0]] if self.curve_preferences else ""
