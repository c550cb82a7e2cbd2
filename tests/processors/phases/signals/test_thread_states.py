"""Phases from the states of the thread that calls CUDA most."""

from collections.abc import Iterator, Mapping

import pytest

from otel_zernel.batch import Batch
from otel_zernel_processors.phases.signals.thread_states import STATES
from tests.processors.phases.jobs.test_sources import sources_of
from tests.processors.phases.processing import phases_of, run
from tests.processors.phases.training import Loop, batch_of, gauge_batch, values_of

SHARES = {"gpu_wait": 0.5, "launch": 0.1, "collective": 0.05, "io": 0.2, "copy": 0.05, "on_cpu": 0.06, "lock": 0.04}


def states(seconds: int, shares: Mapping[str, float] = SHARES, pid: int = 7) -> Iterator[Batch]:
    """Readings of a second each, in which a thread was in these states."""
    for second in range(seconds + 1):
        for state, share in shares.items():
            yield gauge_batch(
                "zernel.cuda.lead_thread.time",
                [(second * 1000, second * share)],
                process_pid=pid,
                zernel_thread_state=state,
            )


def details_of(made: list[Batch]) -> dict[tuple[str, str], float]:
    """The last times in ms, by phase and detail."""
    return {
        (str(attributes["zernel.phase"]), str(attributes["zernel.phase.detail"])): round(value * 1000, 3)
        for attributes, value in values_of(made, "zernel.phase.detail.time")
        if attributes["zernel.phase.source"] == "threads"
    }


def test_each_state_is_a_phase_with_a_detail() -> None:
    made = run(*states(31))
    assert phases_of(made, 7) == {"gpu_compute": 18000, "nccl_collective": 1500, "data_loading": 7500, "unknown": 3000}
    assert details_of(made) == {STATES[state]: pytest.approx(30_000 * share) for state, share in SHARES.items()}
    assert sources_of(made) == {"threads"}


def test_while_calls_are_sampled_no_time_outside_the_seen_calls_has_a_phase() -> None:
    """Calls that were not probed are in it: waits for the GPU would be time on the CPU, or I/O."""
    sampled = (mark_sampled(batch) for batch in states(31))
    seen = {STATES[state]: 30_000 * SHARES[state] for state in ("gpu_wait", "launch", "collective", "copy")}
    rest = sum(SHARES[state] for state in ("io", "on_cpu", "lock")) * 30_000
    assert details_of(run(*sampled)) == pytest.approx({**seen, ("unknown", "sampled"): rest})


def mark_sampled(batch: Batch) -> Batch:
    for point in batch.edit_metrics().resource_metrics[0].scope_metrics[0].metrics[0].gauge.data_points:
        point.attributes.add(key="zernel.sampled").value.bool_value = True
    return batch


def test_the_states_take_the_place_of_the_rules_but_not_of_scopes() -> None:
    def counters() -> Iterator[Batch]:
        for second in range(31):
            yield gauge_batch("zernel.process.io.wait", [(second * 1000, second * 0.5)], process_pid=42)

    scopes = batch_of(Loop().steps(200).load().spans)
    assert sources_of(run(*states(1, pid=42), *counters(), *states(30, pid=42))) == {"threads"}
    assert sources_of(run(scopes, *states(30, pid=42), *counters())) == {"scopes"}
    assert sources_of(run(scopes, *states(30, pid=42), *counters(), source="threads")) == {"threads"}
    assert sources_of(run(scopes, *states(30, pid=42), *counters(), source="signals")) == {"signals"}


def test_a_change_of_the_longest_phase_is_a_transition() -> None:
    loading = {"io": 0.8, "gpu_wait": 0.2}
    made = run(*states(20), *(later(batch) for batch in states(20, loading)))
    transitions = [value for attributes, value in values_of(made, "zernel.phase.transitions")]
    assert transitions[-1] == 2  # from unknown to gpu_compute, and to data_loading


def later(batch: Batch) -> Batch:
    """The same 20 s later, with the totals of then."""
    for metric in batch.edit_metrics().resource_metrics[0].scope_metrics[0].metrics:
        for point in metric.gauge.data_points:
            state = next(
                attribute.value.string_value for attribute in point.attributes if attribute.key == "zernel.thread.state"
            )
            point.time_unix_nano += 20 * 10**9
            point.as_double += 20 * SHARES[state]
    return batch


def test_time_that_the_rules_have_counted_is_not_counted_again() -> None:
    counters = (gauge_batch("zernel.process.io.wait", [(at, 0.5 * at)], process_pid=7) for at in range(0, 20_500, 500))
    made = run(*counters, *states(31))
    assert sum(phases_of(made, 7, by="signals").values()) == 19_500
    assert sum(phases_of(made, 7, by="threads").values()) == pytest.approx(30_000 - 19_500)


def test_an_unknown_state_is_time_of_the_host() -> None:
    assert details_of(run(*states(11, {"dreaming": 1.0}))) == {("unknown", "host"): 10_000}
