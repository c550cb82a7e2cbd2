"""The receiver's parts put together without its loop."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from otel_zernel.component import Context
from otel_zernel.testing import FakeClock, make_context
from otel_zernel_receivers.nvml.config import NvmlConfig
from otel_zernel_receivers.nvml.driver.events import Listener, Xids
from otel_zernel_receivers.nvml.driver.library import Library
from otel_zernel_receivers.nvml.gpu_slot import Place
from otel_zernel_receivers.nvml.gpus.gpu import Gpu, Maker, count, find

HOST = "node-1"


class Host:
    """The GPUs of a host, to be scraped by hand, and their histories over restarts of the driver."""

    def __init__(self, options: dict[str, Any] | None = None, context: Context | None = None) -> None:
        self.clock = FakeClock()
        self.context = context or make_context(id_="nvml", clock=self.clock)
        self.config = NvmlConfig.model_validate({"processes": {"proc": "/nowhere"}, **(options or {})})
        self.xids = Xids(self.clock.time_ns)
        self.failed: list[tuple[str, str]] = []
        self._maker = Maker(self.config, self.context, self.xids)

    @contextmanager
    def gpus(self) -> Iterator[list[Gpu]]:
        """What the driver knows now."""
        library = Library(lambda *what: self.failed.append(what))
        try:
            found = (find(library, index, HOST) for index in range(count(library)))
            yield [self._maker.make(library, one) for one in found if one]
        finally:
            library.close()

    @contextmanager
    def place(self) -> Iterator[Place]:
        """Where the driver lists its first GPU."""
        library = Library(lambda *what: self.failed.append(what))
        listener = Listener(library, self.xids.count)
        try:
            yield Place(library, 0, listener, self._maker)
        finally:
            listener.stop()
            assert listener.close(timeout=5)
            library.close()
