"""The credentials of a request."""

from collections.abc import Mapping

from otel_zernel.authentication import ServerAuthenticator, Unauthenticated
from otel_zernel_libraries.serving.requests.failures import unauthenticated


async def check_credentials(authenticator: ServerAuthenticator, headers: Mapping[str, str]) -> None:
    """Raises `RequestFailure` if a request has no valid credentials."""
    try:
        await authenticator.authenticate(headers)
    except Unauthenticated as error:
        raise unauthenticated(str(error)) from error
