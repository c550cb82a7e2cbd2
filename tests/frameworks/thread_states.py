"""Scores a program without PyTorch's scopes: the states of the thread that calls CUDA, compared with its own log."""

from collections import defaultdict
from collections.abc import Iterable

from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

from benchmarks.training.runs import Run, Truth
from otel_zernel.batch import Batch
from tests.otlp import metrics_in
from tests.processors.phases.training import values_of


def states_of(batches: Iterable[Batch], pid: int) -> dict[str, float]:
    """The time in s of the thread that calls CUDA most, by state."""
    times: defaultdict[str, float] = defaultdict(float)
    for attributes, value in values_of(batches, "zernel.cuda.lead_thread.time"):
        if attributes["process.pid"] == pid:
            times[str(attributes["zernel.thread.state"])] += value
    return times


def waits_in(truth: Truth) -> tuple[float, float]:
    """The waits for the GPU in the loop and before it, in s."""
    in_loop, before = (
        sum(end - start for name, start, end in truth[marks] if name == "wait") / 1e9 for marks in ("marks", "before")
    )
    return in_loop, before


def share_of_waits(run: Run) -> float:
    """The share of the loop's logged waits for the GPU that was found as such, 0 to 1.

    A reading in which the loop begins counts as a part of it.
    """
    batches, (truth,) = run
    in_loop = [_since(batch, truth["loop"][0]) for batch in batches]
    return min(states_of(in_loop, truth["pid"])["gpu_wait"] / waits_in(truth)[0], 1.0)


def _since(batch: Batch, begin_ns: int) -> Batch:
    """The batch with only the points of sums from this time on."""
    metrics = MetricsData()
    metrics.CopyFrom(batch.metrics)
    for metric in metrics_in(metrics):
        kept = [point for point in metric.sum.data_points if point.time_unix_nano >= begin_ns]
        if metric.HasField("sum"):
            del metric.sum.data_points[:]
            metric.sum.data_points.extend(kept)
    return Batch(metrics=metrics)
