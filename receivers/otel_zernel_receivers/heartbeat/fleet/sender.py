"""The client that sends for a worker: it has a token, or else only its connection."""

from hashlib import blake2b
from typing import NamedTuple

from otel_zernel_libraries.cluster.messages import WORKER_TOKEN
from otel_zernel_libraries.serving.http2 import Call, Peer


class WorkerSender(NamedTuple):
    """A client, as far as the receiver can recognize it."""

    peer: Peer
    token: str = ""
    """The digest of its credentials, or of the token that it has chosen itself. Empty without one."""
    is_trusted: bool = False
    """Whether its credentials or its certificate were checked."""

    def is_same(self, later: "WorkerSender") -> bool:
        """Whether a later message is of the same client. Without a token, only the connection can prove it."""
        return self.token == later.token if self.token else self.peer is later.peer


def sender_of(call: Call, *, is_checked: bool) -> WorkerSender:
    """The client of a call. `is_checked` is whether an authenticator has accepted its credentials."""
    checked = call.peer.certificate + (call.headers.get("authorization", "") if is_checked else "")
    chosen = call.headers.get(WORKER_TOKEN, "")
    token = _digest(b"checked", checked) if checked else _digest(b"chosen", chosen) if chosen else ""
    return WorkerSender(call.peer, token, is_checked or bool(checked))


def _digest(kind: bytes, text: str) -> str:
    return blake2b(text.encode(errors="surrogateescape"), digest_size=16, person=kind).hexdigest()
