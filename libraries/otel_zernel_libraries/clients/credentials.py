"""The credentials that an authentication extension adds to each request."""

from collections.abc import Mapping

from otel_zernel.authentication import AuthConfig, ClientAuthenticator, client_authenticator
from otel_zernel.component import Context
from otel_zernel.errors import Retryable, ZernelError
from otel_zernel.types import PRINTABLE

"""Header values that both transports can carry."""


class Credentials:
    """Headers of an exporter's `auth::authenticator`. Without `auth` there are none."""

    def __init__(self, config: AuthConfig | None, context: Context) -> None:
        self._config = config
        self._id = config.authenticator if config else None
        self._context = context
        self._authenticator: ClientAuthenticator | None = None

    def open(self, *, unprotected: bool) -> None:
        """Finds the extension. Raises `CannotStart` if it is not enabled, or serves receivers only.

        `unprotected`: others on the network can read the requests.
        """
        self._authenticator = client_authenticator(self._config, self._context, f"{self._context.path}::auth")
        if self._authenticator and unprotected:
            self._context.logger.warning(
                "The credentials of extension %s are sent without TLS, so others on the network can read them", self._id
            )

    def headers(self) -> Mapping[str, str]:
        """The headers for one request. Raises `Retryable` if there are none now, for example without a token file."""
        if self._authenticator is None:
            return {}
        try:
            headers = self._authenticator.headers()
        except (OSError, ZernelError) as error:
            raise Retryable(f"extension {self._id} has no credentials: {error}") from error
        if not all(map(PRINTABLE.fullmatch, headers.values())):
            raise Retryable(f"the credentials of extension {self._id} have characters outside printable ASCII")
        return headers

    @property
    def advice(self) -> str:
        """The end of the message about a request that the server refused for its credentials."""
        if self._id is None:
            return " (if the server requires credentials, set auth::authenticator or headers::authorization)"
        return f" (the server refused the credentials of extension {self._id})"
