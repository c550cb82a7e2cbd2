"""Exporters whose batches are converted before the queue, so that a retry repeats nothing."""

from collections.abc import Iterable
from typing import Any

from otel_zernel.batch import Batch
from otel_zernel.component import Context, Exporter
from otel_zernel.component.forms import DataForms
from otel_zernel_libraries.histograms.temporality.conversion import Conversion, ToCumulative, ToDelta
from otel_zernel_libraries.histograms.temporality.memory import SeriesMemoryConfig, Temporality
from otel_zernel_libraries.histograms.temporality.settled import SettledBounds

_KINDS: dict[str, type[ToCumulative] | type[ToDelta]] = {"cumulative": ToCumulative, "delta": ToDelta}


class ConvertingExporter(Exporter):
    """An exporter that settles moving bounds, and gives its sums and histograms one temporality.

    A reload keeps the totals.
    """

    _bounds: SettledBounds | None = None
    _totals: Conversion[Any] | None = None

    @classmethod
    def forms(cls, config: Any) -> DataForms:
        return DataForms(refuses={"moving_bounds": ("*",)} if config.moving_bounds == "as_is" else {})

    def prepares(self, batch: Batch) -> bool:
        return any(step is not None and step.concerns(batch) for step in (self._bounds, self._totals))

    def prepare(self, batch: Batch, *, dropped: bool) -> Iterable[Batch]:
        for step in (self._bounds, self._totals):
            if step is not None and step.concerns(batch) and (step.counts_dropped or not dropped):
                batch = step.convert(batch, self.context.drop)
        return (batch,)


def totals_in(temporality: Temporality, config: SeriesMemoryConfig, context: Context) -> Conversion[Any] | None:
    """The conversion; that of the former instance after a reload, if it has the same temporality."""
    kind = _KINDS.get(temporality)
    if kind is None:
        return None
    kept = context.kept.get("totals")
    totals: Conversion[Any] = kept if isinstance(kept, kind) else kind(config, context.clock)
    totals.limit(config)
    context.kept["totals"] = totals
    return totals
