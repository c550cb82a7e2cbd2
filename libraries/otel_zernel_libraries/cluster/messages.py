"""The messages and methods of `cluster.proto`."""

from typing import Final

from google.protobuf.descriptor_pb2 import FileDescriptorProto

from otel_zernel_libraries.protobuf import declared_file, message_of

_PACKAGE = "cluster"
SERVICE: Final = f"{_PACKAGE}.MasterWorker"
REGISTER_WORKER: Final = f"/{SERVICE}/RegisterWorker"
SEND_HEARTBEAT: Final = f"/{SERVICE}/SendHeartbeat"
STREAM_HEARTBEATS: Final = f"/{SERVICE}/StreamHeartbeats"
"""The paths of the methods."""
WORKER_TOKEN: Final = "zernel-worker-token"  # noqa: S105
"""The metadata with a random text of a worker, by which a master recognizes it at its next connection."""

_FIELDS: dict[str, str] = {
    "WorkerInfo": (
        "1 string worker_id; 2 string worker_ip; 3 double total_cpu; 4 double total_memory; 5 double total_storage;"
        "6 double total_gpu"
    ),
    "Heartbeat": (
        "1 string worker_id; 2 double cpu_usage; 3 double memory_usage; 4 double storage_usage;"
        "5 RunningTask* running_tasks; 6 double gpu_usage"
    ),
    "RunningTask": (
        "1 string task_id; 2 double cpu_allocated; 3 double memory_allocated; 4 string status; 5 double gpu_allocated"
    ),
    "HeartbeatAck": "1 bool success",
}
"""The fields of each message: number, type and name. A star marks a repeated field."""
_METHODS = {
    "RegisterWorker": ("WorkerInfo", False),
    "SendHeartbeat": ("Heartbeat", False),
    "StreamHeartbeats": ("Heartbeat", True),
}
"""The request of each method, and whether requests and answers are streams."""


def _service() -> FileDescriptorProto:
    part = FileDescriptorProto()
    service = part.service.add(name=SERVICE.removeprefix(f"{_PACKAGE}."))
    for name, (request, streams) in _METHODS.items():
        method = service.method.add(name=name, input_type=f".{_PACKAGE}.{request}")
        method.output_type = f".{_PACKAGE}.HeartbeatAck"
        if streams:
            method.client_streaming = method.server_streaming = True
    return part


FILE: Final = declared_file("cluster.proto", _PACKAGE, _FIELDS, _service())
"""The descriptor of the file, for reflection."""

WorkerInfo = message_of(FILE, "WorkerInfo")
Heartbeat = message_of(FILE, "Heartbeat")
RunningTask = message_of(FILE, "RunningTask")
HeartbeatAck = message_of(FILE, "HeartbeatAck")
