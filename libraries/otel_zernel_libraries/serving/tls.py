"""TLS of servers: the `tls` section with the keys of the OpenTelemetry Collector.

Changed files are read again while the server runs. If the new files are unusable, the old certificate stays in use.
"""

import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, NamedTuple, Self

from otel_zernel.component import Context
from otel_zernel.errors import CannotStart
from otel_zernel_libraries.files.writing import file_with
from otel_zernel_libraries.serving.tls_config import ServerTlsConfig
from otel_zernel_libraries.serving.watching import WatchedFiles

_CLIENT_CA_INTERVAL: Final = 1.0
"""Seconds between checks for `client_ca_file_reload`, as in the OpenTelemetry Collector."""
_VERSIONS: Final = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}


class ServerPem(NamedTuple):
    """The PEM texts of a server. `client_ca` is None if clients need no certificate."""

    certificate: bytes
    key: bytes
    client_ca: bytes | None = None


class LoadedPem(NamedTuple):
    """PEM texts that were found to be usable, and the context made of them."""

    pem: ServerPem
    context: ssl.SSLContext


class ServerTls:
    """The certificate of one server. Enter it before the server, and leave it after the server."""

    def __init__(self, config: ServerTlsConfig, setting: str, context: Context) -> None:
        """`setting` is the configuration key of the section: `receivers::otlp::protocols::http::tls`."""
        self._config = config
        self._setting = setting
        self._files = WatchedFiles(self._read, setting, _interval(config), context)

    async def __aenter__(self) -> Self:
        """Reads the files. Raises `CannotStart`, which names an unusable file."""
        await self._files.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._files.__aexit__()

    def context(self) -> ssl.SSLContext:
        """The TLS context for the next connection."""
        return self._files.value.context

    def _read(self, old: LoadedPem | None) -> LoadedPem:
        pem = read(self._config, self._setting, old.pem if old else None)
        if old and old.pem == pem:
            return old
        return LoadedPem(pem, server_context(self._config, pem, self._setting))


@asynccontextmanager
async def served_tls(
    config: ServerTlsConfig | None, setting: str, context: Context
) -> AsyncIterator[Callable[[], ssl.SSLContext] | None]:
    """The function `ServerTls.context` of a server; None without the section. Raises `CannotStart`."""
    if config is None:
        yield None
        return
    async with ServerTls(config, setting, context) as tls:
        yield tls.context


def _interval(config: ServerTlsConfig) -> float:
    """Seconds between checks of the files; 0 for never."""
    if not config.client_ca_file_reload:
        return config.reload_interval
    return min(config.reload_interval or _CLIENT_CA_INTERVAL, _CLIENT_CA_INTERVAL)


def read(config: ServerTlsConfig, setting: str, known: ServerPem | None = None) -> ServerPem:
    """The PEM texts of the section. Raises `CannotStart`, which names an unreadable file.

    If `known` is given, only the files are read that the section wants to be watched.
    """
    certificate, key, client_ca = (known.certificate, known.key, known.client_ca) if known else (b"", b"", None)
    if not known or config.reload_interval:
        certificate = _text(config.cert_file, config.cert_pem, f"{setting}::cert_file")
        key_pem = config.key_pem.get_secret_value() if config.key_pem else None
        key = _text(config.key_file, key_pem, f"{setting}::key_file")
    if config.client_ca_file and (not known or config.client_ca_file_reload):
        client_ca = _text(config.client_ca_file, None, f"{setting}::client_ca_file")
    if config.ca_file and not known:
        _text(config.ca_file, None, f"{setting}::ca_file")
    return ServerPem(certificate, key, client_ca)


def _text(file: str | None, pem: str | None, setting: str) -> bytes:
    try:
        return Path(file).read_bytes() if file else (pem or "").encode()
    except OSError as error:
        raise CannotStart(f"{setting}: cannot read {file}: {error.strerror}") from error


def server_context(config: ServerTlsConfig, pem: ServerPem, setting: str) -> ssl.SSLContext:
    """The TLS context of a server. Raises `CannotStart`, which names an unusable file."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = _VERSIONS[config.min_version]
    context.maximum_version = _VERSIONS.get(config.max_version, ssl.TLSVersion.MAXIMUM_SUPPORTED)
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
    context.set_alpn_protocols(["http/1.1"])
    if ciphers := config.openssl_ciphers:
        context.set_ciphers(ciphers)
    if curve := config.openssl_curve:
        context.set_ecdh_curve(curve)
    _load_certificate(context, config, pem, setting)
    if pem.client_ca is not None:
        _require_client_certificates(context, config, pem.client_ca, setting)
    return context


def _load_certificate(context: ssl.SSLContext, config: ServerTlsConfig, pem: ServerPem, setting: str) -> None:
    key = "cert_file" if config.cert_file else "cert_pem"
    source = f"{config.cert_file} and {config.key_file}" if config.cert_file and config.key_file else "the given texts"
    try:
        with file_with(pem.certificate) as certificate, file_with(pem.key) as private:
            # Without a password, OpenSSL would prompt for one.
            context.load_cert_chain(certificate, private, password="")
    except ssl.SSLError as error:
        raise CannotStart(
            f"{setting}::{key}: {source} are not a PEM certificate and its key without a password"
            f" ({error.reason or 'no PEM data'})"
        ) from error


def _require_client_certificates(
    context: ssl.SSLContext, config: ServerTlsConfig, authorities: bytes, setting: str
) -> None:
    try:
        context.load_verify_locations(cadata=authorities.decode("ascii", "replace"))
    except (ssl.SSLError, ValueError) as error:
        file = config.client_ca_file
        raise CannotStart(f"{setting}::client_ca_file: {file} contains no PEM certificate") from error
    if config.include_system_ca_certs_pool:
        context.load_default_certs(ssl.Purpose.CLIENT_AUTH)
    context.verify_mode = ssl.CERT_REQUIRED
