"""A place where the driver lists a GPU: who is there, and what is left to say of one that is lost."""

import platform

from otel_zernel.batch import Batch
from otel_zernel_receivers.nvml.driver.events import Listener
from otel_zernel_receivers.nvml.driver.library import Library, Lost, Nameless
from otel_zernel_receivers.nvml.gpus.gpu import Found, Gpu, Maker, find


class Place:
    """An index while the driver runs. Used by one thread at a time; every method blocks."""

    def __init__(self, library: Library, index: int, listener: Listener, maker: Maker) -> None:
        self.index = index
        self.gpu: Gpu | None = None
        """Who is there, once it said so."""
        self.lost: str | None = None
        """A sentence about a GPU that is gone."""
        self.looked = False
        """Whether it was asked who is there."""
        self._library = library
        self._listener = listener
        self._maker = maker
        self._clock = maker.context.clock
        self._look_again = self._clock.monotonic()

    @property
    def name(self) -> str:
        """For logs and health."""
        return self.gpu.name if self.gpu else f"GPU {self.index}"

    @property
    def trouble(self) -> str | None:
        """What is wrong with the GPU, after its name."""
        return self.lost or ("answers none of its queries" if self.gpu and self.gpu.board.silent else None)

    @property
    def drain_interval(self) -> float | None:
        """Seconds after which the sample buffers want to be read again; None if there are none."""
        return self.gpu.drain_interval if self.gpu and not self.lost else None

    def scrape(self) -> Batch:
        """The points of now; looks who is there whenever it is time to. Raises `Unavailable`."""
        try:
            if self._clock.monotonic() >= self._look_again:
                self._look()
            if self.gpu and not self.lost:
                return self.gpu.scrape()
        except Lost as lost:
            self.lost = str(lost)
        return self.gpu.failed() if self.gpu else Batch()

    def drain(self) -> Batch:
        """Reads the sample buffers; what is in them goes out with the next scrape. Raises `Unavailable`."""
        try:
            if self.gpu and not self.lost:
                self.gpu.drain()
        except Lost as lost:
            self.lost = str(lost)
        return Batch()

    def _look(self) -> None:
        """Takes up a GPU that is new or back, and MIG instances that came or went. Raises `Lost`."""
        self._look_again = self._clock.monotonic() + self._maker.config.rediscover_interval
        try:
            found = find(self._library, self.index, platform.node())
        except Nameless as problem:
            self.lost = self.lost if self.gpu else str(problem)
            return
        finally:
            self.looked = True
        if found is None:
            self.lost = "is no longer there" if self.gpu else None
        elif self.gpu is None or self.lost or self.gpu.uuids != found.uuids or _more_is_known(self.gpu, found):
            self._listener.watch(found.identity.uuid, found.handle, divided=bool(found.instances))
            self.gpu, self.lost = self._maker.make(self._library, found), None


def _more_is_known(gpu: Gpu, found: Found) -> bool:
    """Whether the board now told what it did not when it was first asked."""
    return found.identity.resource.items() > gpu.board.identity.resource.items()
