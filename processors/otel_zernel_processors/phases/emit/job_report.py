"""The metrics of a job of several ranks."""

from collections.abc import Mapping

from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric

from otel_zernel_processors.phases.emit.metrics import MetricWriter, Value, state_set
from otel_zernel_processors.phases.results.ranks import VERDICTS, JobVerdict

CriticalTime = Mapping[tuple[int, str], int]
"""By rank and phase: the time (ns) of critical paths."""


def job_metrics(verdict: JobVerdict, critical: CriticalTime, start: int, now: int) -> list[Metric]:
    """The metrics with the time `now` (ns). Cumulative sums start at `start` (ns)."""
    writer = MetricWriter({}, start, now)
    writer.gauge("zernel.job.verdict", "", state_set("zernel.job.verdict", VERDICTS, verdict.name))
    lateness: list[Value] = [({"zernel.rank": rank}, late) for rank, late in verdict.lateness_s.items()]
    writer.gauge("zernel.job.rank.lateness", "s", lateness)
    writer.gauge("zernel.job.collective.transfer", "s", [({}, verdict.transfer_s)])
    writer.gauge("zernel.job.step.duration", "s", [({}, verdict.step_s)])
    paths: list[Value] = [
        ({"zernel.rank": rank, "zernel.phase": phase}, spent / 1e9) for (rank, phase), spent in sorted(critical.items())
    ]
    writer.sum("zernel.step.critical_path.time", "s", paths)
    return writer.metrics
