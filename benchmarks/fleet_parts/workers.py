"""Workers in a process of their own, each with a channel of gRPC: PORT COUNT INTERVAL SECONDS stream|call PREFIX.

Prints a line when all are connected, and the times of their heartbeats in ms after SECONDS. The process is nice: its
workers would otherwise take the CPU from the master, while real ones have machines of their own.
"""

import asyncio
import json
import os
import random
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

import grpc

from otel_zernel_libraries.cluster.messages import SEND_HEARTBEAT, STREAM_HEARTBEATS, Heartbeat, RunningTask

_OPTIONS = [("grpc.use_local_subchannel_pool", 1)]
"""A connection for each channel."""
_CONNECTING = 200
"""Workers that connect at the same time."""
Beat = Callable[[bytes], Awaitable[None]]


def heartbeat(worker_id: str) -> bytes:
    task = RunningTask(task_id="train-1", cpu_allocated=4, memory_allocated=2**34, gpu_allocated=1, status="running")
    usages = {name: round(random.uniform(0, 100), 1) for name in ("cpu_usage", "memory_usage", "gpu_usage")}
    encoded: bytes = Heartbeat(worker_id=worker_id, running_tasks=[task], **usages).SerializeToString()
    return encoded


def by_call(channel: Any) -> Beat:
    method = channel.unary_unary(SEND_HEARTBEAT)

    async def beat(message: bytes) -> None:
        await method(message)

    return beat


def by_stream(channel: Any) -> Beat:
    stream = channel.stream_stream(STREAM_HEARTBEATS)()

    async def beat(message: bytes) -> None:
        await stream.write(message)
        await stream.read()

    return beat


async def main(port: str, count: str, interval: str, seconds: str, method: str, prefix: str) -> None:
    times: list[float] = []
    connecting = asyncio.Semaphore(_CONNECTING)
    begun, end = asyncio.Event(), [0.0]

    async def work(worker_id: str) -> None:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=_OPTIONS) as channel:
            async with connecting:
                beat = (by_stream if method == "stream" else by_call)(channel)
                await beat(heartbeat(worker_id))
            connected.release()
            await begun.wait()
            await asyncio.sleep(random.uniform(0, float(interval)))
            while time.monotonic() < end[0]:
                message, start = heartbeat(worker_id), time.perf_counter()
                await beat(message)
                times.append((time.perf_counter() - start) * 1e3)
                await asyncio.sleep(float(interval) * random.uniform(0.9, 1.1))

    connected = asyncio.Semaphore(0)
    tasks = [asyncio.create_task(work(f"{prefix}-{number}")) for number in range(int(count))]
    for _ in tasks:
        await connected.acquire()
    print("connected", flush=True)
    end[0] = time.monotonic() + float(seconds)
    begun.set()
    await asyncio.wait(tasks)
    times.sort()
    print(json.dumps({"count": len(times), "p50": quantile(times, 0.5), "p99": quantile(times, 0.99)}), flush=True)


def quantile(times: list[float], q: float) -> float:
    """A quantile of sorted values."""
    return times[min(len(times) - 1, int(len(times) * q))] if times else float("nan")


if __name__ == "__main__":
    os.nice(19)
    asyncio.run(main(*sys.argv[1:]))
