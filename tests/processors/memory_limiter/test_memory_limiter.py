"""The memory limiter frees memory first, refuses data while it is short, and accepts them again."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from pydantic import ValidationError

from otel_zernel.batch import Batch
from otel_zernel.config.load import load
from otel_zernel.config.schema import Settings, validate
from otel_zernel.errors import Refused
from otel_zernel.registry import Registry
from otel_zernel.runtime.memory import resident_memory
from otel_zernel.testing import FakeClock, make_context
from otel_zernel_processors.memory_limiter import MemoryLimiterProcessor
from otel_zernel_processors.memory_limiter.config import MIB
from otel_zernel_processors.memory_limiter.processor import MemorySources, free_memory
from tests.core.parts import batch_of


@dataclass
class Machine:
    """A process whose memory is a number. Freeing happens in a thread that ends at once."""

    used_mib: float = 0
    freeable_mib: float = 0
    available_mib: int | None = 1000
    looks: int = 0
    freed: list[bool] = field(default_factory=list)
    """For each attempt, whether it was a full one."""

    def used(self) -> int:
        self.looks += 1
        return round(self.used_mib * MIB)

    def available(self) -> int | None:
        return None if self.available_mib is None else self.available_mib * MIB

    def free(self, full: bool) -> None:
        self.freed.append(full)
        self.used_mib -= self.freeable_mib
        self.freeable_mib = 0

    def start(self, work: Callable[[], None]) -> threading.Thread:
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        return thread

    @property
    def sources(self) -> MemorySources:
        return MemorySources(self.used, self.available, self.free, self.start)


@dataclass
class Limited:
    """A limiter with a hard limit of 100 MiB and a soft one of 80 MiB, on a fake machine."""

    options: dict[str, Any] = field(default_factory=lambda: {"limit_mib": 100})
    machine: Machine = field(default_factory=Machine)
    clock: FakeClock = field(default_factory=FakeClock)
    reader: InMemoryMetricReader = field(default_factory=InMemoryMetricReader)

    def __post_init__(self) -> None:
        meter = MeterProvider([self.reader]).get_meter("test")
        context = make_context("processors", "memory_limiter", clock=self.clock, meter=meter)
        config = MemoryLimiterProcessor.Config.model_validate(self.options)
        self.limiter = MemoryLimiterProcessor(config, context, self.machine.sources)

    def accepts(self, seconds_later: float = 0.011) -> bool:
        """Whether a batch is admitted after this time."""
        self.clock.advance(seconds_later)
        try:
            self.limiter.admit(batch_of(1, 2))
        except Refused:
            return False
        return True

    @property
    def counts(self) -> dict[str, float]:
        data = self.reader.get_metrics_data()
        metrics = data.resource_metrics[0].scope_metrics[0].metrics if data and data.resource_metrics else []
        return {metric.name: point.value for metric in metrics for point in metric.data.data_points}  # type: ignore[union-attr]  # counters have number points


def test_below_the_soft_limit_everything_is_accepted_and_nothing_is_freed() -> None:
    limited = Limited(machine=Machine(used_mib=79))
    assert limited.accepts()
    assert limited.machine.freed == []


def test_above_the_soft_limit_memory_is_freed_before_data_are_refused() -> None:
    limited = Limited(machine=Machine(used_mib=85, freeable_mib=20))
    assert limited.accepts()
    assert limited.accepts()
    assert limited.machine.freed == [False]


def test_data_are_refused_if_freeing_does_not_help() -> None:
    limited = Limited(machine=Machine(used_mib=85))
    assert limited.accepts()  # an attempt to free memory begins
    assert not limited.accepts()
    with pytest.raises(Refused, match="memory_limiter") as refused:
        limited.limiter.admit(batch_of(1))
    assert refused.value.after == 1.0


def test_a_batch_that_its_source_emits_again_and_again_counts_as_refused_once() -> None:
    limited = Limited(machine=Machine(used_mib=100))
    batch = batch_of(1, 2)
    for _ in range(5):
        with pytest.raises(Refused):
            limited.limiter.admit(batch)
    assert limited.counts == {"otelcol_processor_refused_metric_points": 2}


def test_above_the_hard_limit_data_are_refused_at_once_and_all_garbage_is_collected() -> None:
    limited = Limited(machine=Machine(used_mib=100))
    assert not limited.accepts()
    assert limited.machine.freed == [True]


def test_data_are_accepted_again_below_the_soft_limit_and_both_changes_are_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    limited = Limited(machine=Machine(used_mib=100))
    for _ in range(5):
        assert not limited.accepts()
    assert limited.limiter.context.health.problems
    limited.machine.used_mib = 79
    for _ in range(5):
        assert limited.accepts()
    assert not limited.limiter.context.health.problems
    texts = [record.getMessage() for record in caplog.records]
    assert texts == [
        "Memory limits: hard 100 MiB, soft 80 MiB",
        "Refusing data: 100 MiB of memory in use, above the soft limit of 80 MiB",
        "Accepting data again: 79 MiB of memory in use",
    ]


def test_a_burst_between_two_ticks_is_noticed_within_10_ms() -> None:
    limited = Limited()
    assert limited.accepts()
    limited.machine.used_mib = 150
    assert limited.accepts(seconds_later=0.005)
    assert not limited.accepts(seconds_later=0.006)


def test_many_batches_at_once_cost_one_look() -> None:
    limited = Limited()
    for _ in range(100):
        assert limited.accepts(seconds_later=0.0001)
    assert limited.machine.looks == 1


def test_a_tick_notices_the_end_of_the_shortage_without_data() -> None:
    limited = Limited(machine=Machine(used_mib=100))
    assert not limited.accepts()
    limited.machine.used_mib = 10
    limited.clock.advance(0.001)
    assert list(limited.limiter.tick(0)) == []
    limited.limiter.admit(batch_of(1))
    assert limited.limiter.interval == 1.0


def test_attempts_keep_their_shortest_interval_and_double_it_while_they_free_nothing() -> None:
    limited = Limited(machine=Machine(used_mib=90))
    times = []
    for second in range(120):
        before = len(limited.machine.freed)
        limited.accepts(seconds_later=1)
        if len(limited.machine.freed) > before:
            times.append(second)
    assert [later - earlier for earlier, later in pairwise(times)] == [20, 30, 30, 30]


def test_an_effective_attempt_restores_the_shortest_interval() -> None:
    limited = Limited(machine=Machine(used_mib=95))
    for _ in range(40):
        limited.accepts(seconds_later=1)
    assert len(limited.machine.freed) == 2
    limited.machine.freeable_mib = 10
    for _ in range(30):
        limited.accepts(seconds_later=1)
    assert limited.machine.freed == [False] * 4  # one after 30 s more, which frees much, and the next 10 s later


def test_percentages_are_those_of_the_memory_that_the_process_may_use() -> None:
    options = {"limit_percentage": 50, "spike_limit_percentage": 10}
    limited = Limited(options, Machine(used_mib=399, available_mib=1000))
    assert limited.accepts()
    limited.machine.used_mib = 500
    assert not limited.accepts()


def test_a_limit_in_mib_wins_over_percentages() -> None:
    limited = Limited({"limit_mib": 100, "limit_percentage": 50}, Machine(used_mib=101))
    assert not limited.accepts()


def test_without_a_known_amount_of_memory_nothing_is_refused_and_an_error_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    limited = Limited({"limit_percentage": 50}, Machine(used_mib=10_000, available_mib=None))
    assert limited.accepts()
    assert limited.accepts()
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    assert "set limit_mib" in caplog.text


def test_items_are_counted_by_outcome() -> None:
    limited = Limited()
    assert limited.accepts()
    batch = Batch.join([batch_of(1, 2, 3), Batch.encoded("logs", b"", 4)])
    assert list(limited.limiter.process(batch)) == [batch]
    limited.machine.used_mib = 100
    assert not limited.accepts()
    assert limited.counts == {
        "otelcol_processor_accepted_metric_points": 3,
        "otelcol_processor_accepted_log_records": 4,
        "otelcol_processor_refused_metric_points": 2,
    }


def test_freed_memory_goes_back_to_the_kernel() -> None:
    blobs = [bytes(60_000 + size) for size in range(2000)]
    for blob in blobs:
        memoryview(blob)[::4096].tobytes()
    kept = blobs[::2]
    del blobs[:]
    before = resident_memory()
    free_memory(full=True)
    assert resident_memory() < before - 10 * MIB
    assert len(kept) == 1000


def test_the_resident_memory_is_that_of_psutil() -> None:
    psutil = pytest.importorskip("psutil")
    assert resident_memory() == pytest.approx(psutil.Process().memory_info().rss, rel=0.2)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({}, "set limit_mib or limit_percentage"),
        ({"limit_mib": 100, "check_interval": "0s"}, "greater than 0"),
        ({"limit_mib": 100, "spike_limit_mib": 100}, r"spike_limit_mib \(100\) must be less than limit_mib \(100\)"),
        ({"limit_percentage": 50, "spike_limit_percentage": 60}, "must be less than limit_percentage"),
        ({"limit_percentage": 101}, "less than or equal to 100"),
        ({"limit_mib": 1, "min_gc_interval_when_hard_limited": "11s"}, "must not be less than min_gc_interval_when_h"),
    ],
)
def test_a_wrong_configuration_is_refused_with_a_reason(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValidationError, match=sentence):
        MemoryLimiterProcessor.Config.model_validate(options)


def settings_with(processors: str) -> Settings:
    text = f"""
receivers: {{csv: {{files: [x.csv]}}}}
processors: {{memory_limiter: {{limit_mib: 100}}, batch: {{}}}}
exporters: {{debug: {{}}}}
service: {{pipelines: {{metrics: {{receivers: [csv], processors: {processors}, exporters: [debug]}}}}}}
"""
    return validate(load([f"yaml:{text}"], [], {}), Registry.installed(), {})


def test_a_limiter_behind_another_processor_is_a_warning() -> None:
    assert settings_with("[memory_limiter, batch]").warnings == ()
    [warning] = settings_with("[batch, memory_limiter]").warnings
    assert warning == 'service::pipelines::metrics: processor "memory_limiter" should be the first processor'
