"""A rank has the newest values that arrive, and loses those that end."""

import json
import math

import pytest

from otel_zernel.batch import Batch
from otel_zernel_libraries.training.interval_spans import Ending
from tests.exporters.live.live_runs import (
    PROCESS,
    RANK,
    SECOND,
    START,
    Attributes,
    LiveRun,
    durations,
    ended,
    phase_times,
    points,
    step,
)
from tests.otlp import data, exponential, summary

MS = 1_000_000


async def test_the_phase_of_the_kernel_has_its_start() -> None:
    elapsed = points("zernel.phase.elapsed", [({"zernel.phase": "nccl_collective", "process.pid": 7}, 1.5)])
    state = await LiveRun().add(phase_times(gpu_compute=9.0), elapsed)
    rank = state["ranks"][RANK]
    assert (rank["phase"], rank["phase_since"]) == ("nccl_collective", (START - 1_500 * MS) // MS)


async def test_without_the_kernel_it_is_the_phase_that_grew_most_in_the_last_report() -> None:
    run = LiveRun()
    await run.add(phase_times(gpu_compute=100.0, data_loading=1.0))
    state = await run.add(phase_times(gpu_compute=101.0, data_loading=5.0, time_ns=START + SECOND))
    assert state["ranks"][RANK]["phase"] == "data_loading"
    assert "phase_since" not in state["ranks"][RANK]


async def test_a_point_with_a_pid_alone_belongs_to_the_process_that_is_known() -> None:
    host = {"host.name": "n1"}
    elapsed = points("zernel.phase.elapsed", [({"zernel.phase": "gpu_compute", "process.pid": 7}, 1.0)], host)
    run = LiveRun()
    assert (await run.add(elapsed))["ranks"] == {}
    state = await run.add(phase_times(gpu_compute=1.0), elapsed)
    assert state["ranks"][RANK]["phase"] == "gpu_compute"


async def test_the_durations_of_steps_are_exact_to_a_hundredth() -> None:
    lasted = [0.1] * 98 + [0.5] * 2
    state = await LiveRun().add(phase_times(gpu_compute=1.0), durations(*lasted), step(3, START, 250 * MS))
    assert state["ranks"][RANK]["step"] == {
        "p50": pytest.approx(0.1, rel=0.01),
        "p99": pytest.approx(0.5, rel=0.01),
        "last": 0.25,
    }


async def test_durations_leave_after_a_minute() -> None:
    run = LiveRun()
    await run.add(durations(0.1))
    assert "p50" in run.after(59)["ranks"][RANK]["step"]
    assert "step" not in run.after(12)["ranks"][RANK]


def cumulative(count: int) -> Batch:
    """A cumulative exponential histogram, as `percentiles` emits it, of launch latencies of 0.01 s."""
    offset = -6_966_587  # 2 ** (-6966587 / 2 ** 20) is 0.01
    metric = exponential("zernel.cuda.launch.latency", 20, (offset, [count]))
    point = metric.exponential_histogram.data_points[0]
    point.min = point.max = 0.01
    return Batch(data(metric, resource=PROCESS))


async def test_of_a_cumulative_histogram_the_increase_counts() -> None:
    run = LiveRun()
    state = await run.add(phase_times(gpu_compute=1.0), cumulative(1000))
    assert "launch" not in state["ranks"][RANK]
    launch = (await run.add(cumulative(1005)))["ranks"][RANK]["launch"]
    assert launch == {"count": 5, "p50": pytest.approx(0.01, rel=0.01), "p99": pytest.approx(0.01, rel=0.01)}
    assert (await run.add(cumulative(3)))["ranks"][RANK]["launch"]["count"] == 8  # after a reset


async def test_summaries_of_percentiles_are_read() -> None:
    quantiles, operation = {0.5: 0.001, 0.9: 0.002, 0.99: 0.003}, {"zernel.nccl.operation": "all_reduce"}
    metric = summary("zernel.nccl.collective.duration.percentiles", quantiles, 9, 0.0, operation)
    state = await LiveRun().add(phase_times(gpu_compute=1.0), Batch(data(metric, resource=PROCESS)))
    assert state["ranks"][RANK]["collectives"] == {"all_reduce": {"count": 9, "p50": 0.001, "p99": 0.003}}


@pytest.mark.parametrize("name", ["zernel.phase.elapsed", "zernel.dataloader.workers", "zernel.ebpf.missing_marks"])
async def test_a_process_that_phases_does_not_follow_is_no_rank(name: str) -> None:
    assert (await LiveRun().add(points(name, [({"zernel.phase": "gpu_compute"}, 1.0)])))["ranks"] == {}


async def test_the_end_of_a_series_makes_no_rank() -> None:
    assert (await LiveRun().add(points("zernel.step.rate", [({}, None)])))["ranks"] == {}


@pytest.mark.parametrize(
    ("verdict", "evidence"),
    [("input_bound", {"data_loading": 0.4}), ("unstable", {"jitter": 0.7}), ("none", {})],
)
async def test_a_verdict_has_its_evidence(verdict: str, evidence: dict[str, float]) -> None:
    share = {"zernel.phase": "data_loading", "zernel.phase.source": "scopes"}
    state = await LiveRun().add(
        phase_times(data_loading=4.0),
        points("zernel.steps", [({"zernel.step.kind": "training"}, 9)]),
        points("zernel.phase.fraction", [(share, 0.4)]),
        points("zernel.step.jitter", [({}, 0.7)]),
        points("zernel.verdict", [({"zernel.verdict": verdict}, 1), ({"zernel.verdict": "compute_bound"}, 0)]),
    )
    assert state["ranks"][RANK]["verdict"] == {"name": verdict, "evidence": evidence}


async def test_steps_with_a_backward_pass_count() -> None:
    kinds = {"training": 5, "accumulation": 2, "evaluation": 100}
    counted = points("zernel.steps", [({"zernel.step.kind": kind}, count) for kind, count in kinds.items()])
    assert (await LiveRun().add(counted))["ranks"][RANK]["steps"] == 7


async def test_an_ended_rank_shows_its_end_for_a_minute() -> None:
    run = LiveRun()
    end = ended(ending=Ending("signal", signal=9, signal_name="SIGKILL"))
    state = await run.add(phase_times(gpu_compute=1.0), end)
    rank = state["ranks"][RANK]
    assert rank["ended"] == {"signal": "SIGKILL", "time": (START + SECOND) // MS}
    assert "phase" not in rank
    assert RANK in run.after(59)["ranks"]
    state = run.after(2)
    assert state["ranks"] == {}
    assert state["timeline"] == {}


async def test_a_program_that_a_process_becomes_is_no_end() -> None:
    state = await LiveRun().add(phase_times(gpu_compute=1.0), ended(ending=Ending("exec", program="sh")))
    assert "ended" not in state["ranks"][RANK]


async def test_a_rank_without_data_expires() -> None:
    run = LiveRun(expiration="10s")
    await run.add(phase_times(gpu_compute=1.0), step(1, START, SECOND))
    assert RANK in run.after(10)["ranks"]
    await run.add(points("zernel.step.rate", [({}, None)]))
    state = run.after(1)
    assert (state["ranks"], state["timeline"]) == ({}, {})


async def test_texts_of_a_sender_are_bounded() -> None:
    run, long = LiveRun(), "x" * 10_000
    await run.add(
        phase_times({**PROCESS, "service.name": long, "process.executable.name": long}, gpu_compute=1.0),
        points("zernel.verdict", [({"zernel.verdict": long}, 1.0)]),
        points("hw.power", [({"hw.id": "GPU-1", "hw.name": long}, 1.0), ({"hw.id": long}, 1.0)]),
        points("zernel.job.verdict", [({"zernel.job.verdict": long}, 1.0)], {"zernel.job.id": long}),
    )
    state = run.exporter.snapshot()
    assert len(json.dumps({name: state[name] for name in ("gpus", "ranks", "jobs")})) < 2000
    assert run.dropped.counts == {"max_gpus": 1, "max_jobs": 1}


async def test_numbers_that_are_not_finite_are_unknown() -> None:
    state = await LiveRun().add(phase_times(gpu_compute=1.0), points("zernel.step.rate", [({}, math.nan)]))
    assert "step_rate" not in state["ranks"][RANK]


def moment(position: str, activity: str) -> Attributes:
    return {"zernel.position": position, "zernel.activity": activity}


async def test_the_moments_and_the_gpu_of_a_rank_are_those_of_about_the_last_minute() -> None:
    run, state = LiveRun(), {}
    for report in range(1, 31):  # ten seconds each: Python only in the first half
        at = START + report * 10 * SECOND
        loads = [(moment("load", "python"), float(min(report, 15))), (moment("forward", "operator"), 3.0 * report)]
        state = await run.add(
            points("zernel.ledger.time", [*loads, (moment("clip", "python"), 0.01 * report)], time_ns=at),
            points("zernel.gpu.busy.time", [({"zernel.phase.source": "scopes"}, 2.0 * report)], time_ns=at),
            points("zernel.gpu.starved.time", [(moment("load", "python"), 1.0 * report)], time_ns=at),
            points("zernel.gpu.undetermined.time", [({"zernel.phase.source": "scopes"}, 1.0 * report)], time_ns=at),
        )
        if report == 10:
            assert state["ranks"][RANK]["moments"] == {"load": {"python": 0.249}, "forward": {"operator": 0.748}}
    assert state["ranks"][RANK]["moments"] == {"forward": {"operator": 0.997}}
    assert state["ranks"][RANK]["device"] == {"busy": 0.5, "starved": {"load": 0.25}, "undetermined": 0.25}


async def test_old_sums_are_not_the_last_minute_of_a_job_that_is_first_seen_now() -> None:
    run, state = LiveRun(), {}
    for report in range(2):
        spent = [(moment("load", "python"), 9_000.0), (moment("forward", "operator"), 1_000.0 + 10.0 * report)]
        state = await run.add(points("zernel.ledger.time", spent, time_ns=START + report * 10 * SECOND))
    assert state["ranks"][RANK]["moments"] == {"forward": {"operator": 1.0}}
