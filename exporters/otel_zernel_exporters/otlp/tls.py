"""Reads and checks the files of a `tls` block, and reads them again when they change."""

import asyncio
import ssl
from dataclasses import dataclass
from pathlib import Path

from otel_zernel.component import Context
from otel_zernel.errors import CannotStart
from otel_zernel_exporters.otlp.config import TlsConfig


@dataclass(frozen=True, slots=True)
class Pem:
    """The contents of the files; None for a file that is not configured."""

    ca: bytes | None = None
    certificate: bytes | None = None
    key: bytes | None = None


class TlsFiles:
    """The TLS files of one exporter. Call `read` once, then `changed` before each request."""

    def __init__(self, config: TlsConfig, context: Context) -> None:
        self._config = config
        self._context = context
        self._setting = f"{context.path}::tls"
        self._pem = Pem()
        self._checked_at = 0.0

    async def read(self) -> Pem:
        """The contents of the files, checked. Raises `CannotStart`, which names an unusable file."""
        self._checked_at = self._context.clock.monotonic()
        self._pem = await asyncio.to_thread(read_pem, self._config, self._setting)
        return self._pem

    async def changed(self) -> Pem | None:
        """The contents of the files if they changed, else None. Checks every `reload_interval`.

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
    """The contents of the files. Raises `CannotStart`, which names a missing or unusable file."""
    pem = Pem(
        _content(config.ca_file, f"{setting}::ca_file"),
        _content(config.cert_file, f"{setting}::cert_file"),
        _content(config.key_file, f"{setting}::key_file"),
    )
    client_context(config, setting)
    return pem


def _content(file: str | None, setting: str) -> bytes | None:
    try:
        return Path(file).read_bytes() if file else None
    except OSError as error:
        raise CannotStart(f"{setting}: cannot read {file}: {error.strerror}") from error


def client_context(config: TlsConfig, setting: str) -> ssl.SSLContext:
    """The client's TLS context for connections of Python. Raises `CannotStart`, which names an unusable file."""
    try:
        context = ssl.create_default_context(cafile=config.ca_file)
    except ssl.SSLError as error:
        raise CannotStart(f"{setting}::ca_file: {config.ca_file} contains no PEM certificate") from error
    load_certificate(context, config, setting)
    if config.insecure_skip_verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def load_certificate(context: ssl.SSLContext, config: TlsConfig, setting: str) -> None:
    """Loads the client's certificate, if one is configured. New connections present it."""
    if config.cert_file is None:
        return
    try:
        context.load_cert_chain(
            config.cert_file, config.key_file, password=""
        )  # without a password OpenSSL would prompt for one
    except ssl.SSLError as error:
        raise CannotStart(
            f"{setting}::cert_file: {config.cert_file} and {config.key_file} are not a PEM certificate and its key"
            f" without a password ({error.reason})"
        ) from error
