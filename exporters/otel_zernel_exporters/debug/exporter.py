"""The debug exporter: writes batches as text, in a thread."""

import asyncio
import contextlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from io import TextIOWrapper
from math import floor
from typing import Self, TextIO

from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

from otel_zernel.batch import ALL_SIGNALS, Batch
from otel_zernel.component import Context, Exporter
from otel_zernel.errors import invalid_is_permanent
from otel_zernel_exporters.debug import basic, detailed, normal
from otel_zernel_exporters.debug.config import DebugConfig, Verbosity


@dataclass(slots=True)
class BatchSampler:
    """Admits the first `initial` batches of every second, then every `thereafter`-th, or none if that is 0."""

    initial: int
    thereafter: int
    _second: int = -1
    _seen: int = 0

    def admits(self, now: float) -> bool:
        """Whether to print the next batch; `now` in seconds."""
        if floor(now) != self._second:
            self._second = floor(now)
            self._seen = 0
        self._seen += 1
        rest = self._seen - self.initial
        return rest <= 0 or (self.thereafter > 0 and rest % self.thereafter == 0)


_LAYOUTS = {"basic": basic.LAYOUT, "normal": normal.LAYOUT, "detailed": detailed.LAYOUT}


def _layout_of(verbosity: Verbosity) -> basic.Layout:
    if verbosity == "jobs":
        from otel_zernel_exporters.debug import jobs  # takes time and memory

        return jobs.LAYOUT
    return _LAYOUTS[verbosity]


class DebugExporter(Exporter):
    """Prints the batches of a pipeline: counts, readable tables, or every field.

    After a write error, such as a closed pipe, all batches are dropped and counted.
    """

    Config = DebugConfig
    stability = "beta"
    signals = ALL_SIGNALS

    def __init__(self, config: DebugConfig, context: Context, stream: TextIO | None = None) -> None:
        """`stream` replaces the configured output."""
        super().__init__(config, context)
        self._stream = stream
        self._sampler = BatchSampler(config.sampling_initial, config.sampling_thereafter)

    async def __aenter__(self) -> Self:
        if self._stream is None:
            self._stream = sys.stdout if self.config.output == "stdout" else sys.stderr
        if isinstance(self._stream, TextIOWrapper):
            self._stream.reconfigure(errors="backslashreplace")  # a terminal may not support every character
        return self

    async def export(self, batch: Batch) -> None:
        if self._sampler.admits(self.context.clock.monotonic()):
            with invalid_is_permanent():
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
            self._close(stream, f"cannot write to {self.config.output}: {error.strerror}")
            self.context.drop(batch.item_count, "output_closed")

    def _close(self, stream: TextIO, problem: str) -> None:
        self.context.logger.error("Dropping all further batches: %s", problem)
        self.context.report(problem)
        with contextlib.suppress(OSError):  # else Python writes the buffered rest at exit, and prints the error
            stream.close()

    def _render(self, batch: Batch) -> Iterator[str]:
        layout = _layout_of(self.config.verbosity)
        for signal in batch.signals:
            message = self._chosen(batch.metrics) if signal == "metrics" else batch.message(signal)
            if signal in layout and batch.count_of(signal) and message.ByteSize():
                yield from layout[signal](message)

    def _chosen(self, metrics: MetricsData) -> MetricsData:
        """The metrics that match the configuration, as a copy unless all match."""
        if "*" in self.config.metrics:
            return metrics
        chosen = MetricsData()
        for resource in metrics.resource_metrics:
            for scope in resource.scope_metrics:
                chosen_metrics = [metric for metric in scope.metrics if self._matches(metric.name)]
                if chosen_metrics:
                    piece = chosen.resource_metrics.add(resource=resource.resource, schema_url=resource.schema_url)
                    piece.scope_metrics.add(scope=scope.scope, schema_url=scope.schema_url, metrics=chosen_metrics)
        return chosen

    def _matches(self, name: str) -> bool:
        return any(fnmatchcase(name, glob) for glob in self.config.metrics)
