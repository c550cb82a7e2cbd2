"""The time to recover from a fault: until rows arrive at their pace again, and the gateway answers."""

import http.client
import time
from dataclasses import dataclass

from examples.cluster.chain import Chain
from examples.cluster.counting import Store

_SHARE = 0.8
"""The share of the former pace at which the chain has recovered."""
_HEALTH = "/health"
"""Answers 200 if the gateway has reached the store."""


@dataclass
class Recovery:
    """Watches the store and the gateways."""

    chain: Chain
    store: Store
    total: int
    """Rows that all streamers send."""
    pace: float
    """Rows a second without faults."""

    def wait(self, limit: float, node: str = "") -> float | None:
        """Seconds until the chain has recovered from a fault of the node. None if not within `limit` s, or if all rows
        are stored: then their pace says nothing."""
        start, before = time.monotonic(), self.store.count().rows
        while time.monotonic() - start < limit:
            begin = time.monotonic()
            for _ in self.chain.wait(1):
                pass
            now = self.store.count().rows
            if now >= self.total:
                return None
            has_pace = now - before >= _SHARE * self.pace * (time.monotonic() - begin)
            if has_pace and self._answers(node):
                return time.monotonic() - start
            before = now
        return None

    def progress(self) -> str:
        """The stored rows, in words."""
        stored = self.store.count().rows
        hint = "; more --rows are needed" if stored >= self.total else ""
        return f"{stored:,} of {self.total:,} rows are stored{hint}"

    def _answers(self, node: str) -> bool:
        """Whether the gateway has an answer from the store. True for every other node."""
        if node not in self.chain.gateways:
            return True
        connection = http.client.HTTPConnection(*self.chain.gateways[node], timeout=1)
        try:
            connection.request("GET", _HEALTH)
            return connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()
