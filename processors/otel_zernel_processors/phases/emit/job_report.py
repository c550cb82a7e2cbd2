"""The metrics of a job of several ranks."""

from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric

from otel_zernel_processors.phases.emit.metrics import MetricWriter, Value, state_set
from otel_zernel_processors.phases.results.ranks import VERDICTS, JobVerdict


def job_metrics(verdict: JobVerdict, now: int) -> list[Metric]:
    """The metrics with the time `now` (ns)."""
    writer = MetricWriter({}, 0, now)
    writer.gauge("zernel.job.verdict", "", state_set("zernel.job.verdict", VERDICTS, verdict.name))
    lateness: list[Value] = [({"zernel.rank": rank}, late) for rank, late in verdict.lateness_s.items()]
    writer.gauge("zernel.job.rank.lateness", "s", lateness)
    writer.gauge("zernel.job.collective.transfer", "s", [({}, verdict.transfer_s)])
    writer.gauge("zernel.job.step.duration", "s", [({}, verdict.step_s)])
    return writer.metrics
