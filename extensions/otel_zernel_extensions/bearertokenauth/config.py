"""The configuration of the bearertokenauth extension, with the names and defaults of the OpenTelemetry Collector."""

import re
from typing import Annotated, Final, Self

from pydantic import AfterValidator, Field, model_validator

from otel_zernel.component import ComponentConfig
from otel_zernel.types import PositiveDuration, ReadableFile, Secret, Section

_TOKEN: Final = re.compile(r"[\x21-\x7e]+")
"""Printable ASCII without spaces: both HTTP and gRPC carry it."""


def is_token(text: str) -> bool:
    """Whether a header can carry the token."""
    return bool(_TOKEN.fullmatch(text))


def _checked(token: Secret) -> Secret:
    if not is_token(token.get_secret_value()):
        raise ValueError("a token must be printable ASCII without spaces, and not empty")
    return token


Token = Annotated[Secret, AfterValidator(_checked)]


class FileRetryConfig(Section):
    """Whether the start waits for a token file that does not exist yet."""

    enabled: bool = False
    """Wait for the file, instead of ending with an error."""
    max_retries: Annotated[int, Field(ge=1)] = 10
    """The most attempts after the first one."""
    retry_interval: PositiveDuration = 1.0
    """Seconds between two attempts."""


class BearerTokenAuthConfig(ComponentConfig):
    """The tokens that servers accept. Clients send the first one."""

    header: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]+$")] = "Authorization"
    """The header that carries the token."""
    scheme: Annotated[str, Field(pattern=r"^[\x21-\x7e]*$")] = "Bearer"
    """The word before the token. Empty for the token alone."""
    token: Token | None = None
    """The token. Better kept out of the file: `${env:NAME}` or `filename`."""
    tokens: tuple[Token, ...] = ()
    """Several tokens, for example an old and a new one. They replace `token`."""
    filename: Annotated[str | None, ReadableFile()] = None
    """A file with a token on each line. It replaces `token` and `tokens`, and is read again when it changes."""
    file_retry: FileRetryConfig = FileRetryConfig.model_construct()

    @model_validator(mode="after")
    def _has_a_token(self) -> Self:
        if not (self.token or self.tokens or self.filename):
            raise ValueError("no token is configured: set filename, token or tokens")
        return self
