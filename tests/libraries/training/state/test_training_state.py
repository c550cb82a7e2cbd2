"""The state honours the ends of series, stays in its bounds, and counts what it drops."""

from otel_zernel.batch import Batch
from otel_zernel_libraries.training.interval_spans import Ending
from otel_zernel_libraries.training.state import SeenProcess, TrainingState
from tests.exporters.live.live_runs import PROCESS, START, Attributes, durations, ended, phase_times, points, step
from tests.exporters.websocket.feeds import CUMULATIVE, LAUNCHES, explicit, memory, summary

STEPS: Attributes = {"zernel.step.kind": "training"}
HOST: Attributes = {"host.name": "n1"}
GPU: Attributes = {"hw.id": "GPU-1"}


def state_of(*batches: Batch, now: float = 0.0) -> TrainingState:
    state = TrainingState(keeps_all_steps=True)
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


def test_an_ended_process_leaves_for_a_new_one_and_no_living_one_does() -> None:
    def process(pid: int) -> Attributes:
        return {**PROCESS, "process.pid": pid}

    state = state_of(*(phase_times(process(pid), gpu_compute=1.0) for pid in range(1024)))
    state.add(phase_times(process(2000), gpu_compute=1.0), 0.0)
    assert state.take_dropped() == {"max_ranks": 1}
    state.add(ended(process(5), Ending("exit")), 0.0)
    state.add(phase_times(process(2000), gpu_compute=1.0), 0.0)
    pids = {process.pid for process in state.processes}
    assert len(pids) == 1024
    assert 2000 in pids
    assert 5 not in pids
    assert state.take_dropped() == {}


def test_memory_leaves_without_data() -> None:
    state = TrainingState(expiration=60.0)
    state.add(memory(5), 0.0)
    state.settle(60.0)
    assert len(state.memory) == 1
    state.settle(61.0)
    assert len(state.memory) == 0


def test_the_times_of_workers_count_from_their_first_reading() -> None:
    cpu = "zernel.dataloader.worker.cpu.time"
    state = state_of(
        phase_times(gpu_compute=1.0),
        *(points(cpu, [({"process.pid": 7}, value)], HOST) for value in (100.0, 130.0)),
        *(points("zernel.dataloader.workers", [({"process.pid": 7}, value)], HOST) for value in (4.0, 2.0, None)),
    )
    process = only_process(state)
    assert (process.worker_cpu_s, process.workers, process.workers_now) == (30.0, 4, {"cpu_time": 130.0})


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
