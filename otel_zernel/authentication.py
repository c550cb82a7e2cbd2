"""The contract of authentication extensions, for servers (receivers) and clients (exporters).

A component names the extension as `auth::authenticator`, and gets it by `context.extension(id)`.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Annotated

from otel_zernel.component import Context, Extension
from otel_zernel.errors import CannotStart, ZernelError
from otel_zernel.types import ExtensionId, Section


class Authenticator(Extension, ABC):
    """An extension that may be named as `auth::authenticator`: it checks credentials, adds them, or does both."""


class Unauthenticated(ZernelError):
    """A request without valid credentials. The message names neither them nor the expected ones."""


class ServerAuthenticator(Authenticator):
    """Decides whether a request may enter."""

    challenge: str
    """The value of `WWW-Authenticate` in a 401 answer: `Bearer`, `Basic realm="otel-zernel"`."""

    @property
    def cannot_check(self) -> str | None:
        """Why its configuration cannot check requests, and what to set. None if it can."""
        return None

    @abstractmethod
    async def authenticate(self, headers: Mapping[str, str]) -> None:
        """Raises `Unauthenticated`. `headers` have lower-case names, and are those of HTTP or the metadata of gRPC.

        Called before the body of the request is read. It may wait for a slow password hash, which runs in a thread.
        """


class ClientAuthenticator(Authenticator):
    """Adds credentials to requests."""

    @property
    def cannot_add(self) -> str | None:
        """Why its configuration has no credentials to send, and what to set. None if it has."""
        return None

    @abstractmethod
    def headers(self) -> Mapping[str, str]:
        """The headers to add, with lower-case names. Called for each request, since credentials may change."""


class AuthConfig(Section):
    """The `auth` section of a receiver or an exporter."""

    authenticator: Annotated[str, ExtensionId(Authenticator)]
    """The id of an extension in `service::extensions`: `bearertokenauth`, `basicauth/team`."""


def server_authenticator(auth: AuthConfig | None, context: Context, setting: str) -> ServerAuthenticator | None:
    """The extension that checks requests; None if no `auth` is configured.

    `setting` is the configuration key of the section: `receivers::otlp::protocols::http::auth`.
    Raises `CannotStart` if the extension is not enabled, or cannot check requests.
    """
    if auth is None:
        return None
    extension = context.extension(auth.authenticator)
    if not isinstance(extension, ServerAuthenticator):
        raise _unfit(auth, setting, "check requests", _OTHERS)
    if extension.cannot_check:
        raise _unfit(auth, setting, "check requests", extension.cannot_check)
    return extension


def client_authenticator(auth: AuthConfig | None, context: Context, setting: str) -> ClientAuthenticator | None:
    """The extension that adds credentials; None if no `auth` is configured. Otherwise as `server_authenticator`."""
    if auth is None:
        return None
    extension = context.extension(auth.authenticator)
    if not isinstance(extension, ClientAuthenticator):
        raise _unfit(auth, setting, "add credentials", _OTHERS)
    if extension.cannot_add:
        raise _unfit(auth, setting, "add credentials", extension.cannot_add)
    return extension


_OTHERS = "use bearertokenauth or basicauth"


def _unfit(auth: AuthConfig, setting: str, task: str, remedy: str) -> CannotStart:
    return CannotStart(f"{setting}::authenticator: extension {auth.authenticator} cannot {task}: {remedy}")
