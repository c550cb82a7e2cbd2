"""The users of an htpasswd file: hashes that name their format, and plain text, by `libpass`."""

import asyncio
import hashlib
import hmac
import os
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from otel_zernel.authentication import Unauthenticated
from otel_zernel.errors import CannotStart

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
