"""The message of the feed is that of the contract, and its latencies are those of all processes."""

import pytest
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

from otel_zernel.batch import Batch
from otel_zernel.otlp.json import parse_json
from tests.examples.seed_data import recorded
from tests.exporters.websocket.feeds import (
    COLLECTIVES,
    EMPTY,
    LAUNCHES,
    PEAK,
    WAITS,
    FeedRun,
    explicit,
    exponential,
    memory,
    summary,
)
from tests.otlp import CUMULATIVE

MS = 1e-3
US = 1e-6


def test_a_feed_without_data_has_every_field() -> None:
    assert FeedRun().message() == EMPTY


def test_memory_is_listed_by_process_and_gpu() -> None:
    run = FeedRun()
    add = run.add(memory(5), memory(9, PEAK), memory(3, gpu=1), memory(2, "zernel.gpu.memory.used", pid=8))
    assert add["gpu_utilization"] == [
        {"key": "7:0", "current_bytes": 5, "peak_bytes": 9},
        {"key": "7:1", "current_bytes": 3, "peak_bytes": 3},
        {"key": "8:0", "current_bytes": 2, "peak_bytes": 2},
    ]
    assert add["last_update_ms"] == run.clock.time_ns() // 1_000_000


def test_memory_leaves_with_the_end_of_its_series_and_when_its_process_is_silent() -> None:
    run = FeedRun(expiration=60)
    run.add(memory(5), memory(9, PEAK), memory(3, pid=8))
    add = run.add(memory(None), memory(None, PEAK))
    assert [one["key"] for one in add["gpu_utilization"]] == ["8:0"]
    assert run.after(61)["gpu_utilization"] == []


def test_processes_with_one_pid_on_two_hosts_stay_apart() -> None:
    add = FeedRun().add(memory(1, resource={"host.name": "a"}), memory(2, resource={"host.name": "b"}))
    assert [one["current_bytes"] for one in add["gpu_utilization"]] == [1, 2]


def test_memory_of_more_than_1024_processes_is_dropped_and_counted() -> None:
    run = FeedRun()
    add = run.add(*(memory(1, pid=pid) for pid in range(1, 1030)))
    assert len(add["gpu_utilization"]) == 1024
    assert run.drops == {"max_processes": 5}


@pytest.mark.parametrize(
    ("name", "p50", "p99", "unit"),
    [
        (LAUNCHES, "cuda_latency_p50_us", "cuda_latency_p99_us", US),
        (COLLECTIVES, "nccl_allreduce_p50_ms", "nccl_allreduce_p99_ms", MS),
        (WAITS, "dataloader_wait_p50_ms", None, MS),
    ],
)
@pytest.mark.parametrize("suffix", ["", ".distribution"])
def test_a_latency_is_that_of_all_processes_never_of_one(
    name: str, p50: str, p99: str | None, unit: float, suffix: str
) -> None:
    """98 calls of one process are fast, 2 of another one are slow."""
    slow = explicit(name + suffix, {500 * unit: 2}, process_pid=2)
    add = FeedRun().add(explicit(name + suffix, {5 * unit: 98}, process_pid=1), slow)
    assert add[p50] == pytest.approx(5, rel=0.01)
    if p99:
        assert add[p99] == pytest.approx(500, rel=0.01)


def test_histograms_of_every_form_are_merged() -> None:
    """The exponential buckets of scale 5 are 2 % wide: index 5 * 32 is just above 32 s."""
    run = FeedRun()
    add = run.add(exponential(WAITS, [5 * 32] * 51), explicit(WAITS, {1.0: 49}))
    assert add["dataloader_wait_p50_ms"] == pytest.approx(32_000, rel=0.03)


@pytest.mark.parametrize("form", ["explicit", "exponential"])
def test_a_cumulative_histogram_counts_by_its_increase(form: str) -> None:
    def point(old: int, new: int, at: int) -> Batch:
        if form == "explicit":
            return explicit(WAITS, {1.0: old, 32.0: new}, CUMULATIVE, at=(1, at))
        return exponential(WAITS, [0] * old + [5 * 32] * new, CUMULATIVE, at=(1, at))

    run = FeedRun()
    assert run.add(point(1000, 1, at=10))["dataloader_wait_p50_ms"] == 0  # the values may be those of days
    assert run.add(point(1000, 5, at=20))["dataloader_wait_p50_ms"] == pytest.approx(32_000, rel=0.03)
    assert run.add(point(1100, 5, at=30))["dataloader_wait_p50_ms"] == pytest.approx(1000, rel=0.03)


def test_a_cumulative_histogram_that_becomes_coarser_counts_no_value_twice() -> None:
    run = FeedRun()
    run.add(exponential(WAITS, [0] * 100, CUMULATIVE, at=(1, 10)))
    coarser = exponential(WAITS, [0] * 100, CUMULATIVE, at=(1, 20)).edit_metrics()
    point = coarser.resource_metrics[0].scope_metrics[0].metrics[0].exponential_histogram.data_points[0]
    point.scale = 4
    assert run.add(Batch(coarser))["dataloader_wait_p50_ms"] == 0
    assert run.drops == {}


def test_only_all_reduce_counts_as_all_reduce() -> None:
    run = FeedRun()
    add = run.add(
        explicit(COLLECTIVES, {5 * MS: 1}, zernel_nccl_operation="all_reduce"),
        explicit(COLLECTIVES, {500 * MS: 99}, zernel_nccl_operation="broadcast"),
        explicit(COLLECTIVES, {500 * MS: 99}, CUMULATIVE, zernel_nccl_operation="all_gather", at=(1, 2)),
        explicit(COLLECTIVES, {500 * MS: 199}, CUMULATIVE, zernel_nccl_operation="all_gather", at=(1, 3)),
        summary(COLLECTIVES, {0.5: 0.5, 0.99: 0.5}, 99, zernel_nccl_operation="broadcast"),
    )
    assert add["nccl_allreduce_p99_ms"] == pytest.approx(5, rel=0.01)


def test_a_summary_alone_keeps_its_quantiles() -> None:
    add = FeedRun().add(summary(f"{LAUNCHES}.percentiles", {0.5: 10 * US, 0.99: 80 * US}, 1000, process_pid=1))
    assert add["cuda_latency_p50_us"] == pytest.approx(10, rel=0.01)
    assert add["cuda_latency_p99_us"] == pytest.approx(80, rel=0.01)


def test_summaries_count_by_their_values() -> None:
    """9,900 calls of 10 us and 100 of 1 ms: the median is that of the larger one, p99 lies between the two."""
    run = FeedRun()
    add = run.add(
        summary(LAUNCHES, {0.5: 10 * US, 0.99: 10 * US}, 9900, process_pid=1),
        summary(LAUNCHES, {0.5: 1 * MS, 0.99: 1 * MS}, 200, process_pid=2),
    )
    assert add["cuda_latency_p50_us"] == pytest.approx(10, rel=0.01)
    assert add["cuda_latency_p99_us"] == pytest.approx(1000, rel=0.01)
    repeated = run.add(summary(LAUNCHES, {0.5: 10 * US, 0.99: 10 * US}, 9900, process_pid=2))
    assert repeated["cuda_latency_p99_us"] == pytest.approx(10, rel=0.01)


def test_a_summary_without_quantiles_and_one_that_ends_have_no_values() -> None:
    run = FeedRun()
    run.add(summary(WAITS, {0.5: 1.0}, 5, process_pid=1), summary(WAITS, {0.5: 2.0}, 5, process_pid=2))
    assert run.add(summary(WAITS, {}, 5, process_pid=2))["dataloader_wait_p50_ms"] == pytest.approx(1000, rel=0.01)
    stale = summary(WAITS, {}, process_pid=1).edit_metrics()
    stale.resource_metrics[0].scope_metrics[0].metrics[0].summary.data_points[0].flags = 1
    assert run.add(Batch(stale))["dataloader_wait_p50_ms"] == 0


@pytest.mark.parametrize("given", [explicit(WAITS, {1.0: 5}), summary(WAITS, {0.5: 1.0}, 5)])
def test_latencies_are_those_of_the_last_minute(given: Batch) -> None:
    run = FeedRun()
    assert run.add(given)["dataloader_wait_p50_ms"] > 0
    assert run.after(30)["dataloader_wait_p50_ms"] > 0
    assert run.after(45)["dataloader_wait_p50_ms"] == 0


def test_a_batch_stays_as_it_was() -> None:
    batch = explicit(WAITS, {1.0: 5}, CUMULATIVE)
    before = batch.bytes_of("metrics")
    FeedRun().add(batch)
    assert batch.bytes_of("metrics") == before


def test_the_reports_of_ebpf_become_the_feed() -> None:
    """Memory of three processes, and the collectives of one: 100 durations of up to 4 ms for all_reduce."""
    run = FeedRun()
    found = run.message()
    for line in recorded().splitlines():
        found = run.add(Batch(parse_json(MetricsData, line)))
    gib = 1 << 30
    assert {one["key"]: (one["current_bytes"], one["peak_bytes"]) for one in found["gpu_utilization"]} == {
        "101:0": (3 * gib, 5 * gib),
        "102:1": (7 * gib, 7 * gib),
        "104:unknown": (1 * gib, 2 * gib),
    }
    assert found["nccl_allreduce_p50_ms"] == pytest.approx(2, rel=0.02)
    assert found["nccl_allreduce_p99_ms"] == pytest.approx(3.96, rel=0.02)
    assert found["cuda_latency_p50_us"] > 0
    assert found["dataloader_wait_p50_ms"] > 0
    assert run.drops == {}
