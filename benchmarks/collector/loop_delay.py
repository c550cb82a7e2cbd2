"""The delay of others while processors work: of a timer of 1 ms, a request of another process, and another pipeline.

Each processor works in a thread. The event loop waits for Python's lock after each system call, for at most the switch
interval, and for the end of a call into C that holds the lock. `nothing` is the control: the noise of this machine.
Every value is the best of several rounds, since another program on the machine only adds delay.
"""

import asyncio
import gc
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import NamedTuple

import numpy as np
import uvloop
from opentelemetry.metrics import NoOpMeter
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans

from benchmarks import BenchmarkRow
from benchmarks.peers.otlp import request_of
from benchmarks.percentiles import many_series
from benchmarks.phases.phases_cost import encoded_spans, recorded_process, repeated_spans
from otel_zernel.batch import ALL_SIGNALS, Batch
from otel_zernel.clock import SystemClock
from otel_zernel.component import ComponentConfig, Processor
from otel_zernel.engine.pipelines.fan_out import FanOut
from otel_zernel.engine.pipelines.pipeline import Pipeline, Stage
from otel_zernel.telemetry import Instruments
from otel_zernel.testing import make_context
from otel_zernel_processors.filter import FilterProcessor
from otel_zernel_processors.percentiles import PercentilesProcessor
from otel_zernel_processors.phases import PhasesProcessor
from otel_zernel_processors.transform import TransformProcessor

BAR_MS = 10.0
SWITCH_INTERVAL = 0.0005
"""Seconds: that of the collector."""
ROUNDS = 3
STATEMENTS = ['set(attributes["rank"], "7")', 'replace_pattern(attributes["attribute.name.1"], "value", "v")']
CHANGES: dict[str, object] = {"metric_statements": [{"context": "datapoint", "statements": STATEMENTS}]}
_TICK = 0.001
_QUIET = 2.0
"""Seconds of the control."""
_CLIENT = """
import socket, sys, time
with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as server:
    while True:
        began = time.perf_counter()
        server.sendall(b"x" * 200)
        if not server.recv(1000):
            break
        print(time.perf_counter() - began, flush=True)
        time.sleep(0.002)
"""


class Delays(NamedTuple):
    """One round, in s."""

    timer: list[float]
    requests: list[float]
    batches: list[float]
    """From `emit` to its return, in another pipeline: 100 points through a transform, every 20 ms."""
    cpu: float
    """CPU time of the whole process."""


class Load(NamedTuple):
    """What the processors get."""

    processors: Sequence[tuple[type[Processor], dict[str, object]]]
    batches: Callable[[], Iterator[Batch]]


def loads() -> dict[str, Load]:
    """By name. An empty one is the control."""
    conditions: dict[str, object] = {
        "error_mode": "ignore",
        "metrics": {"datapoint": ['attributes["attribute.name.0"] == "value-3-0"']},
    }
    request, series = request_of(40_000), many_series()
    return {
        "nothing": Load([], lambda: iter(())),
        "phases, 256 ranks": Load([(PhasesProcessor, {"max_processes": 2000})], partial(_ranks, 256, 12)),
        "phases, 1,000 ranks": Load([(PhasesProcessor, {"max_processes": 2000})], partial(_ranks, 1000, 3)),
        "percentiles, 1,000 series": Load([(PercentilesProcessor, {})], lambda: _received(series, 8)),
        f"filter, transform, {len(request) >> 20} MiB": Load(
            [(FilterProcessor, conditions), (TransformProcessor, CHANGES)], lambda: _received(request, 2)
        ),
    }


def run() -> list[BenchmarkRow]:
    """Takes two minutes."""
    return [row for name, load in loads().items() for row in _rows(name, load)]


def _rows(name: str, load: Load) -> Iterator[BenchmarkRow]:
    rounds = [measured(load) for _ in range(ROUNDS)]
    for what, delays in (
        ("timer", [one.timer for one in rounds]),
        ("request", [one.requests for one in rounds]),
        ("other pipeline", [one.batches for one in rounds]),
    ):
        p50, p99, longest = (min(np.quantile(some, share) for some in delays) * 1e3 for share in (0.5, 0.99, 1.0))
        yield BenchmarkRow(
            f"loop delay: {name}, {what}, p50 / p99 / max",
            f"{p50:.1f} / {p99:.1f} / {longest:.1f} ms",
            *((f"p99 <= {BAR_MS:g} ms", bool(p99 <= BAR_MS)) if what != "other pipeline" else ()),
        )
    if load.processors:
        yield BenchmarkRow(f"loop delay: {name}, CPU time", f"{min(one.cpu for one in rounds):.2f} s")


def measured(load: Load, switch_interval: float = SWITCH_INTERVAL) -> Delays:
    """One round with new processors."""
    sys.setswitchinterval(switch_interval)
    gc.collect()
    gc.freeze()  # as the collector does
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_measured(load))


async def _measured(load: Load) -> Delays:
    timer: list[float] = []
    emits: list[float] = []
    small = request_of(100)
    other, _ = _pipeline(Load([(TransformProcessor, CHANGES)], lambda: iter(())))

    async def emit_others() -> None:
        while True:
            before = time.perf_counter()
            await other(Batch.from_bytes(metrics=small))
            emits.append(time.perf_counter() - before)
            await asyncio.sleep(0.02)

    async def watch() -> None:
        while True:
            before = time.perf_counter()
            await asyncio.sleep(_TICK)
            timer.append(time.perf_counter() - before - _TICK)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):  # the client is killed at the end
            while data := await reader.read(1000):
                writer.write(data)
        writer.close()

    emit, pipeline, batches = *_pipeline(load), list(load.batches())
    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        port = str(server.sockets[0].getsockname()[1])
        client = await asyncio.create_subprocess_exec(
            sys.executable, "-c", _CLIENT, port, stdout=asyncio.subprocess.PIPE, limit=1 << 24
        )
        assert client.stdout
        await client.stdout.readline()
        watching, emitting = asyncio.create_task(watch()), asyncio.create_task(emit_others())
        await asyncio.sleep(0.05)
        timer.clear()
        emits.clear()
        began = time.process_time()
        for batch in batches:
            await emit(batch)
        await pipeline.flush()
        cpu = time.process_time() - began
        if not batches:
            await asyncio.sleep(_QUIET)
        watching.cancel()
        emitting.cancel()
        client.kill()
        requests = [float(line) for line in (await client.stdout.read()).splitlines() if line.startswith(b"0.")]
        await client.wait()
    return Delays(timer, requests, emits, cpu)


def _pipeline(load: Load) -> tuple[FanOut, Pipeline]:
    instruments = Instruments(NoOpMeter("benchmark"))
    stages = []
    for kind, options in load.processors:
        config: ComponentConfig = kind.Config.model_validate(options)
        processor = kind(config, make_context("processors", clock=SystemClock()))
        stages.append(Stage(processor, instruments.processor(kind.__name__, "benchmark")))
    pipeline = Pipeline("benchmark", stages, [], ALL_SIGNALS, asyncio.Lock())
    return FanOut([pipeline], partial(instruments.receiver, "benchmark")), pipeline


def _received(encoded: bytes, times: int) -> Iterator[Batch]:
    for _ in range(times):
        yield Batch.from_bytes(metrics=encoded)


def _ranks(count: int, seconds: int) -> Iterator[Batch]:
    """A batch a second for each host of eight ranks, all of one job."""
    origin, spans = recorded_process("gloo_DDP")
    spans = sorted(repeated_spans(spans, 81 * seconds), key=lambda span: span.end_time_unix_nano)
    first = spans[0].end_time_unix_nano
    for second in range(seconds):
        begin, end = first + second * 10**9, first + (second + 1) * 10**9
        some = [span for span in spans if begin <= span.end_time_unix_nano < end]
        for host in range(count // 8):
            encoded = (encoded_spans(_rank(origin, 8 * host + local, count), some) for local in range(8))
            yield Batch.from_bytes(spans=b"".join(encoded))


def _rank(origin: ResourceSpans, rank: int, size: int) -> ResourceSpans:
    about: dict[str, int | str] = {
        "host.name": f"node-{rank // 8}",
        "process.pid": 1000 + rank,
        "process.creation.time": "2026-01-01T00:00:00Z",
        "zernel.rank": rank,
        "zernel.world_size": size,
        "zernel.job.id": "benchmark",
    }
    ranked = ResourceSpans()
    ranked.CopyFrom(origin)
    del ranked.resource.attributes[:]
    for key, value in about.items():
        content = AnyValue(int_value=value) if isinstance(value, int) else AnyValue(string_value=value)
        ranked.resource.attributes.append(KeyValue(key=key, value=content))
    return ranked
