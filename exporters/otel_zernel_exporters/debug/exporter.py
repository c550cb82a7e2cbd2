"""Writes what it is given as text, off the event loop."""

import asyncio
import contextlib
import sys
from collections.abc import Iterator
from fnmatch import fnmatchcase
from io import TextIOWrapper
from typing import Self, TextIO

from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

from otel_zernel.batch import Batch
from otel_zernel.component import Context, Exporter
from otel_zernel_exporters.debug import basic, detailed, normal
from otel_zernel_exporters.debug.config import DebugConfig
from otel_zernel_exporters.debug.sampling import BatchSampler

_LAYOUTS = {"basic": basic, "normal": normal, "detailed": detailed}


class DebugExporter(Exporter):
    """Shows what flows: counts, tables to be read, or everything.

    Once nobody reads there, batches are dropped and counted.
    """

    Config = DebugConfig
    stability = "beta"

    def __init__(self, config: DebugConfig, context: Context, stream: TextIO | None = None) -> None:
        """`stream` takes the place of the configured output."""
        super().__init__(config, context)
        self._stream = stream
        self._sampler = BatchSampler(config.sampling_initial, config.sampling_thereafter)

    async def __aenter__(self) -> Self:
        if self._stream is None:
            self._stream = sys.stdout if self.config.output == "stdout" else sys.stderr
        if isinstance(self._stream, TextIOWrapper):
            self._stream.reconfigure(errors="backslashreplace")  # a terminal need not know every character
        return self

    async def export(self, batch: Batch) -> None:
        if self._sampler.takes(self.context.clock.monotonic()):
            await asyncio.to_thread(self._write, batch)

    def _write(self, batch: Batch) -> None:
        stream = self._stream
        if stream is None or stream.closed:
            self.context.drop(batch.item_count, "output_closed")
            return
        try:
            stream.writelines(f"{line}\n" for line in self._render(batch))
            stream.flush()
        except OSError as error:
            self._close(stream, f"Cannot write to {self.config.output} any more: {error.strerror}")
            self.context.drop(batch.item_count, "output_closed")

    def _close(self, stream: TextIO, problem: str) -> None:
        self.context.logger.error("%s; what follows is dropped", problem)
        self.context.report(problem)
        with contextlib.suppress(OSError):  # left open, Python would write the rest at exit and fail loudly
            stream.close()

    def _render(self, batch: Batch) -> Iterator[str]:
        layout = _LAYOUTS[self.config.verbosity]
        if batch.point_count and (metrics := self._chosen(batch.metrics)).resource_metrics:
            yield from layout.render_metrics(metrics)
        if batch.span_count:
            yield from layout.render_spans(batch.spans)

    def _chosen(self, metrics: MetricsData) -> MetricsData:
        """The metrics to show: a copy without the others, unless all are."""
        if "*" in self.config.metrics:
            return metrics
        chosen = MetricsData()
        for resource in metrics.resource_metrics:
            for scope in resource.scope_metrics:
                wanted = [metric for metric in scope.metrics if self._is_wanted(metric.name)]
                if wanted:
                    piece = chosen.resource_metrics.add(resource=resource.resource, schema_url=resource.schema_url)
                    piece.scope_metrics.add(scope=scope.scope, schema_url=scope.schema_url, metrics=wanted)
        return chosen

    def _is_wanted(self, name: str) -> bool:
        return any(fnmatchcase(name, glob) for glob in self.config.metrics)
