"""The percentiles processor: counts the values of batches, and emits their distributions at an interval."""

from collections.abc import Iterable
from functools import cached_property
from typing import TYPE_CHECKING

from otel_zernel.batch import Batch
from otel_zernel.component import Context, Processor
from otel_zernel.component.forms import DataForms
from otel_zernel_processors.percentiles.config import PercentilesConfig

if TYPE_CHECKING:
    from otel_zernel_processors.percentiles.aggregation import Aggregation


class PercentilesProcessor(Processor):
    """Counts the values of each series, and emits histograms that can be merged, or their quantiles, at an interval."""

    Config = PercentilesConfig
    stability = "beta"
    signals = frozenset({"metrics"})
    items_at_once = 0  # the first batch imports numpy

    def __init__(self, config: PercentilesConfig, context: Context) -> None:
        super().__init__(config, context)
        self.interval = config.interval
        self._began_ns = context.clock.time_ns()
        self._loaded = False

    @classmethod
    def forms(cls, config: PercentilesConfig) -> DataForms:
        """Summaries pass unchanged, so a second percentiles processor cannot combine those of the first one."""
        summaries = config.metrics if "summary" in config.outputs else ()
        return DataForms(
            emits={"summaries": summaries} if summaries else {},
            converts={} if config.pass_through else {"moving_bounds": config.metrics},
            refuses={"summaries": config.metrics},
        )

    @cached_property
    def aggregation(self) -> "Aggregation":
        """Its series. It exists from the first batch on."""
        from otel_zernel_processors.percentiles.aggregation import Aggregation

        self._loaded = True
        return Aggregation(self.config, self.context, self._began_ns)

    def process(self, batch: Batch) -> Iterable[Batch]:
        """Counts the configured metrics, and passes on the others."""
        return self.aggregation.process(batch)

    def tick(self, now_ns: int) -> Iterable[Batch]:
        """The outputs of all series, and points without a recorded value for series that end."""
        return self.aggregation.tick(now_ns) if self._loaded else ()

    def flush(self) -> Iterable[Batch]:
        """The outputs, if there are values since the last tick."""
        return self.aggregation.flush() if self._loaded else ()
