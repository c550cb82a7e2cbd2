"""The server's side of SASL, for a proxy before a broker: it checks credentials and passes everything else on."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from scramp import ScramException, ScramMechanism

from tests.interop.kafka.proxies import Reader, Writer

_HANDSHAKE: Final = 17
_AUTHENTICATE: Final = 36
_REFUSED: Final = 58
"""SASL_AUTHENTICATION_FAILED. Numbers are those of https://kafka.apache.org/protocol."""


class Conversation(Protocol):
    """One authentication."""

    is_over: bool

    def reply(self, message: bytes) -> bytes:
        """The answer to a message of the client. Raises `PermissionError` if the credentials are wrong."""


class Exactly:
    """PLAIN and OAUTHBEARER: one message has all."""

    def __init__(self, expected: bytes) -> None:
        self._expected = expected
        self.is_over = False

    def reply(self, message: bytes) -> bytes:
        if message != self._expected:
            raise PermissionError
        self.is_over = True
        return b""


class Scram:
    """SCRAM: the server proves that it knows the password, too."""

    def __init__(self, mechanism: str, username: str, password: str) -> None:
        scram = ScramMechanism(mechanism)
        known = {username: scram.make_auth_info(password)}
        self._server = scram.make_server(known.__getitem__)
        self._has_begun = False
        self.is_over = False

    def reply(self, message: bytes) -> bytes:
        try:
            return self._answer(message.decode()).encode()
        except (ScramException, KeyError) as error:
            raise PermissionError from error

    def _answer(self, message: str) -> str:
        if not self._has_begun:
            self._has_begun = True
            self._server.set_client_first(message)
            return str(self._server.get_server_first())
        self._server.set_client_final(message)
        self.is_over = True
        return str(self._server.get_server_final())


@dataclass
class SaslCheck:
    """Authenticates each connection."""

    mechanism: str
    begin: Callable[[], Conversation]
    accepted: int = 0
    refused: int = 0

    async def __call__(self, reader: Reader, writer: Writer, behind: Reader, to_broker: Writer) -> bool:
        """Answers until the client is authenticated. Requests of another kind, such as ApiVersions, are passed on."""
        conversation = self.begin()
        while not conversation.is_over:
            request = await _frame(reader)
            api, version, correlation = int.from_bytes(request[:2]), int.from_bytes(request[2:4]), request[4:8]
            if api == _HANDSHAKE:
                writer.write(_framed(correlation + bytes(2) + (1).to_bytes(4) + _text(self.mechanism)))
            elif api == _AUTHENTICATE:
                code, answer = self._answer(conversation, request[10 + int.from_bytes(request[8:10]) + 4 :])
                lifetime = bytes(8) if version >= 1 else b""
                writer.write(_framed(correlation + code.to_bytes(2) + b"\xff\xff" + _framed(answer) + lifetime))
                await writer.drain()
                if code:
                    return False
            else:
                to_broker.write(_framed(request))
                writer.write(_framed(await _frame(behind)))
        self.accepted += 1
        return True

    def _answer(self, conversation: Conversation, message: bytes) -> tuple[int, bytes]:
        try:
            return 0, conversation.reply(message)
        except PermissionError:
            self.refused += 1
            return _REFUSED, b""


async def _frame(reader: Reader) -> bytes:
    return await reader.readexactly(int.from_bytes(await reader.readexactly(4)))


def _framed(data: bytes) -> bytes:
    return len(data).to_bytes(4) + data


def _text(text: str) -> bytes:
    return len(text).to_bytes(2) + text.encode()
