"""The basicauth extension: user names and passwords of servers and clients."""

import base64
import binascii
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from otel_zernel.authentication import ClientAuthenticator, ServerAuthenticator, Unauthenticated
from otel_zernel.component import Context
from otel_zernel.errors import CannotStart
from otel_zernel_extensions.basicauth.config import BasicAuthConfig, ClientAuthConfig, HtpasswdConfig
from otel_zernel_extensions.basicauth.htpasswd import PasswordCheck, Users
from otel_zernel_libraries.serving.watching import WatchedFiles

_INTERVAL: Final = 1.0
"""Seconds between two readings of the files."""


class BasicAuthExtension(ServerAuthenticator, ClientAuthenticator):
    """Accepts requests of the users in an htpasswd file, or adds a user name and a password to requests."""

    Config = BasicAuthConfig
    stability = "beta"
    challenge = 'Basic realm="otel-zernel", charset="UTF-8"'

    def __init__(self, config: BasicAuthConfig, context: Context) -> None:
        super().__init__(config, context)
        self._users: WatchedFiles[Users] | None = None
        self._credentials: WatchedFiles[str] | None = None
        self._check = PasswordCheck()
        if config.htpasswd:
            setting, interval = f"{context.path}::htpasswd", _INTERVAL if config.htpasswd.file else 0.0
            self._users = WatchedFiles(self._read_users, setting, interval, context)
        if client := config.client_auth:
            interval = _INTERVAL if client.username_file or client.password_file else 0.0
            setting = f"{context.path}::client_auth"
            self._credentials = WatchedFiles(self._read_credentials, setting, interval, context)

    async def __aenter__(self) -> Self:
        for files in (self._users, self._credentials):
            if files:
                await files.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for files in (self._users, self._credentials):
            if files:
                await files.__aexit__()

    @property
    def cannot_check(self) -> str | None:
        return None if self._users else f"set {self.context.path}::htpasswd"

    @property
    def cannot_add(self) -> str | None:
        return None if self._credentials else f"set {self.context.path}::client_auth"

    async def authenticate(self, headers: Mapping[str, str]) -> None:
        if self._users is None or not self._users.is_entered:
            raise Unauthenticated("no users are loaded")
        user, password = _parsed(headers.get("authorization", ""))
        await self._check(self._users.value, user, password)

    def headers(self) -> Mapping[str, str]:
        return {"authorization": self._credentials.value} if self._credentials else {}

    def _read_users(self, old: Users | None) -> Users:
        config: HtpasswdConfig = self.config.htpasswd
        setting = f"{self.context.path}::htpasswd"
        inline = config.inline.get_secret_value() if config.inline else ""
        text = f"{self._content_of(config.file, setting)}\n{inline}" if config.file else inline
        if old and old.text == text:
            return old
        users = Users(text, setting)
        if users.plain:
            self.context.logger.warning(
                "%d passwords of htpasswd are plain text, such as that of %.100s: replace them with hashes",
                len(users.plain),
                users.plain[0],
            )
        return users

    def _content_of(self, file: str, setting: str) -> str:
        """The users of the file. An empty file is often one that is being written, and never means that all must go."""
        content = _content(file, f"{setting}::file")
        if not content.strip():
            raise CannotStart(f"{setting}::file: {file} is empty; add a user with htpasswd -B, or remove the key")
        return content

    def _read_credentials(self, _: str | None) -> str:
        config: ClientAuthConfig = self.config.client_auth
        setting = f"{self.context.path}::client_auth"
        user, password = config.username, config.password.get_secret_value() if config.password else ""
        if config.username_file:
            user = _content(config.username_file, f"{setting}::username_file").strip()
        if config.password_file:
            password = _content(config.password_file, f"{setting}::password_file").rstrip("\r\n")
        if not user or ":" in user or not password:
            raise CannotStart(f"{setting}: the user name or the password is empty, or the user name has a colon")
        return f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"


def _parsed(authorization: str) -> tuple[str, str]:
    """The user name and the password. Raises `Unauthenticated`."""
    scheme, _, encoded = authorization.partition(" ")
    if scheme.lower() != "basic":
        raise Unauthenticated("no user name and password")
    try:
        user, colon, password = base64.b64decode(encoded.strip(), validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError) as error:
        raise Unauthenticated("malformed user name and password") from error
    if not colon:
        raise Unauthenticated("malformed user name and password")
    return user, password


def _content(file: str, setting: str) -> str:
    try:
        return Path(file).read_text("utf-8")
    except OSError as error:
        raise CannotStart(f"{setting}: cannot read {file}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise CannotStart(f"{setting}: {file} is not UTF-8 text") from error
