"""The metrics of a job of several ranks."""

from collections.abc import Mapping
from typing import NamedTuple

from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric

from otel_zernel_libraries.training import semconv
from otel_zernel_libraries.training.causes import JOB_VERDICTS, JobAnswer, verdict_of
from otel_zernel_processors.phases.emit.answers import gains
from otel_zernel_processors.phases.emit.metrics import MetricWriter, Value, state_set
from otel_zernel_processors.phases.results.ranks import RankTimes

CriticalTime = Mapping[tuple[int, str], int]
"""By rank and phase: the time (ns) of critical paths."""


class RankCounts(NamedTuple):
    """How much of the job a report covers."""

    reported: int
    """Ranks with all data up to the time of the report."""
    size: int
    """All ranks of the job."""


def job_metrics(
    answer: JobAnswer | None, times: RankTimes | None, critical: CriticalTime, ranks: RankCounts, start: int, now: int
) -> list[Metric]:
    """The metrics with the time `now` (ns). Cumulative sums start at `start` (ns)."""
    writer = MetricWriter({}, start, now)
    writer.gauge(semconv.JOB_VERDICT, "", state_set(semconv.JOB_VERDICT, JOB_VERDICTS, verdict_of(answer)))
    writer.gauge(semconv.CAUSE_GAIN, "s", gains(answer))
    states = {"reported": ranks.reported, "missing": max(ranks.size - ranks.reported, 0)}
    counts: list[Value] = [({semconv.JOB_RANK_STATE: state}, count) for state, count in states.items()]
    writer.gauge(semconv.JOB_RANKS, "{rank}", counts)
    if times:
        lateness: list[Value] = [({semconv.RANK: rank}, late) for rank, late in times.lateness.items()]
        writer.gauge(semconv.JOB_RANK_LATENESS, "s", lateness)
        writer.gauge(semconv.JOB_COLLECTIVE_TRANSFER, "s", [({}, times.transfer)])
        writer.gauge(semconv.JOB_STEP_DURATION, "s", [({}, times.step)])
    paths: list[Value] = [
        ({semconv.RANK: rank, semconv.PHASE: phase}, spent / 1e9) for (rank, phase), spent in sorted(critical.items())
    ]
    writer.sum(semconv.STEP_CRITICAL_PATH_TIME, "s", paths)
    return writer.metrics
