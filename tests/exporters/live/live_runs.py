"""A live exporter without a server, and the batches to feed it."""

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any

from otel_zernel.batch import Batch
from otel_zernel.otlp.points import AttributeValue, key_values
from otel_zernel.testing import Dropped, FakeClock, make_context
from otel_zernel_exporters.live import LiveExporter
from otel_zernel_libraries.serving.api.live import apply_delta
from otel_zernel_libraries.training.interval_spans import Ending, ProcessSpan
from otel_zernel_libraries.training.step_spans import SCOPE_NAME, JobStepSpan, StepSpan
from tests import otlp
from tests.commands.why.recorded_runs import processed
from tests.otlp import NOW
from tests.otlp import SECOND as SECOND

START = NOW
Attributes = Mapping[str, AttributeValue]
PROCESS: Attributes = {"host.name": "n1", "process.pid": 7, "process.creation.time": "2026-01-01T00:00:00Z"}
EXIT = Ending("exit")
RANK = "n1/7/2026-01-01T00:00:00Z"


class LiveRun:
    """A live exporter whose clock the test moves."""

    def __init__(self, start_ns: int = START, **config: Any) -> None:
        self.clock = FakeClock(start_ns)
        self.context = make_context("exporters", "live", clock=self.clock)
        self.exporter = LiveExporter(LiveExporter.Config(**{"api": None, **config}), self.context)

    @property
    def dropped(self) -> Dropped:
        assert isinstance(self.context.drop, Dropped)
        return self.context.drop

    async def add(self, *batches: Batch) -> dict[str, Any]:
        """The state after these batches."""
        for batch in batches:
            await self.exporter.export(batch)
        return self.exporter.snapshot()

    def after(self, seconds: float) -> dict[str, Any]:
        """The state at a later time."""
        self.clock.advance(seconds)
        return self.exporter.snapshot()


class LiveCopy:
    """A reader that has a state, and follows it by deltas that have been JSON."""

    def __init__(self, state: dict[str, Any]) -> None:
        self.state: dict[str, Any] = json.loads(json.dumps(state))

    def follow(self, deltas: Iterable[dict[str, Any]]) -> None:
        for delta in deltas:
            apply_delta(self.state, json.loads(json.dumps(delta)))


def points(
    name: str,
    values: Iterable[tuple[Attributes, float | None]],
    resource: Attributes = PROCESS,
    *,
    time_ns: int = START,
) -> Batch:
    """A gauge with one point for each pair of attributes and value. None: a point without a recorded value."""
    made = (
        otlp.ended(attributes, time_ns) if value is None else otlp.number(float(value), attributes, time_ns)
        for attributes, value in values
    )
    return Batch(otlp.data(otlp.gauge(name, *made), resource=resource))


def phase_times(resource: Attributes = PROCESS, *, time_ns: int = START, **spent: float | None) -> Batch:
    """The time of each phase (s) by scopes."""
    values = [({"zernel.phase": phase, "zernel.phase.source": "scopes"}, seconds) for phase, seconds in spent.items()]
    return points("zernel.phase.time", values, resource, time_ns=time_ns)


def durations(*lasted: float, resource: Attributes = PROCESS, kind: str = "training", time_ns: int = START) -> Batch:
    """A delta histogram of `zernel.step.duration` with a bucket for each duration (s)."""
    bounds = [bound for duration in sorted(set(lasted)) for bound in (duration * 0.9999, duration)]
    counts = [*(lasted.count(bound) for bound in bounds), 0]
    metric = otlp.histogram("zernel.step.duration", bounds, counts, sum(lasted), time=time_ns, temporality=otlp.DELTA)
    metric.histogram.data_points[0].attributes.extend(key_values({"zernel.step.kind": kind}))
    return Batch(otlp.data(metric, resource=resource))


def step(
    number: int,
    start_ns: int,
    lasts_ns: int,
    resource: Attributes = PROCESS,
    trace: bytes = b"t" * 16,
    phase_s: Sequence[float] | None = None,
) -> Batch:
    """The trace of a step that only computes, or has these times in each phase."""
    made = StepSpan(
        start_ns=start_ns,
        end_ns=start_ns + lasts_ns,
        number=number,
        kind="training",
        thread=1,
        is_lossy=False,
        overlap_ns=0,
        phase_ns=tuple(round(seconds * SECOND) for seconds in phase_s) if phase_s else (0, lasts_ns, 0, 0, 0),
    )
    return spans(made, resource, trace)


def spans(made: StepSpan | JobStepSpan | ProcessSpan, resource: Attributes, trace: bytes = b"t" * 16) -> Batch:
    """A batch with one span, in the scope of phases."""
    span = made.to_span()
    span.trace_id = trace
    message = otlp.traces(span, resource=resource)
    message.resource_spans[0].scope_spans[0].scope.name = SCOPE_NAME
    return Batch(spans=message)


def ended(resource: Attributes = PROCESS, ending: Ending = EXIT) -> Batch:
    """The span of a process that has ended."""
    return spans(ProcessSpan(1, START, START + SECOND, ending), resource)


@cache
def recorded_batches(name: str, *, is_job: bool = False) -> tuple[Batch, ...]:
    """The output of `phases` for a recorded run. Readers leave it unchanged."""
    return tuple(processed(name, is_job=is_job))
