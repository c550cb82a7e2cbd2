"""Writes what it is given as text, off the event loop."""

import asyncio
import contextlib
import sys
from collections.abc import Iterator
from typing import Self, TextIO

from otel_zernel.batch import Batch
from otel_zernel.component import Context, Exporter
from otel_zernel.errors import Permanent
from otel_zernel_exporters.debug import basic, detailed, normal
from otel_zernel_exporters.debug.config import DebugConfig
from otel_zernel_exporters.debug.sampling import Sampler

_LAYOUTS = {"basic": basic, "normal": normal, "detailed": detailed}


class DebugExporter(Exporter):
    """Shows batches on stdout or stderr. Once nobody reads there, batches are dropped and counted."""

    Config = DebugConfig
    stability = "beta"

    def __init__(self, config: DebugConfig, context: Context, stream: TextIO | None = None) -> None:
        """`stream` takes the place of the configured output."""
        super().__init__(config, context)
        self._stream = stream
        self._sampler = Sampler(config.sampling_initial, config.sampling_thereafter)

    async def __aenter__(self) -> Self:
        if self._stream is None:
            self._stream = sys.stdout if self.config.output == "stdout" else sys.stderr
        return self

    async def export(self, batch: Batch) -> None:
        if self._sampler.takes(self.context.clock.monotonic()):
            await asyncio.to_thread(self._write, batch)

    def _write(self, batch: Batch) -> None:
        stream = self._stream
        if stream is None or stream.closed:
            raise Permanent(f"{self.config.output} is closed")
        try:
            stream.writelines(f"{line}\n" for line in self._render(batch))
            stream.flush()
        except OSError as error:
            self.context.report(f"cannot write to {self.config.output}: {error.strerror}")
            with contextlib.suppress(OSError):  # else Python writes the rest again at exit, and fails loudly
                stream.close()
            raise Permanent(f"cannot write to {self.config.output}: {error.strerror}") from error

    def _render(self, batch: Batch) -> Iterator[str]:
        layout = _LAYOUTS[self.config.verbosity]
        if batch.point_count:
            yield from layout.render_metrics(batch.metrics)
        if batch.span_count:
            yield from layout.render_spans(batch.spans)
