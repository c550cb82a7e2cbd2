"""A watch in a process of its own, for tests that kill it or take its capabilities away.

Says `attached`. Then, for every line that comes in, it attaches to what is new and tells by pid, as JSON, the launches
counted and the ranks of the processes of spans. Ends with its input.
"""

import json
import os
import sys

from otel_zernel.clock import SystemClock
from otel_zernel.testing import make_context
from otel_zernel_receivers.ebpf.config import EbpfConfig, ProcessesConfig
from otel_zernel_receivers.ebpf.session import Watch
from tests.receivers.ebpf.watching import TEST_RUN, attributes_of, histogram_points


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


config = EbpfConfig(processes=ProcessesConfig(environment={TEST_RUN: os.environ[TEST_RUN]}))
watch = Watch(config, make_context(clock=SystemClock()))
watch.open()
watch.attach()
say("attached")
for _ in sys.stdin:
    watch.attach()
    batch = watch.read()
    watch.taken()
    points = histogram_points(batch, "zernel.cuda.launch.latency")
    resources = [attributes_of(one.resource) for one in batch.spans.resource_spans]
    launches = {str(attributes_of(point)["process_pid"]): point.count for point in points}
    ranks = {str(one["process_pid"]): one.get("zernel_rank") for one in resources}
    say(json.dumps({"launches": launches, "ranks": ranks}))
watch.close()
