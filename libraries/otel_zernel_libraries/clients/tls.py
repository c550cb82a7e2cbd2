"""Reads and checks the certificates of a `tls` block, and reads the files again when they change."""

import asyncio
import ssl
from dataclasses import dataclass
from pathlib import Path

from otel_zernel.component import Context
from otel_zernel.errors import CannotStart
from otel_zernel_libraries.clients.tls_config import TlsConfig
from otel_zernel_libraries.files.writing import file_with

# Where Linux distributions keep all trusted authorities in one file; the list of Go's crypto/x509.
_SYSTEM_AUTHORITIES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/pki/tls/cacert.pem",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/cert.pem",
)
_VERSIONS = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}


@dataclass(frozen=True, slots=True)
class Pem:
    """Certificates in PEM; None for one that is not configured."""

    ca: bytes | None = None
    certificate: bytes | None = None
    key: bytes | None = None


class TlsFiles:
    """The certificates of one exporter. Call `read` once, then `changed` before each request."""

    def __init__(self, config: TlsConfig, context: Context) -> None:
        self._config = config
        self._context = context
        self._setting = f"{context.path}::tls"
        self._pem = Pem()
        self._checked_at = 0.0

    async def read(self) -> Pem:
        """The certificates, checked. Raises `CannotStart`, which names an unusable one."""
        self._checked_at = self._context.clock.monotonic()
        self._pem = await asyncio.to_thread(read_pem, self._config, self._setting)
        return self._pem

    async def changed(self) -> Pem | None:
        """The certificates if the files changed, else None. Checks every `reload_interval`.

        While the new files are unusable, the old contents stay in use.
        """
        interval = self._config.reload_interval
        if not interval or self._context.clock.monotonic() < self._checked_at + interval:
            return None
        known = self._pem
        try:
            return pem if (pem := await self.read()) != known else None
        except CannotStart as error:
            self._context.logger.warning("The changed TLS files are unusable, the old ones stay in use: %s", error)
            return None


def read_pem(config: TlsConfig, setting: str) -> Pem:
    """The certificates. Raises `CannotStart`, which names a missing or unusable file."""
    key_pem = config.key_pem.get_secret_value() if config.key_pem else None
    pem = Pem(
        _content(config.ca_file, config.ca_pem, f"{setting}::ca_file"),
        _content(config.cert_file, config.cert_pem, f"{setting}::cert_file"),
        _content(config.key_file, key_pem, f"{setting}::key_file"),
    )
    client_context(pem, config, setting)
    if not config.include_system_ca_certs_pool:
        return pem
    system = _system_authorities(f"{setting}::include_system_ca_certs_pool")
    return Pem(system + b"\n" + (pem.ca or b""), pem.certificate, pem.key)


def _content(file: str | None, text: str | None, setting: str) -> bytes | None:
    if text is not None:
        return text.encode()
    try:
        return Path(file).read_bytes() if file else None
    except OSError as error:
        raise CannotStart(f"{setting}: cannot read {file}: {error.strerror}") from error


def _system_authorities(setting: str) -> bytes:
    configured = ssl.get_default_verify_paths().cafile
    for file in filter(None, (configured, *_SYSTEM_AUTHORITIES)):
        if Path(file).is_file():
            return Path(file).read_bytes()
    raise CannotStart(f"{setting}: this system has no file of trusted authorities; install ca-certificates")


def client_context(pem: Pem, config: TlsConfig, setting: str) -> ssl.SSLContext:
    """The client's TLS context for connections of Python. Raises `CannotStart`, which names an unusable file."""
    context = _trusting(pem, config, setting)
    context.minimum_version = _VERSIONS[config.min_version]
    if config.max_version:
        context.maximum_version = _VERSIONS[config.max_version]
    _load_client_certificate(context, pem, config, setting)
    if config.insecure_skip_verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _trusting(pem: Pem, config: TlsConfig, setting: str) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cadata=None if pem.ca is None else _text(pem.ca))
    except ssl.SSLError as error:
        key, place = _named("ca", config)
        raise CannotStart(f"{setting}::{key}: {place} contains no PEM certificate") from error


def _text(pem: bytes) -> str:
    """Comments between certificates may have any encoding."""
    return pem.decode("ascii", "ignore")


def _load_client_certificate(context: ssl.SSLContext, pem: Pem, config: TlsConfig, setting: str) -> None:
    if pem.certificate is None or pem.key is None:
        return
    try:
        with file_with(pem.certificate) as certificate, file_with(pem.key) as key:
            context.load_cert_chain(certificate, key, password="")  # without a password OpenSSL would prompt for one
    except ssl.SSLError as error:
        (name, place), (_, key_place) = _named("cert", config), _named("key", config)
        raise CannotStart(
            f"{setting}::{name}: {place} and {key_place} are not a PEM certificate and its key"
            f" without a password ({error.reason})"
        ) from error


def _named(part: str, config: TlsConfig) -> tuple[str, str]:
    """The configured key of a part (`ca`, `cert`, `key`), and the words for its content in a message."""
    file: str | None = getattr(config, f"{part}_file")
    return (f"{part}_file", file) if file else (f"{part}_pem", f"{part}_pem")
