"""The places in the table of workers: the number that each client has, and the client with too many."""

from collections import Counter
from collections.abc import Iterable
from typing import Final

from otel_zernel_libraries.serving.http2 import Peer
from otel_zernel_receivers.heartbeat.fleet.sender import WorkerSender
from otel_zernel_receivers.heartbeat.fleet.worker import Worker

_CROWD: Final = 0.1
"""The share of all places above which a client without credentials gives some back."""


class Places:
    """Counts the workers of each connection and of each address that have no checked credentials."""

    def __init__(self) -> None:
        self._held: Counter[Peer | str] = Counter()

    def give(self, worker: Worker, sender: WorkerSender) -> None:
        """The worker belongs to this sender now."""
        if worker.owner != sender:
            self.take_back(worker)
            worker.owner = sender
            self._held.update(_holders(sender))

    def take_back(self, worker: Worker) -> None:
        """The worker belongs to nobody any more."""
        for holder in _holders(worker.owner):
            self._held[holder] -= 1
            if not self._held[holder]:
                del self._held[holder]
        worker.owner = None

    def excess(self, workers: Iterable[Worker], newcomer: WorkerSender, most: int) -> Worker | None:
        """The longest silent worker of the client with too many of the `most` places; None if there is no such client.

        Only a client without any worker may get the place: a client with many cannot push out others.
        """
        if self._held[newcomer.peer]:
            return None
        own = newcomer.peer.address
        crowds = ((count, holder) for holder, count in self._held.items() if holder != own)
        count, crowd = max(crowds, key=lambda pair: pair[0], default=(0, ""))
        if count <= max(1, most * _CROWD):
            return None
        of_crowd = (worker for worker in workers if crowd in _holders(worker.owner))
        return min(of_crowd, key=lambda worker: worker.last_seen, default=None)


def _holders(sender: WorkerSender | None) -> tuple[Peer | str, ...]:
    if sender is None or sender.is_trusted:
        return ()
    return (sender.peer, sender.peer.address) if sender.peer.address else (sender.peer,)
