"""The older WebSocket feed on port 9092: one JSON object each second, every field optional."""

import asyncio
import json
import time
from pathlib import Path
from typing import Any, Final

from otel_zernel.errors import CannotStart
from otel_zernel.text import one_line, shown_url, visible, without_secrets
from otel_zernel_commands.watch.reading import as_number, number, rows, text
from otel_zernel_commands.watch.sources.live_stream import token_of
from otel_zernel_commands.watch.sources.watch_source import ReconnectWait, WatchSource
from otel_zernel_libraries.extras import missing_packages

_MOST_BYTES: Final = 4 << 20
_MOST_PROCESSES: Final = 1024
_CONNECT: Final = 10.0
_LATENCIES: Final = (
    ("launch", "p50", "cuda_latency_p50_us", 1e-6),
    ("launch", "p99", "cuda_latency_p99_us", 1e-6),
    ("all_reduce", "p50", "nccl_allreduce_p50_ms", 1e-3),
    ("all_reduce", "p99", "nccl_allreduce_p99_ms", 1e-3),
    ("data_loading", "p50", "dataloader_wait_p50_ms", 1e-3),
)
"""Name and quantile in the state's `totals`, the field of the message, and its unit in s."""


class SeedFeedSource(WatchSource):
    """Follows `ws://HOST:9092`. Comes back after a lost connection."""

    def __init__(self, url: str, token_file: Path | None = None) -> None:
        shown = shown_url(url)
        super().__init__(shown)
        self.trouble = f"Connecting to {shown}."
        self._url = url
        self._token_file = token_file
        self._state: dict[str, Any] | None = None
        self._wait = ReconnectWait()

    def state(self) -> dict[str, Any] | None:
        return self._state

    async def run(self, *, once: bool = False) -> None:
        if sentence := missing_packages(f"`watch {self.title}`", "websockets"):
            raise CannotStart(sentence)
        from websockets.exceptions import WebSocketException

        while True:
            try:
                await self._follow(once=once)
                reason = "the connection was closed"
            except (OSError, TimeoutError, WebSocketException, ValueError) as error:
                reason = visible(without_secrets(one_line(error))).rstrip(".") or type(error).__name__
            if once and self._state is not None:
                return
            if self._state is None:
                raise CannotStart(f"no message from {self.title}: {reason}")
            wait = self._wait.take()
            self.trouble = f"No connection to {self.title}: {reason}. Next attempt in {wait:.0f} s."
            await asyncio.sleep(wait)

    async def _follow(self, *, once: bool) -> None:
        from websockets.asyncio.client import connect

        headers = {"authorization": f"Bearer {token_of(self._token_file)}"} if self._token_file else {}
        async with connect(
            self._url,
            open_timeout=_CONNECT,
            max_size=_MOST_BYTES,
            compression=None,
            additional_headers=headers,
        ) as connection:
            async for message in connection:
                state = state_of_message(message, time.time() * 1000)
                if state is None:
                    continue  # readers of this feed ignore what they cannot parse
                self._state = state
                self.trouble = ""
                self._wait.reset()
                if once:
                    return


def state_of_message(message: str | bytes, now_ms: float) -> dict[str, Any] | None:
    """The message in the form of a live state; None if it is no JSON object."""
    try:
        fields = json.loads(message)
    except (ValueError, RecursionError):
        return None
    if not isinstance(fields, dict):
        return None
    updated = number(fields, "last_update_ms") or now_ms
    ranks: dict[str, Any] = {}
    memory: dict[str, float] = {}
    for entry in rows(fields, "gpu_utilization")[:_MOST_PROCESSES]:
        pid, _, gpu = text(entry, "key").partition(":")
        if not pid.isdecimal() or len(pid) > 10:
            continue
        used, peak = number(entry, "current_bytes"), number(entry, "peak_bytes")
        ranks[f"{pid}:{gpu}"] = {"pid": int(pid), "gpu": gpu, "memory": {"used": used, "peak": peak}, "seen": updated}
        memory[gpu] = memory.get(gpu, 0.0) + (used or 0.0)
    totals: dict[str, dict[str, float]] = {}
    for name, quantile, key, unit in _LATENCIES:
        if value := as_number(fields.get(key)):
            totals.setdefault(name, {})[quantile] = value * unit
    gpus = {
        gpu: {"index": int(gpu), "memory_used": used}
        for gpu, used in memory.items()
        if gpu.isdecimal() and len(gpu) < 6
    }
    return {"schema": 1, "time": updated, "gpus": gpus, "ranks": ranks, "jobs": {}, "totals": totals}
