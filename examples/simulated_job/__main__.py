"""Sends a simulated job to a collector, until Ctrl-C. It needs neither a GPU nor root.

`python -m examples.simulated_job [http://localhost:4318]`: the URL of the collector's receiver `otlp`. Run
deploy/compose/collector.yaml there, or a pipeline with the processors of examples/training.yaml.
"""

import random
import sys
import time
from collections.abc import Iterator

import httpx
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope
from opentelemetry.proto.metrics.v1.metrics_pb2 import ResourceMetrics
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans

from examples.simulated_job.counters import SCOPE, of_ends, of_host, of_rank
from examples.simulated_job.encoding import Reading
from examples.simulated_job.gpus import Gpu
from examples.simulated_job.training import Rank, TrainingJob, hosts, killed_rank, resource_of
from otel_zernel.otlp.points import key_values


class SimulatedJob:
    """The job and its GPUs. A reading is the data since the one before."""

    def __init__(self, start_ns: int) -> None:
        self._job = TrainingJob(start_ns)
        self._gpus = [(rank, Gpu(rank, start_ns)) for rank in self._job.ranks]
        self._read_ns = start_ns
        self._sequence = 0

    def read(self, now_ns: int) -> tuple[ExportTraceServiceRequest, ExportMetricsServiceRequest]:
        """Trains up to now, and returns all data since the last reading."""
        self._job.train_until(now_ns)
        reading = Reading(self._read_ns, now_ns)
        self._read_ns = now_ns
        self._sequence += 1
        metrics = ExportMetricsServiceRequest(resource_metrics=self._metrics(reading))
        ended = [killed_rank(now_ns)] if self._sequence == 1 else []
        spans = ExportTraceServiceRequest(resource_spans=[_spans(rank) for rank in (*ended, *self._job.ranks)])
        for rank in self._job.ranks:
            rank.spans, rank.steps = [], []
        return spans, metrics

    def _metrics(self, reading: Reading) -> Iterator[ResourceMetrics]:
        for rank, gpu in self._gpus:
            yield of_rank(rank, reading)
            yield gpu.read(reading)
        for host in hosts():
            yield of_host(host, reading, self._sequence)
        if self._sequence == 1:
            yield of_ends(reading)


def _spans(rank: Rank) -> ResourceSpans:
    scoped = ScopeSpans(scope=InstrumentationScope(name=SCOPE), spans=rank.spans)
    return ResourceSpans(resource=Resource(attributes=key_values(resource_of(rank))), scope_spans=[scoped])


def send(client: httpx.Client, job: SimulatedJob) -> None:
    """Sends the data since the last time. Waits while the collector does not answer."""
    spans, metrics = job.read(time.time_ns())
    for path, request in (("/v1/traces", spans), ("/v1/metrics", metrics)):
        while not _posted(client, path, request.SerializeToString()):
            time.sleep(1)


def _posted(client: httpx.Client, path: str, body: bytes) -> bool:
    try:
        answer = client.post(path, content=body, headers={"content-type": "application/x-protobuf"})
    except httpx.TransportError as error:
        print(f"The collector at {client.base_url} does not answer: {error}")
        return False
    return answer.is_success


def main(url: str) -> None:
    """Sends the data of each second."""
    random.seed(1)
    job = SimulatedJob(time.time_ns())
    with httpx.Client(base_url=url) as client:
        while True:
            time.sleep(1 - time.time() % 1)
            send(client, job)


if __name__ == "__main__":
    try:
        main(sys.argv[1] if len(sys.argv) > 1 else "http://localhost:4318")
    except KeyboardInterrupt:
        sys.exit(130)
