"""A session in a process of its own, for tests that kill it or take its capabilities away.

Prints `attached`. Then, for each line of its input, it attaches and prints JSON by pid: the launches and the samples
counted, and the ranks of the processes with spans. It ends at the end of its input.
"""

import json
import os
import sys
from collections import Counter

from otel_zernel.batch import Batch
from otel_zernel.clock import SystemClock
from otel_zernel.testing import make_context
from otel_zernel_receivers.ebpf.config import EbpfConfig, ProcessesConfig
from otel_zernel_receivers.ebpf.session import Session
from tests.receivers.ebpf.watching import TEST_RUN, attributes_of, histogram_points, metrics_of


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


config = EbpfConfig(processes=ProcessesConfig(environment={TEST_RUN: os.environ[TEST_RUN]}))
with Session.open(config, make_context(clock=SystemClock())) as session:
    session.attach()
    say("attached")
    for _ in sys.stdin:
        session.attach()
        batch = Batch.join(session.read().batches)
        points = histogram_points(batch, "zernel.cuda.launch.latency")
        sampled: Counter[str] = Counter()
        for point in metrics_of(batch)["zernel.samples"].sum.data_points:
            sampled[str(attributes_of(point)["process_pid"])] += point.as_int
        resources = [attributes_of(resource_span.resource) for resource_span in batch.spans.resource_spans]
        launches = {str(attributes_of(point)["process_pid"]): point.count for point in points}
        ranks = {str(resource["process_pid"]): resource.get("zernel_rank") for resource in resources}
        say(json.dumps({"launches": launches, "samples": sampled, "ranks": ranks}))
