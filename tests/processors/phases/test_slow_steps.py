"""A job on a starved machine: its steps take seconds, most of it to load data, and arrive at unlucky times."""

import random
from collections.abc import Iterator

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from otel_zernel.batch import Batch
from otel_zernel_libraries.training.verdicts import FEWEST_STEPS
from tests.processors.phases.processing import make, state
from tests.processors.phases.training import MS, START, Loop, batch_of, gauge_batch, values_of

COUNTED_BY_SIGNALS = 1
"""The first step, which may begin before the first span arrives."""

STABLE = 4
"""Reports until there is an answer."""
FEW_LOSSY = 0.1
"""No answer rests on steps with lost spans, or on their neighbours. With more of them, there may be none."""


def starved(chance: random.Random, shortest: int, longest: int, seconds: int) -> Loop:
    """Steps of `shortest` to `longest` s, of which 4 % is no load."""
    loop = Loop(now=chance.uniform(0, 3000))
    while loop.now < seconds * 1000:
        lasts = 1000 * chance.uniform(shortest, longest)
        loop.load(0.96 * lasts).train(*(0.01 * lasts for _ in range(4)))
    return loop


def arriving(loop: Loop, chance: random.Random, late_ms: float) -> Iterator[Batch]:
    """A receiver reads every 0.5 s, and its batches are late. It reads counters from the start on."""
    end = 0.0
    ready: list[tuple[float, Span]] = []
    for span in loop.spans:
        end = max(end, (span.end_time_unix_nano - START) / MS + chance.uniform(0, late_ms))
        ready.append((end, span))
    for at in range(0, int(loop.now), 500):
        counted = gauge_batch("zernel.process.io.wait", [(at, 0.9 * at / 1000)], process_pid=42)
        launched = gauge_batch("zernel.cuda.launch.latency", [(at, at / 10)], process_pid=42)
        spans = [span for arrives, span in ready if at - 500 <= arrives < at]
        yield from chance.sample([counted, launched, *([batch_of(spans)] if spans else [])], 2 + bool(spans))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    ("shortest", "longest", "settings"),
    [
        (1, 3, {"interval": "1s", "window": "75s", "lateness": "1s"}),
        (1, 3, {"interval": "2s", "window": "4s"}),
        (1, 3, {"interval": "1s", "window": "3s"}),
        (20, 29, {"interval": "10s", "window": "60s"}),
    ],
    ids=["as why", "short window", "shorter than most steps", "defaults"],
)
def test_the_verdict_on_slow_steps_is_that_of_their_sums(
    seed: int, shortest: int, longest: int, settings: dict[str, object]
) -> None:
    chance = random.Random(seed)
    processor = make(**settings)
    reports, steps = 0, 0
    for batch in arriving(starved(chance, shortest, longest, 12 * longest), chance, 900):
        for made in processor.process(batch):
            counts = [count for about, count in values_of([made], "zernel.steps") if about["process.pid"] == 42]
            if not counts:
                continue
            steps = int(sum(counts))
            reports += steps > FEWEST_STEPS + COUNTED_BY_SIGNALS
            if reports > STABLE:
                lossy = sum(count for _, count in values_of([made], "zernel.steps.lossy"))
                may_lack = {"none"} if lossy >= FEW_LOSSY * steps else set()
                assert state([made], "zernel.verdict") in {"input_bound", *may_lack}, steps
    assert steps > 10
