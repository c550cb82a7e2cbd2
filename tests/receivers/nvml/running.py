"""The receiver's parts put together without its loop."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from otel_zernel.component import Context
from otel_zernel.testing import FakeClock, make_context
from otel_zernel_receivers.nvml.config import NvmlConfig
from otel_zernel_receivers.nvml.events import Xids
from otel_zernel_receivers.nvml.gpu import Gpu, Maker, find_all
from otel_zernel_receivers.nvml.library import Library

HOST = "node-1"


class Host:
    """The GPUs of a host, to be scraped by hand, and their histories over restarts of the driver."""

    def __init__(self, options: dict[str, Any] | None = None, context: Context | None = None) -> None:
        self.clock = FakeClock()
        self.context = context or make_context(id_="nvml", clock=self.clock)
        self.config = NvmlConfig.model_validate({"processes": {"proc": "/nowhere"}, **(options or {})})
        self.xids = Xids(self.clock.time_ns)
        self.failed: list[tuple[str, str]] = []
        self._maker = Maker(self.config, self.context, self.xids, lambda *what: self.failed.append(what))

    @contextmanager
    def gpus(self) -> Iterator[list[Gpu]]:
        """What the driver knows now."""
        library = Library()
        try:
            yield [self._maker.make(library, found) for found in find_all(library, HOST)]
        finally:
            library.close()
