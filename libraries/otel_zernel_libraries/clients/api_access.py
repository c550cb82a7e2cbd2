"""The address and the credentials of an HTTP API, and the TLS context of its connections."""

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field

from otel_zernel.errors import CannotStart
from otel_zernel_libraries.files.writing import file_with


@dataclass(frozen=True, slots=True)
class Access:
    """The way to one HTTP API. Values are compared to find changes. `repr` shows no secret."""

    server: str
    """The URL before all paths, without a slash at its end."""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Headers with credentials."""
    socket: str | None = None
    """A Unix socket that takes the place of the URL's host."""
    proxy: str | None = field(default=None, repr=False)
    ca: bytes | None = None
    """PEM of the authorities that sign the server's certificate. None: those of the system."""
    certificate: bytes | None = None
    """PEM of the client."""
    key: bytes | None = field(default=None, repr=False)
    skip_verify: bool = False
    server_name: str | None = None
    """The name in the server's certificate, if it differs from the URL's host."""

    def same_connections(self, other: "Access") -> bool:
        """Whether open connections serve both: only the headers differ."""
        return self._connection() == other._connection()

    def _connection(self) -> tuple[object, ...]:
        identity = (self.ca, self.certificate, self.key, self.skip_verify, self.server_name)
        return (self.server, self.socket, self.proxy, *identity)

    def tls(self, setting: str) -> ssl.SSLContext:
        """The TLS context of a client. Raises `CannotStart`, which names `setting`."""
        try:
            context = ssl.create_default_context(cadata=self.ca.decode("ascii", "ignore") if self.ca else None)
        except ssl.SSLError as error:
            raise CannotStart(f"{setting}: the certificate authority is not a PEM certificate") from error
        if self.certificate and self.key:
            self._load_client_certificate(context, setting)
        if self.skip_verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context

    def _load_client_certificate(self, context: ssl.SSLContext, setting: str) -> None:
        try:
            with file_with(self.certificate or b"") as certificate, file_with(self.key or b"") as key:
                # Without a password, OpenSSL would prompt for one.
                context.load_cert_chain(certificate, key, password="")
        except ssl.SSLError as error:
            raise CannotStart(
                f"{setting}: the client certificate and its key are not PEM without a password ({error.reason})"
            ) from error
