"""The phases processor: reads spans and signals of training processes, and emits their phases."""

from collections.abc import Collection, Iterator

from otel_zernel.batch import Batch, Signal
from otel_zernel.component import Context, Processor
from otel_zernel.component.forms import DataForms, Form, Names
from otel_zernel_libraries.training import semconv
from otel_zernel_processors.phases.config import PhasesConfig


class PhasesProcessor(Processor):
    """Finds the phase of every second of a training process, and emits metrics, traces and a verdict."""

    Config = PhasesConfig
    stability = "alpha"
    items_at_once = 0

    def __init__(self, config: PhasesConfig, context: Context) -> None:
        super().__init__(config, context)
        from otel_zernel_processors.phases.hosts import Hosts  # a list of components does without it

        self.interval = config.interval
        self._hosts = Hosts(config, context)
        if config.verdict is not None:
            context.logger.warning(
                "verdict has no effect: verdicts follow from causes, ranked by what a step would save without them. "
                "Remove it from the configuration"
            )
        if config.source in ("auto", "scopes") and "traces" not in context.signals:
            context.logger.warning(
                "This pipeline carries no spans, and PyTorch's scopes are spans: to get phases by scopes, rename the "
                "pipeline so that its name does not begin with metrics, for example to training"
            )

    @classmethod
    def forms(cls, config: PhasesConfig) -> DataForms:
        converts: dict[Form, Names] = {} if config.pass_through else {"interval_spans": ("*",)}
        return DataForms(emits={"moving_bounds": (semconv.STEP_DURATION,)}, converts=converts)

    @property
    def reads(self) -> Collection[Signal]:
        """Metrics; for phases from scopes also spans, and log records about processes."""
        read: list[Signal] = ["metrics", "traces", "logs"]
        return read if self.config.source in ("auto", "scopes") else read[:1]

    def process(self, batch: Batch) -> Iterator[Batch]:
        """Consumes the spans with the attribute `zernel.interval` and the log records about processes, and reads
        metrics. All else passes unchanged."""
        return self._hosts.process(batch)

    def tick(self, now_ns: int) -> Iterator[Batch]:
        """Advances the time of live hosts whose data has stopped."""
        return self._hosts.tick(now_ns)

    def flush(self) -> Iterator[Batch]:
        """Closes all steps and makes the last reports."""
        return self._hosts.flush()
