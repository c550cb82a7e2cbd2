"""The state honours the ends of series, stays in its bounds, and counts what it drops."""

import pytest
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality

from otel_zernel.batch import Batch
from otel_zernel_libraries.training.interval_spans import Ending
from otel_zernel_libraries.training.state import SeenProcess, TrainingState
from otel_zernel_receivers.ebpf.emit.families import WORKER_CPU as WORKER_CPU_FAMILY
from tests.exporters.live.live_runs import PROCESS, START, Attributes, durations, ended, phase_times, points, step
from tests.exporters.websocket.feeds import COLLECTIVES, LAUNCHES, explicit, memory, summary
from tests.otlp import CUMULATIVE

STEPS: Attributes = {"zernel.step.kind": "training"}
HOST: Attributes = {"host.name": "n1"}
GPU: Attributes = {"hw.id": "GPU-1"}


def state_of(*batches: Batch, now: float = 0.0) -> TrainingState:
    state = TrainingState(keeps_all_steps=True, keeps_latencies=True)
    for batch in batches:
        state.add(batch, now)
    state.settle(now)
    return state


def only_process(state: TrainingState) -> SeenProcess:
    [process] = state.processes
    return process


def test_an_ended_sum_keeps_its_value_and_is_not_current() -> None:
    state = state_of(points("zernel.steps", [(STEPS, 9)]), points("zernel.steps", [(STEPS, None)]))
    process = only_process(state)
    assert (process.trained, process.steps.current()) == (9, {})
    state.add(points("zernel.steps", [(STEPS, 12)]), 1.0)
    assert [*process.steps.current().values()] == [12]


def test_the_ledger_and_the_events_of_steps_are_kept() -> None:
    moment = {"zernel.position": "load", "zernel.activity": "file", "zernel.phase.source": "scopes"}
    event = {"zernel.step.event": "collective", "zernel.position": "backward", "zernel.nccl.operation": "all_reduce"}
    state = state_of(points("zernel.ledger.time", [(moment, 2.5)]), points("zernel.step.events", [(event, 8)]))
    process = only_process(state)
    assert process.ledger == {("load", "file"): 2.5}
    assert process.events == {("collective", "backward", "all_reduce", ""): 8}


def test_a_mark_that_is_sampled_is_not_missing() -> None:
    sampled = points("zernel.ebpf.missing_marks", [({"zernel.mark": "operators", "zernel.sampled": True}, 1.0)])
    process = only_process(state_of(phase_times(gpu_compute=1.0), sampled))
    assert (process.missing_marks, process.has_sampled_operators) == (set(), True)


def test_an_ended_gauge_has_no_value() -> None:
    mark = {"zernel.mark": "backward"}
    begun = (
        phase_times(gpu_compute=1.0),
        points("zernel.step.rate", [({}, 2.0)]),
        points("zernel.verdict", [({"zernel.verdict": "input_bound"}, 1.0)]),
        points("zernel.ebpf.missing_marks", [(mark, 1.0)]),
    )
    process = only_process(state_of(*begun))
    assert (process.step_rate, process.verdict, process.missing_marks) == (2.0, "input_bound", {"backward"})
    process = only_process(
        state_of(
            *begun,
            points("zernel.step.rate", [({}, None)]),
            points("zernel.verdict", [({"zernel.verdict": "input_bound"}, None)]),
            points("zernel.ebpf.missing_marks", [(mark, None)]),
        )
    )
    assert (process.step_rate, process.verdict, process.missing_marks) == (None, "", set())


def test_the_mean_of_a_gpu_stays_when_its_series_ends() -> None:
    readings = (points("hw.power", [(GPU, value)], HOST) for value in (100.0, 300.0, None))
    [gpu] = state_of(*readings).gpus
    assert "power" not in gpu.values
    assert (gpu.means["power"].mean, gpu.means["power"].largest) == (200.0, 300.0)


def test_a_cumulative_histogram_that_ends_begins_anew() -> None:
    def launches(count: int, end: int) -> Batch:
        return explicit(LAUNCHES, {1e-5: count}, CUMULATIVE, at=(1, end))

    stale = launches(0, 4)
    stale.edit_metrics().resource_metrics[0].scope_metrics[0].metrics[0].histogram.data_points[0].flags = 1
    state = state_of(launches(100, 2), launches(105, 3))
    assert state.latencies.launches.quantiles(0.0)[0] == 5
    for batch in (stale, launches(300, 5)):
        state.add(batch, 0.0)
    assert state.latencies.launches.quantiles(0.0)[0] == 5


def test_a_summary_that_ends_has_no_values() -> None:
    stale = summary(LAUNCHES, {}, process_pid=7)
    stale.edit_metrics().resource_metrics[0].scope_metrics[0].metrics[0].summary.data_points[0].flags = 1
    state = state_of(summary(LAUNCHES, {0.5: 1e-5, 0.99: 2e-5}, 9, process_pid=7))
    assert state.latencies.launches.quantiles(0.0) == (9, [1e-5, 2e-5])
    state.add(stale, 0.0)
    assert state.latencies.launches.quantiles(0.0) == (0, [])


def test_histograms_and_summaries_of_the_same_calls_count_once() -> None:
    """`percentiles` may emit both."""
    state = state_of(explicit(LAUNCHES, {1e-5: 9}), summary(f"{LAUNCHES}.percentiles", {0.5: 1e-5, 0.99: 1e-5}, 9))
    assert state.latencies.launches.quantiles(0.0)[0] == 9


def test_a_process_ends_once_and_late_data_does_not_revive_it() -> None:
    state = state_of(phase_times(gpu_compute=1.0), ended(ending=Ending("signal", signal=9, signal_name="SIGKILL")))
    state.add(ended(ending=Ending("exit", exit_code=0)), 5.0)
    state.add(phase_times(gpu_compute=2.0), 6.0)
    process = only_process(state)
    assert (process.ended_at, process.end and process.end.signal) == (0.0, "SIGKILL")


def test_the_process_that_ended_first_leaves_for_a_new_one_and_no_living_one_does() -> None:
    def process(pid: int) -> Attributes:
        return {**PROCESS, "process.pid": pid}

    state = state_of(*(phase_times(process(pid), gpu_compute=1.0) for pid in range(1024)))
    state.add(phase_times(process(2000), gpu_compute=1.0), 0.0)
    assert state.take_dropped() == {"max_ranks": 1}
    for now, pid in enumerate((5, 4)):
        state.add(ended(process(pid), Ending("exit")), float(now))
    state.add(phase_times(process(2000), gpu_compute=1.0), 2.0)
    pids = {process.pid for process in state.processes}
    assert len(pids) == 1024
    assert {2000, 4} <= pids
    assert 5 not in pids
    assert state.take_dropped() == {}


def test_memory_leaves_without_data() -> None:
    state = TrainingState(expiration=60.0)
    state.add(memory(5), 0.0)
    state.settle(60.0)
    assert len(state.memory) == 1
    state.settle(61.0)
    assert len(state.memory) == 0


WORKER_CPU = "zernel.dataloader.worker.cpu.time"
WORKER: Attributes = {"process.pid": 7}


def worker_cpu(value: float | None, *, is_delta: bool) -> Batch:
    """A point of the sum, as `ebpf` sends it (a delta), or as a conversion makes it (cumulative)."""
    batch = points(WORKER_CPU, [(WORKER, value)], HOST)
    metric = batch.edit_metrics().resource_metrics[0].scope_metrics[0].metrics[0]
    [point] = list(metric.gauge.data_points)
    metric.sum.data_points.add().MergeFrom(point)
    metric.sum.aggregation_temporality = AggregationTemporality.Value(
        f"AGGREGATION_TEMPORALITY_{'DELTA' if is_delta else 'CUMULATIVE'}"
    )
    return batch


def test_ebpf_sends_the_times_of_workers_as_increases() -> None:
    assert (WORKER_CPU_FAMILY.name, WORKER_CPU_FAMILY.temporality) == (WORKER_CPU, "delta")


def test_the_increases_of_the_times_of_workers_add_up() -> None:
    increases = (worker_cpu(value, is_delta=True) for value in [2.0] * 100 + [0.1])
    process = only_process(state_of(phase_times(gpu_compute=1.0), *increases))
    assert process.worker_times.watched("cpu_time") == pytest.approx(200.1)
    assert process.worker_times.current() == {"cpu_time": pytest.approx(200.1)}


def test_a_cumulative_time_of_workers_counts_from_its_first_point_on_also_over_a_reset() -> None:
    values = (worker_cpu(value, is_delta=False) for value in (100.0, 112.0, 1.0, 4.0))
    process = only_process(state_of(phase_times(gpu_compute=1.0), *values))
    assert process.worker_times.watched("cpu_time") == pytest.approx(16.0)


@pytest.mark.parametrize("is_delta", [True, False])
def test_the_time_of_workers_stays_at_the_end_of_its_series(*, is_delta: bool) -> None:
    values = (worker_cpu(value, is_delta=is_delta) for value in (10.0, 30.0, None))
    process = only_process(state_of(phase_times(gpu_compute=1.0), *values))
    assert process.worker_times.watched("cpu_time") == (40.0 if is_delta else 20.0)
    assert process.worker_times.current() == {}


def test_the_most_workers_at_one_time_count() -> None:
    counts = (points("zernel.dataloader.workers", [(WORKER, value)], HOST) for value in (4.0, 2.0, None))
    process = only_process(state_of(phase_times(gpu_compute=1.0), *counts))
    assert (process.workers, process.worker_count) == (4, None)


def test_series_and_operations_beyond_the_limits_are_counted() -> None:
    kinds = points("zernel.steps", [({"zernel.step.kind": f"kind {number}"}, 1.0) for number in range(300)])
    state = state_of(kinds)
    assert len(only_process(state).steps) == 256
    assert state.take_dropped() == {"max_series": 44}
    operations = (explicit(COLLECTIVES, {1e-3: 1}, zernel_nccl_operation=f"{number}") for number in range(20))
    assert state_of(*operations).take_dropped() == {"max_series": 4}


def test_cumulative_series_leave_without_points() -> None:
    state = TrainingState(expiration=60.0, keeps_latencies=True)
    for pid in range(20_001):
        state.add(explicit(LAUNCHES, {1e-5: 1}, CUMULATIVE, process_pid=pid), 0.0)
    assert state.take_dropped() == {"max_series": 1}
    state.settle(61.0)
    for end in (2, 3):
        state.add(explicit(LAUNCHES, {1e-5: 5 * end}, CUMULATIVE, at=(1, end), process_pid=20_001), 61.0)
    assert state.latencies.launches.quantiles(61.0)[0] == 5
    assert state.take_dropped() == {}


def test_the_more_exact_name_of_a_job_decides() -> None:
    """Two jobs have one `service.name`, and the first one has a job id as well."""
    named: Attributes = {"service.name": "train", "zernel.job.id": "77"}

    def rank(pid: int, number: int, names: Attributes) -> Attributes:
        return {**PROCESS, **names, "process.pid": pid, "zernel.rank": number, "zernel.world_size": 2}

    service: Attributes = {"service.name": "train"}
    state = state_of(
        points("zernel.job.step.duration", [({}, 1.0)], named),
        points("zernel.job.step.duration", [({}, 1.0)], service),
        *(phase_times(rank(pid, number, named), gpu_compute=1.0) for pid, number in ((1, 0), (2, 1))),
        *(phase_times(rank(pid, number, service), gpu_compute=1.0) for pid, number in ((3, 0), (4, 1))),
    )
    jobs = {process.pid: process.job for process in state.processes}
    assert jobs == {1: "77", 2: "77", 3: "train", 4: "train"}


def test_jobs_with_one_name_by_two_attributes_are_two() -> None:
    state = state_of(
        points("zernel.job.step.duration", [({}, 1.0)], {"zernel.job.id": "2"}),
        points("zernel.job.step.duration", [({}, 9.0)], {"zernel.world_size": 2}),
    )
    assert {job.id: job.step_s for job in state.jobs} == {"2": 1.0, "zernel.world_size=2": 9.0}


def test_the_metrics_of_ebpf_alone_make_no_training_process() -> None:
    state = state_of(points("zernel.dataloader.workers", [({}, 4.0)]), explicit(LAUNCHES, {1e-5: 9}, process_pid=7))
    assert len(state.processes) == 0
    assert state.latencies.launches.quantiles(0.0)[0] == 9


def test_a_state_reads_only_the_metrics_that_its_reader_wants() -> None:
    state = TrainingState(metrics=lambda name: name == "hw.power")
    state.add(points("hw.power", [(GPU, 1.0)], HOST), 0.0)
    state.add(memory(5), 0.0)
    state.add(durations(0.1, time_ns=START), 0.0)
    assert (len(state.gpus), len(state.memory), len(state.processes)) == (1, 0, 0)


def test_a_span_that_lacks_an_attribute_is_dropped_and_counted() -> None:
    batch = step(1, START, 1000)
    del batch.edit_spans().resource_spans[0].scope_spans[0].spans[0].attributes[0]
    exit_ = ended()
    del exit_.edit_spans().resource_spans[0].scope_spans[0].spans[0].attributes[-1]
    state = state_of(phase_times(gpu_compute=1.0), batch, exit_)
    assert state.malformed == "zernel.process.end"
    assert state.take_dropped() == {"malformed_span": 2}


def test_a_span_of_another_program_with_the_name_of_one_is_not_read() -> None:
    batch = Batch.join([step(1, START, 1000), ended()])
    for resource in batch.edit_spans().resource_spans:
        resource.scope_spans[0].scope.name = "train"
        del resource.scope_spans[0].spans[0].attributes[:]
    state = state_of(phase_times(gpu_compute=1.0), batch)
    assert not state.take_dropped()
    process = only_process(state)
    assert process.end is None
    assert process.bars.bars == []
