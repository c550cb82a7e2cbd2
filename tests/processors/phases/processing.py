"""A phases processor for the tests, and access to its output."""

from collections.abc import Iterable, Iterator

from opentelemetry.metrics import Meter
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from otel_zernel.batch import Batch
from otel_zernel.testing import Dropped, FakeClock, make_context
from otel_zernel_libraries.training.causes import JobAnswer
from otel_zernel_libraries.training.state import SeenProcess, TrainingState
from otel_zernel_processors.phases import PhasesProcessor
from tests.otlp import records_in
from tests.processors.phases.training import (
    MS,
    START,
    batch_of,
    resource_of,
    values_of,
)


def make(**settings: object) -> PhasesProcessor:
    """A processor whose streams are recordings."""
    return make_at(FakeClock(START + 365 * 86_400_000 * MS), **settings)


def make_at(clock: FakeClock, meter: Meter | None = None, /, **settings: object) -> PhasesProcessor:
    config = PhasesProcessor.Config.model_validate({"interval": "1s", **settings})
    return PhasesProcessor(config, make_context("processors", "phases", clock=clock, meter=meter))


def feed(processor: PhasesProcessor, batches: Iterable[Batch]) -> list[Batch]:
    return [out for batch in batches for out in processor.process(batch)] + list(processor.flush())


def run(*batches: Batch, **settings: object) -> list[Batch]:
    return feed(make(**settings), batches)


def dropped(processor: PhasesProcessor) -> dict[str, int]:
    assert isinstance(processor.context.drop, Dropped)
    return dict(processor.context.drop.counts)


def process_in(batches: Iterable[Batch]) -> SeenProcess:
    """What a reader of the output knows about the only process that there is an answer on."""
    training = TrainingState()
    for batch in batches:
        training.add(batch, 0.0)
    (process,) = (process for process in training.processes if process.answer)
    return process


def answer_in(batches: Iterable[Batch]) -> JobAnswer:
    """The answer on the only process, at the end of the output."""
    answer = process_in(batches).answer
    assert answer
    return answer


def log_records_of(batches: Iterable[Batch]) -> list[LogRecord]:
    """All log records."""
    return [record for batch in batches for record in records_in(batch.logs)]


def phases_of(batches: list[Batch], pid: int = 42, by: str = "") -> dict[str, float]:
    """The last value of zernel.phase.time for each phase, in ms: of any source, or of one."""
    times = values_of(batches, "zernel.phase.time")
    times = [(attributes, value) for attributes, value in times if by in ("", attributes["zernel.phase.source"])]
    of_process = [(attributes, value) for attributes, value in times if attributes["process.pid"] == pid]
    return {str(attributes["zernel.phase"]): round(value * 1000, 6) for attributes, value in of_process}


def last(batches: list[Batch], name: str, **wanted: object) -> float:
    """The last value of a metric among the points with these attributes (`_` stands for `.`)."""
    expected = {key.replace("_", "."): value for key, value in wanted.items()}
    values = [value for attributes, value in values_of(batches, name) if expected.items() <= attributes.items()]
    return values[-1]


def state(batches: list[Batch], name: str) -> str:
    """The last state of a state set."""
    return [str(attributes[name]) for attributes, value in values_of(batches, name) if value][-1]


def in_pieces(spans: list[Span], size: int = 7, **resource: object) -> Iterator[Batch]:
    """The spans in the order of their ends, `size` per batch."""
    spans = sorted(spans, key=lambda span: span.end_time_unix_nano)
    for at in range(0, len(spans), size):
        yield batch_of(spans[at : at + size], resource_of(**resource))  # type: ignore[arg-type]  # tests pass attributes
