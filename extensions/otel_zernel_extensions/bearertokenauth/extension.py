"""The bearertokenauth extension: tokens of servers and clients, from the configuration or from a watched file."""

import hmac
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Self

from otel_zernel.authentication import ClientAuthenticator, ServerAuthenticator, Unauthenticated
from otel_zernel.component import Context
from otel_zernel.errors import CannotStart
from otel_zernel_extensions.bearertokenauth.config import BearerTokenAuthConfig, is_token
from otel_zernel_libraries.serving.watching import WatchedFiles

_INTERVAL: Final = 1.0
"""Seconds between two readings of the file."""
_LONGEST_FILE: Final = 1 << 20
"""Bytes. A longer file is not a list of tokens."""


class BearerTokenAuthExtension(ServerAuthenticator, ClientAuthenticator):
    """Accepts requests that carry one of its tokens, and adds its first token to requests."""

    Config = BearerTokenAuthConfig
    stability = "beta"

    def __init__(self, config: BearerTokenAuthConfig, context: Context) -> None:
        super().__init__(config, context)
        self.challenge = config.scheme
        self._header = config.header.lower()
        setting = f"{context.path}::filename"
        self._file = WatchedFiles(self._read, setting, _INTERVAL, context) if config.filename else None
        given = config.tokens or ((config.token,) if config.token else ())
        self._given = tuple(self._value_of(token.get_secret_value()) for token in given)

    async def __aenter__(self) -> Self:
        if self._file:
            await self._wait_for_file()
            await self._stack.enter_async_context(self._file)
        return self

    async def authenticate(self, headers: Mapping[str, str]) -> None:
        if self._file and not self._file.is_entered:
            raise Unauthenticated("the tokens are not loaded yet")
        given = headers.get(self._header, "").encode("utf-8", "surrogateescape")
        # Every token is compared, in constant time: the time of an answer says nothing about the tokens.
        matches = [hmac.compare_digest(given, value) for value in self._values]
        if not any(matches):
            raise Unauthenticated("missing or invalid bearer token")

    def headers(self) -> Mapping[str, str]:
        return {self._header: self._values[0].decode()}

    @property
    def _values(self) -> tuple[bytes, ...]:
        """The values of the header, one for each token."""
        return self._file.value if self._file else self._given

    def _value_of(self, token: str) -> bytes:
        return f"{self.config.scheme} {token}".lstrip().encode()

    async def _wait_for_file(self) -> None:
        retry = self.config.file_retry
        for _ in range(retry.max_retries if retry.enabled else 0):
            if Path(self.config.filename).exists():  # noqa: ASYNC240  # one system call at the start
                return
            await self.context.clock.sleep(retry.retry_interval)

    def _read(self, _: tuple[bytes, ...] | None) -> tuple[bytes, ...]:
        file, setting = self.config.filename, f"{self.context.path}::filename"
        try:
            with Path(file).open(encoding="ascii") as opened:
                tokens = [line.strip() for line in opened.read(_LONGEST_FILE + 1).splitlines() if line.strip()]
        except OSError as error:
            raise CannotStart(f"{setting}: cannot read {file}: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise CannotStart(f"{setting}: {file} is not ASCII text; write a token on each line") from error
        if not tokens or not all(map(is_token, tokens)) or sum(map(len, tokens)) > _LONGEST_FILE:
            raise CannotStart(f"{setting}: {file} must have one token without spaces on each line, and at most 1 MiB")
        return tuple(self._value_of(token) for token in tokens)
