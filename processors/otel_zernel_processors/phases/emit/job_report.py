"""The metrics of a job of several ranks."""

from collections.abc import Mapping
from typing import NamedTuple

from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric

from otel_zernel_libraries.training import JobVerdict
from otel_zernel_processors.phases.emit.metrics import MetricWriter, Value, state_set
from otel_zernel_processors.phases.results.ranks import VERDICTS

CriticalTime = Mapping[tuple[int, str], int]
"""By rank and phase: the time (ns) of critical paths."""


class RankCounts(NamedTuple):
    """How much of the job a report covers."""

    reported: int
    """Ranks with all data up to the time of the report."""
    size: int
    """All ranks of the job."""


def job_metrics(verdict: JobVerdict, critical: CriticalTime, ranks: RankCounts, start: int, now: int) -> list[Metric]:
    """The metrics with the time `now` (ns). Cumulative sums start at `start` (ns)."""
    writer = MetricWriter({}, start, now)
    writer.gauge("zernel.job.verdict", "", state_set("zernel.job.verdict", VERDICTS, verdict.name))
    states = {"reported": ranks.reported, "missing": max(ranks.size - ranks.reported, 0)}
    counts: list[Value] = [({"zernel.job.rank.state": state}, count) for state, count in states.items()]
    writer.gauge("zernel.job.ranks", "{rank}", counts)
    lateness: list[Value] = [({"zernel.rank": rank}, late) for rank, late in verdict.lateness_s.items()]
    writer.gauge("zernel.job.rank.lateness", "s", lateness)
    if lateness:  # the ranks were compared
        writer.gauge("zernel.job.collective.transfer", "s", [({}, verdict.transfer_s)])
        writer.gauge("zernel.job.step.duration", "s", [({}, verdict.step_s)])
    paths: list[Value] = [
        ({"zernel.rank": rank, "zernel.phase": phase}, spent / 1e9) for (rank, phase), spent in sorted(critical.items())
    ]
    writer.sum("zernel.step.critical_path.time", "s", paths)
    return writer.metrics
