"""The functions by which a receiver sends batches downstream, and the repetition of what they refuse."""

from typing import Protocol, runtime_checkable

from otel_zernel.batch import Batch
from otel_zernel.clock import Clock
from otel_zernel.errors import Refused


class Emit(Protocol):
    """The function by which a receiver sends a batch downstream."""

    async def __call__(self, batch: Batch, *, transport: str = "") -> None:
        """Returns when the batch is safe: every exporter's queue that holds back its source has accepted it.

        A durable queue, and one with `block_on_overflow`, hold back their source. Any other queue that is full drops
        the batch, counts it, and delays nobody; only local exporters delay their sources, while they work. The batch
        belongs to the pipelines once it is accepted: the receiver must not read, edit or emit it again. If the call is
        cancelled, the batch may be accepted or not.
        `transport` names the server that received it (`grpc`, `http`) in the receiver's own metrics.
        Raises `Refused` if a queue that holds back has no room, if a processor refuses it, or if no queue accepted it:
        emit the same batch again later. Raises `Rejected` if it will never be accepted; it is counted as lost.
        """


@runtime_checkable
class PacedEmit(Protocol):
    """An `Emit` with a variant for sources that can wait without losing data, such as files."""

    async def paced(self, batch: Batch, *, transport: str = "") -> None:
        """As `Emit`, but a full queue in memory delays the source as long as its exporter makes progress.

        So a file is read as fast as the slowest working exporter. An exporter that fails delays nobody.
        """


@runtime_checkable
class ImmediateEmit(Protocol):
    """An `Emit` with a variant that does not wait, for sources of many small batches."""

    def at_once(self, batch: Batch, *, transport: str = "") -> bool:
        """Whether the batch was accepted, as `Emit` accepts it. If not, nothing has happened: await `Emit` instead.

        A batch is accepted at once if no processor has to see it and if every exporter's queue is in memory and has
        room. That takes a third of the CPU time of `Emit`.
        """


_LONGEST_WAIT = 0.5


class Insist:
    """An `Emit` that emits a refused batch again until it is accepted: back-pressure for sources that can wait."""

    def __init__(self, emit: Emit, clock: Clock, wait: float = 0.01) -> None:
        """`wait` is the time in seconds before the first repetition; it doubles up to 0.5 s."""
        self._emit: Emit = emit.paced if isinstance(emit, PacedEmit) else emit
        self._clock = clock
        self._wait = wait

    async def __call__(self, batch: Batch, *, transport: str = "") -> None:
        wait = self._wait
        while True:
            try:
                return await self._emit(batch, transport=transport)
            except Refused as refused:
                await self._clock.sleep(max(wait, refused.after or 0.0))
                wait = min(wait * 2, _LONGEST_WAIT)
