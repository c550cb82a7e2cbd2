"""The basicauth extension: user names and passwords of servers and clients."""

import asyncio
import base64
import binascii
import hashlib
import hmac
import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, Self

from otel_zernel.authentication import ClientAuthenticator, ServerAuthenticator, Unauthenticated
from otel_zernel.component import Context
from otel_zernel.errors import CannotStart
from otel_zernel_extensions.basicauth.config import BasicAuthConfig, ClientAuthConfig, HtpasswdConfig
from otel_zernel_libraries.serving.watching import WatchedFiles

_HASHES: Final = (
    "bcrypt",
    "sha256_crypt",
    "sha512_crypt",
    "apr_md5_crypt",
    "md5_crypt",
    "ldap_sha1",
    "ldap_salted_sha1",
)
"""Formats with a mark: $2y$, $5$, $6$, $apr1$, $1$, {SHA}, {SSHA}. A hash of DES has none, as a password has none."""
_PLAIN: Final = "plaintext"
_REMEMBERED: Final = 1024
"""Passwords whose hashes were computed. A server with more users computes some again."""
_LONGEST: Final = 4096
"""Bytes of a user name and its password, as in libpass."""
_MOST_WAITING: Final = 32
"""Passwords that wait for the computation of their hash. bcrypt takes 70 ms or more, on purpose."""


class Users:
    """The users of one version of the file."""

    def __init__(self, text: str, setting: str) -> None:
        """Raises `CannotStart` if the text has no user, or a line that is not `user:hash`."""
        # takes 15 MB of memory, so it is imported only here
        from passlib.apache import HtpasswdFile
        from passlib.context import CryptContext

        self.text = text
        formats = CryptContext([*_HASHES, _PLAIN])
        try:
            self._file: HtpasswdFile = HtpasswdFile.from_string(text, encoding="utf-8", context=formats)
        except ValueError as error:
            raise CannotStart(f"{setting}: a line is not `user:hash`; create the file with htpasswd -B") from error
        self._names = frozenset(self._file.users())
        if not self._names:
            raise CannotStart(f"{setting}: there is no user; add one with htpasswd -B")
        self.plain = sorted(name for name in self._names if formats.identify(self._file.get_hash(name)) == _PLAIN)
        """The users whose password is written as plain text."""

    def knows(self, user: str, password: str) -> bool:
        """Whether the password is that of the user. Slow by design. An unknown user takes as long as a known one."""
        asked = user if user in self._names else min(self._names)
        try:
            matches = bool(self._file.check_password(asked, password))
        except ValueError:  # longer than the hash allows, such as 72 bytes for bcrypt
            matches = False
        return matches and asked == user


class PasswordCheck:
    """Checks passwords in a thread, and remembers the right ones by a keyed digest."""

    def __init__(self) -> None:
        self._secret = os.urandom(32)
        self._known: dict[bytes, None] = {}
        self._users: Users | None = None
        self._waiting = 0
        self._thread = ThreadPoolExecutor(1, "basicauth")

    async def __call__(self, users: Users, user: str, password: str) -> None:
        """Raises `Unauthenticated`."""
        if users is not self._users:
            self._known.clear()
            self._users = users
        digest = hmac.digest(self._secret, f"{user}:{password}".encode("utf-8", "surrogateescape"), hashlib.sha256)
        if digest in self._known:
            return
        if len(user) + len(password) > _LONGEST or not await self._computed(users, user, password):
            raise Unauthenticated("wrong user name or password")
        if len(self._known) >= _REMEMBERED:
            del self._known[next(iter(self._known))]
        if users is self._users:
            self._known[digest] = None

    async def _computed(self, users: Users, user: str, password: str) -> bool:
        """The slow check, one at a time: an attacker who guesses must not take every core.

        A client that leaves cannot stop a computation, so a lock would let the next one begin too early.
        """
        if self._waiting >= _MOST_WAITING:
            raise Unauthenticated("too many passwords are being checked; try again later")
        self._waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, users.knows, user, password)
        finally:
            self._waiting -= 1


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
                await self._stack.enter_async_context(files)
        return self

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
                "htpasswd has passwords in plain text, such as that of %.100s (%d in all): replace them with hashes",
                users.plain[0],
                len(users.plain),
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
