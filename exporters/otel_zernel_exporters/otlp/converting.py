"""The conversions of histograms and temporalities, which both exporters share. They work before the queue: a retry
repeats nothing."""

from collections.abc import Iterable
from typing import Any

from otel_zernel.batch import Batch
from otel_zernel.component import Context, Exporter
from otel_zernel.component.forms import DataForms
from otel_zernel_exporters.otlp.config import OtlpConfig
from otel_zernel_libraries.histograms.temporality import Conversion, ToCumulative, ToDelta, settled_bounds
from otel_zernel_libraries.prometheus.histograms import fixed_bounds

_KINDS: dict[str, type[ToCumulative] | type[ToDelta]] = {"cumulative": ToCumulative, "delta": ToDelta}


class ConvertingExporter(Exporter):
    """An exporter that settles moving bounds, and gives its sums and histograms the configured temporality.

    A reload keeps the totals.
    """

    config: OtlpConfig
    in_order = True

    @classmethod
    def forms(cls, config: OtlpConfig) -> DataForms:
        return DataForms(refuses={"moving_bounds": ("*",)} if config.moving_bounds == "as_is" else {})

    def __init__(self, config: OtlpConfig, context: Context) -> None:
        super().__init__(config, context)
        self._bounds = settled_bounds(config.moving_bounds, fixed_bounds, config.conversion, context)
        self._conversion = _conversion(config, context)

    def prepares(self, batch: Batch) -> bool:
        return self._settles(batch) or self._converts(batch)

    def prepare(self, batch: Batch, *, dropped: bool) -> Iterable[Batch]:
        if self._bounds is not None and self._bounds.concerns(batch):
            batch = self._bounds.convert(batch, self.context.drop)
        conversion = self._conversion
        if conversion is None or not conversion.concerns(batch) or (dropped and not conversion.counts_dropped):
            return (batch,)
        return (conversion.convert(batch, self.context.drop),)

    def _settle_to_fixed_bounds(self) -> None:
        """For batches that come from now on. It leaves moving bounds as they are if these are configured so."""
        if self._bounds is not None:
            self._bounds = settled_bounds("fixed", fixed_bounds, self.config.conversion, self.context)

    def _settles(self, batch: Batch) -> bool:
        return self._bounds is not None and self._bounds.concerns(batch)

    def _converts(self, batch: Batch) -> bool:
        return self._conversion is not None and self._conversion.concerns(batch)


def _conversion(config: OtlpConfig, context: Context) -> Conversion[Any] | None:
    """The conversion; that of the former instance after a reload, if it has the same temporality."""
    kind = _KINDS.get(config.temporality)
    if kind is None:
        return None
    kept = context.kept.get("conversion")
    conversion: Conversion[Any] = kept if isinstance(kept, kind) else kind(config.conversion, context.clock)
    conversion.limit(config.conversion)
    context.kept["conversion"] = conversion
    return conversion
