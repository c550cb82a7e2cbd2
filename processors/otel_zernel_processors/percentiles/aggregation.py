"""Counts the values of batches, and makes their distributions."""

import math
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from functools import lru_cache

import numpy as np
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric, MetricsData

from otel_zernel.batch import Batch
from otel_zernel.component import Context
from otel_zernel_libraries.histograms.hdr import HdrLayout
from otel_zernel_libraries.repeated_fields import keep_only
from otel_zernel_processors.percentiles.config import PercentilesConfig
from otel_zernel_processors.percentiles.counts.exemplars import Exemplars
from otel_zernel_processors.percentiles.counts.exponential import ExponentialTotals
from otel_zernel_processors.percentiles.counts.series import PercentileSeries, PercentileSeriesTable
from otel_zernel_processors.percentiles.counts.window import WindowCounts
from otel_zernel_processors.percentiles.emit.report import PercentilesReport
from otel_zernel_processors.percentiles.intake.intake import Intake

_COUNTED = frozenset({"gauge", "sum", "histogram", "exponential_histogram"})


class Aggregation:
    """The distributions of all series: a `PercentilesProcessor` does all its work here.

    It needs numpy, whose import takes 50 ms. So the processor creates it with the first batch.
    """

    def __init__(self, config: PercentilesConfig, context: Context, began_ns: int) -> None:
        """`began_ns` is the start of the processor, in ns since 1970."""
        self._config = config
        self._clock = context.clock
        self._idle_ns = round(config.idle_timeout * 1e9)
        self._table = PercentileSeriesTable(config)
        layout = HdrLayout(significant_figures=config.significant_figures)
        self._counts = WindowCounts(layout, _steps(config))
        self._totals = ExponentialTotals(layout, config.max_series) if "histogram" in config.outputs else None
        self._exemplars = Exemplars()
        kept = self._exemplars if self._totals else None  # summaries have no exemplars
        self._intake = Intake(config, context, self._table, self._counts, began_ns, kept)
        self._report = PercentilesReport(config, self._table, self._counts, self._totals, self._exemplars)
        self._ticked_ns = 0
        self._named = lru_cache(4096)(self._is_named)

    def process(self, batch: Batch) -> Iterable[Batch]:
        """Counts the configured metrics, and passes on the others."""
        if not self._count(batch.metrics) or self._config.pass_through:
            return (batch,)
        return self._rest(batch)

    def tick(self, now_ns: int) -> Iterator[Batch]:
        """The outputs of all series, and points without a recorded value for series that end."""
        step = self._counts.close()
        ended = self._expire(now_ns - self._idle_ns)
        self._ticked_ns, self._intake.has_counted = now_ns, False
        yield from self._report.ends(ended, now_ns)
        yield from self._report.batches(now_ns, step)

    def flush(self) -> Iterable[Batch]:
        """The outputs, if there are values since the last tick."""
        return self.tick(self._clock.time_ns()) if self._intake.has_counted else ()

    def _count(self, metrics: MetricsData) -> bool:
        """Counts the points of the configured metrics. Returns whether there were any."""
        now_ns, has_metric = self._clock.time_ns(), False
        for resource in metrics.resource_metrics:
            encoded_resource = resource.resource.SerializeToString()
            for scope in resource.scope_metrics:
                counted = [metric for metric in scope.metrics if self._counts_metric(metric)]
                if counted:
                    has_metric, encoded_scope = True, scope.scope.SerializeToString()
                for metric in counted:
                    self._intake.collect(encoded_resource, encoded_scope, metric, now_ns)
        self._intake.count(now_ns)
        return has_metric

    def _counts_metric(self, metric: Metric) -> bool:
        return self._named(metric.name) and metric.WhichOneof("data") in _COUNTED

    def _is_named(self, name: str) -> bool:
        return any(fnmatchcase(name, pattern) for pattern in self._config.metrics)

    def _rest(self, batch: Batch) -> Iterator[Batch]:
        """The batch without the counted metrics, if it has others."""
        metrics = batch.edit_metrics()
        for resource in metrics.resource_metrics:
            for scope in resource.scope_metrics:
                keep_only(scope.metrics, lambda metric: not self._counts_metric(metric))
            keep_only(resource.scope_metrics, lambda scope: scope.metrics)
        keep_only(metrics.resource_metrics, lambda resource: resource.scope_metrics)
        if metrics.resource_metrics:
            yield batch
        elif others := set(batch.signals) - {"metrics"}:
            yield batch.only(others)

    def _expire(self, before_ns: int) -> Iterable[PercentileSeries]:
        ended = self._table.expire(before_ns, self._ticked_ns)
        for slot in ended:
            self._exemplars.pop(slot)
        if ended:
            slots = np.fromiter(ended, np.int64)
            self._counts.forget(slots)
            if self._totals:
                self._totals.forget(slots)
        self._intake.expire(before_ns, slots_freed=len(ended) > 0)
        return ended.values()


def _steps(config: PercentilesConfig) -> int | None:
    """The intervals that the window of summaries covers; None for all since the start."""
    if "summary" not in config.outputs:
        return 0
    return None if config.window == "since_start" else math.ceil(config.window / config.interval)
