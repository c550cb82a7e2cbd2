"""A message of the feed. Every field is optional; what cannot be read is counted and ignored."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

MOST_PROCESSES: Final = 4096
"""Items of a message that are read."""
_KEY: Final = re.compile(r"(\d{1,10}):([\w.-]{1,64})", re.ASCII)
_LARGEST: Final = float(2**63 - 1024)
"""The largest amount that is an integer of OTLP also after it was a float."""
_LATENCIES: Final = (
    *("cuda_latency_p50_us", "cuda_latency_p99_us"),
    *("nccl_allreduce_p50_ms", "nccl_allreduce_p99_ms", "dataloader_wait_p50_ms"),
)
ProcessKey = tuple[int, str]
"""The pid, and the GPU as the feed names it."""


class UnreadableMessage(Exception):
    """A message that is not a JSON object."""


@dataclass(slots=True)
class FeedMessage:
    """The fields of a message. Those that it does not have are 0 or empty."""

    memory: dict[ProcessKey, tuple[int, int]] = field(default_factory=dict)
    """The bytes in use and their peak."""
    latencies: dict[str, float] = field(default_factory=dict)
    """By the name of the field, in its unit. All are above 0."""
    last_update_ms: float = 0.0
    """Unix time."""
    faults: int = 0
    """Fields and items that could not be read."""
    surplus: int = 0
    """Items beyond `MOST_PROCESSES`."""


def read_message(data: bytes) -> FeedMessage:
    """Reads a message. Bytes that are not UTF-8 cost the items that they are in. Raises `UnreadableMessage`."""
    try:
        loads = json.loads(data.decode(errors="replace"))
    except (ValueError, RecursionError):
        raise UnreadableMessage from None
    if not isinstance(loads, dict):
        raise UnreadableMessage
    message = FeedMessage()
    _read_memory(loads.get("gpu_utilization"), message)
    for name in _LATENCIES:
        if amount := _amount(loads.get(name), message):
            message.latencies[name] = amount
    message.last_update_ms = _amount(loads.get("last_update_ms"), message)
    return message


def _read_memory(items: Any, message: FeedMessage) -> None:
    if items is None:
        return
    if not isinstance(items, list):
        message.faults += 1
        return
    message.surplus = max(0, len(items) - MOST_PROCESSES)
    for item in items[:MOST_PROCESSES]:
        _read_item(item, message)


def _read_item(item: Any, message: FeedMessage) -> None:
    key = item.get("key") if isinstance(item, Mapping) else None
    parts = _KEY.fullmatch(key) if isinstance(key, str) else None
    if not parts:
        message.faults += 1
        return
    used, peak = (round(_amount(item.get(name), message)) for name in ("current_bytes", "peak_bytes"))
    message.memory[int(parts[1]), parts[2]] = used, peak


def _amount(value: Any, message: FeedMessage) -> float:
    """A number that is not negative; 0 if it is missing, or cannot be read."""
    if value is None:
        return 0.0
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= _LARGEST:
        message.faults += 1
        return 0.0
    return value
