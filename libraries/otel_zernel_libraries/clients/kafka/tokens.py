"""The tokens of SASL OAUTHBEARER, from an authentication extension."""

import base64
import binascii
import json
from collections.abc import Callable
from typing import Final

from otel_zernel.authentication import AuthConfig, client_authenticator
from otel_zernel.component import Context
from otel_zernel_libraries.clients.kafka.client_config import KafkaClientConfig

_UNKNOWN_LIFETIME: Final = 300.0
"""Seconds after which a token is asked for again if it does not name its end."""
_BEARER: Final = "bearer "

GetToken = Callable[[str], tuple[str, float]]
"""Gives the token and the Unix time in seconds at which it ends."""


def token_source(config: KafkaClientConfig, context: Context) -> GetToken | None:
    """librdkafka's callback for tokens; None without OAUTHBEARER. Raises `CannotStart` without the extension."""
    sasl = config.auth.sasl if config.auth else None
    if sasl is None or sasl.oauthbearer_token_source is None:
        return None
    setting = f"{context.path}::auth::sasl::oauthbearer_token_source"
    authenticator = client_authenticator(AuthConfig(authenticator=sasl.oauthbearer_token_source), context, setting)
    if authenticator is None:
        return None

    def token(_: str) -> tuple[str, float]:
        header = authenticator.headers().get("authorization", "")
        if not header.lower().startswith(_BEARER):
            raise ValueError("the extension has no bearer token")
        text = header[len(_BEARER) :].strip()
        return text, end_of(text) or context.clock.time_ns() / 1e9 + _UNKNOWN_LIFETIME

    return token


def end_of(token: str) -> float | None:
    """The Unix time in seconds at which a JSON Web Token ends; None if the token does not name it."""
    parts = token.split(".")
    if len(parts) != 3:
        return None
    try:
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
        return float(claims["exp"])
    except (ValueError, TypeError, KeyError, binascii.Error):
        return None
