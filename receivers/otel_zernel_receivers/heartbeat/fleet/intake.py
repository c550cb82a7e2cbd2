"""Checks the messages of workers before they become state. Every text, number and list has a bound."""

import math
from http import HTTPStatus
from typing import Any, Final

from google.protobuf.message import DecodeError
from google.rpc.code_pb2 import Code

from otel_zernel_libraries.cluster.messages import Heartbeat, WorkerInfo
from otel_zernel_libraries.serving.requests.failures import RequestFailure
from otel_zernel_receivers.heartbeat.fleet.worker import Capacities, TaskState

LONGEST_ID: Final = 256
"""Characters of the id of a worker or a task."""
_LONGEST_STATUS: Final = 64
"""Characters. A longer status is cut."""


def read_heartbeat(message: bytes) -> Any:
    """The heartbeat in an encoded message. Raises `RequestFailure` if a worker cannot have sent it."""
    heartbeat = _parsed(Heartbeat, message)
    _check_id(heartbeat.worker_id)
    usages = heartbeat.cpu_usage + heartbeat.memory_usage + heartbeat.storage_usage + heartbeat.gpu_usage
    least = min(heartbeat.cpu_usage, heartbeat.memory_usage, heartbeat.storage_usage, heartbeat.gpu_usage)
    if not math.isfinite(usages) or least < 0:
        raise invalid(f"worker {heartbeat.worker_id}: a usage is negative or not a number; send per cent")
    return heartbeat


def read_registration(message: bytes) -> tuple[str, Capacities]:
    """The id and the capacities of a worker. Raises `RequestFailure`."""
    info = _parsed(WorkerInfo, message)
    _check_id(info.worker_id)
    found = Capacities(
        info.worker_ip[:LONGEST_ID], info.total_cpu, info.total_memory, info.total_storage, info.total_gpu
    )
    if not all(math.isfinite(one) and one >= 0 for one in found[1:]):
        raise invalid(f"worker {info.worker_id}: a capacity is negative or not a number")
    return info.worker_id, found


def read_tasks(heartbeat: Any, most: int) -> tuple[TaskState, ...]:
    """The first running tasks of a heartbeat. Raises `RequestFailure` if one has an unusable number."""
    tasks = tuple(
        TaskState(
            one.task_id[:LONGEST_ID],
            one.cpu_allocated,
            one.memory_allocated,
            one.gpu_allocated,
            one.status[:_LONGEST_STATUS],
        )
        for one in heartbeat.running_tasks[:most]
    )
    if not all(math.isfinite(one[1] + one[2] + one[3]) for one in tasks):
        raise invalid(f"worker {heartbeat.worker_id}: an allocation of a task is not a number")
    return tasks


def invalid(message: str) -> RequestFailure:
    """The message has values that no worker can have."""
    return RequestFailure(message, "invalid", Code.INVALID_ARGUMENT, HTTPStatus.BAD_REQUEST)


def taken(worker_id: str, inactive_after: float) -> RequestFailure:
    """Another client that is alive sends for the worker."""
    message = (
        f"another client sends for the worker {worker_id}; give each worker its own worker_id. A restarted worker is"
        f" accepted when its old connection ends, or has been silent for {inactive_after:g} s"
    )
    return RequestFailure(message, "taken", Code.ALREADY_EXISTS, HTTPStatus.CONFLICT)


def _parsed(kind: Any, message: bytes) -> Any:
    try:
        return kind.FromString(message)
    except DecodeError as error:
        raise invalid(f"the message is not a cluster.{kind.DESCRIPTOR.name}") from error


def _check_id(worker_id: str) -> None:
    if not worker_id or len(worker_id) > LONGEST_ID:
        raise invalid(f"worker_id has {len(worker_id)} characters; send 1 to {LONGEST_ID}")
