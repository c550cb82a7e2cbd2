"""The files of a `tls` block: read, checked, and read again when they change."""

import asyncio
import ssl
from dataclasses import dataclass
from pathlib import Path

from otel_zernel.component import Context
from otel_zernel.errors import CannotStart
from otel_zernel_exporters.otlp.config import TlsConfig


@dataclass(frozen=True, slots=True)
class Pem:
    """What the files hold; None for a file that is not configured."""

    ca: bytes | None = None
    certificate: bytes | None = None
    key: bytes | None = None


class TlsFiles:
    """The files of one exporter: `read` once, then ask `changed` before each request."""

    def __init__(self, config: TlsConfig, context: Context) -> None:
        self._config = config
        self._context = context
        self._setting = f"{context.path}::tls"
        self._pem = Pem()
        self._looked_at = 0.0

    async def read(self) -> Pem:
        """What the files hold, known to be usable. Raises `CannotStart`, which names the file that is not."""
        self._looked_at = self._context.clock.monotonic()
        self._pem = await asyncio.to_thread(read_pem, self._config, self._setting)
        return self._pem

    async def changed(self) -> Pem | None:
        """What the files hold if it is new; looks every `reload_interval`. Keeps the old while the new is unusable."""
        interval = self._config.reload_interval
        if not interval or self._context.clock.monotonic() < self._looked_at + interval:
            return None
        known = self._pem
        try:
            return pem if (pem := await self.read()) != known else None
        except CannotStart as error:
            self._context.logger.warning("Keeping the TLS files as they were: %s", error)
            return None


def read_pem(config: TlsConfig, setting: str) -> Pem:
    """What the files hold. Raises `CannotStart`, which names the file that is missing or no good."""
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
    """A client's TLS for Python's own connections. Raises `CannotStart`, which names the file that is no good."""
    try:
        context = ssl.create_default_context(cafile=config.ca_file)
    except ssl.SSLError as error:
        raise CannotStart(f"{setting}::ca_file: {config.ca_file} holds no certificate in PEM") from error
    load_certificate(context, config, setting)
    if config.insecure_skip_verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def load_certificate(context: ssl.SSLContext, config: TlsConfig, setting: str) -> None:
    """Gives the client its own certificate, if it has one; connections made from now on show it."""
    if config.cert_file is None:
        return
    try:
        context.load_cert_chain(config.cert_file, config.key_file, password="")  # an empty one never prompts
    except ssl.SSLError as error:
        files = f"{config.cert_file} and {config.key_file}"
        advice = "are no certificate and its key in PEM, without a password"
        raise CannotStart(f"{setting}::cert_file: {files} {advice} ({error.reason})") from error
