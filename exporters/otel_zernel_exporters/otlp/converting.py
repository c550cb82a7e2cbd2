"""The conversion of temporalities, which both exporters share. It works before the queue: a retry repeats nothing."""

from collections.abc import Iterable
from typing import Any

from otel_zernel.batch import Batch
from otel_zernel.component import Context, Exporter
from otel_zernel.temporality import Conversion, ToCumulative, ToDelta
from otel_zernel_exporters.otlp.config import OtlpConfig

_KINDS: dict[str, type[ToCumulative] | type[ToDelta]] = {"cumulative": ToCumulative, "delta": ToDelta}


class ConvertingExporter(Exporter):
    """An exporter that gives its sums and histograms the configured temporality. A reload keeps the totals."""

    config: OtlpConfig
    in_order = True

    def __init__(self, config: OtlpConfig, context: Context) -> None:
        super().__init__(config, context)
        self._conversion = _conversion(config, context)

    def prepares(self, batch: Batch) -> bool:
        return self._conversion is not None and self._conversion.concerns(batch)

    def prepare(self, batch: Batch, *, dropped: bool) -> Iterable[Batch]:
        if self._conversion is None or (dropped and not self._conversion.counts_dropped):
            return (batch,)
        return self._conversion.convert(batch, self.context.drop)


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
