"""The contract of authentication extensions, for servers (receivers) and clients (exporters).

A component names the extension as `auth::authenticator`, and gets it by `context.extension(id)`.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar

from otel_zernel.component import Context, Extension
from otel_zernel.errors import CannotStart, ZernelError
from otel_zernel.types import Section


class AuthConfig(Section):
    """The `auth` section of a receiver or an exporter."""

    authenticator: str
    """The id of an extension in `service::extensions`: `bearertokenauth`, `basicauth/team`."""


class Unauthenticated(ZernelError):
    """A request without valid credentials. The message names neither them nor the expected ones."""


class ServerAuthenticator(Extension, ABC):
    """Decides whether a request may enter."""

    challenge: ClassVar[str] = ""
    """The value of `WWW-Authenticate` in a 401 answer: `Bearer`, `Basic realm="..."`."""

    @abstractmethod
    async def authenticate(self, headers: Mapping[str, str]) -> None:
        """Raises `Unauthenticated`. `headers` have lower-case names, and are those of HTTP or the metadata of gRPC.

        Called before the body of the request is read. It may wait for a slow password hash, which runs in a thread.
        """


class ClientAuthenticator(Extension, ABC):
    """Adds credentials to requests."""

    @abstractmethod
    def headers(self) -> Mapping[str, str]:
        """The headers to add, with lower-case names. Called for each request, since credentials may change."""


def server_authenticator(auth: AuthConfig | None, context: Context, setting: str) -> ServerAuthenticator | None:
    """The extension that checks requests; None if no `auth` is configured.

    `setting` is the configuration key of the section: `receivers::otlp::protocols::http::auth`.
    Raises `CannotStart` if the extension is not enabled, or cannot check requests.
    """
    if auth is None:
        return None
    if isinstance(found := context.extension(auth.authenticator), ServerAuthenticator):
        return found
    raise CannotStart(
        f"{setting}::authenticator: extension {auth.authenticator} cannot check requests;"
        " use bearertokenauth or basicauth"
    )


def client_authenticator(auth: AuthConfig | None, context: Context, setting: str) -> ClientAuthenticator | None:
    """The extension that adds credentials; None if no `auth` is configured. Otherwise as `server_authenticator`."""
    if auth is None:
        return None
    if isinstance(found := context.extension(auth.authenticator), ClientAuthenticator):
        return found
    raise CannotStart(
        f"{setting}::authenticator: extension {auth.authenticator} cannot add credentials;"
        " use bearertokenauth or basicauth"
    )
