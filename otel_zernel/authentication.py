"""The contract of authentication extensions, for servers (receivers) and clients (exporters).

A component names the extension as `auth::authenticator`, and gets it by `context.extension(id)`.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping

from otel_zernel.component import Extension
from otel_zernel.errors import ZernelError
from otel_zernel.types import Section


class AuthConfig(Section):
    """The `auth` section of a receiver or an exporter."""

    authenticator: str
    """The id of an extension in `service::extensions`: `bearertokenauth`, `basicauth/team`."""


class Unauthenticated(ZernelError):
    """A request without valid credentials. The message names neither them nor the expected ones."""


class ServerAuthenticator(Extension, ABC):
    """Decides whether a request may enter."""

    @abstractmethod
    def authenticate(self, headers: Mapping[str, str]) -> None:
        """Raises `Unauthenticated`. `headers` have lower-case names, and are those of HTTP or the metadata of gRPC.

        Must not block: it runs on the event loop, before the body of the request is read.
        """


class ClientAuthenticator(Extension, ABC):
    """Adds credentials to requests."""

    @abstractmethod
    def headers(self) -> Mapping[str, str]:
        """The headers to add, with lower-case names. Called for each request, since credentials may change."""
