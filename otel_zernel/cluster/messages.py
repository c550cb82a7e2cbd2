"""The messages and methods of `cluster.proto`, from their field numbers: neither a build nor a user needs protoc.

A pool of its own holds the messages, so that another package in the process may define them, too.
"""

from typing import Any, Final

from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

_PACKAGE = "cluster"
SERVICE: Final = f"{_PACKAGE}.MasterWorker"
REGISTER_WORKER: Final = f"/{SERVICE}/RegisterWorker"
SEND_HEARTBEAT: Final = f"/{SERVICE}/SendHeartbeat"
STREAM_HEARTBEATS: Final = f"/{SERVICE}/StreamHeartbeats"
"""The paths of the methods."""

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


def _field(text: str) -> FieldDescriptorProto:
    number, type_, name = text.split()
    field = FieldDescriptorProto(name=name, number=int(number), label=FieldDescriptorProto.LABEL_OPTIONAL)
    plain = type_.removesuffix("*")
    if plain != type_:
        field.label = FieldDescriptorProto.LABEL_REPEATED
    if plain in _FIELDS:
        field.type, field.type_name = FieldDescriptorProto.TYPE_MESSAGE, f".{_PACKAGE}.{plain}"
    else:
        field.type = FieldDescriptorProto.Type.Value(f"TYPE_{plain.upper()}")
    return field


def _file() -> FileDescriptorProto:
    file = FileDescriptorProto(name="cluster.proto", package=_PACKAGE, syntax="proto3")
    file.message_type.extend(
        DescriptorProto(name=name, field=[_field(one) for one in fields.split(";")]) for name, fields in _FIELDS.items()
    )
    service = file.service.add(name=SERVICE.removeprefix(f"{_PACKAGE}."))
    for name, (request, streams) in _METHODS.items():
        method = service.method.add(name=name, input_type=f".{_PACKAGE}.{request}")
        method.output_type = f".{_PACKAGE}.HeartbeatAck"
        if streams:
            method.client_streaming = method.server_streaming = True
    return file


_pool = DescriptorPool()
_pool.AddSerializedFile(_file().SerializeToString())
FILE: Final = _pool.FindFileByName("cluster.proto")
"""The descriptor of the file, for reflection."""


def _message(name: str) -> Any:
    return GetMessageClass(_pool.FindMessageTypeByName(f"{_PACKAGE}.{name}"))


WorkerInfo = _message("WorkerInfo")
Heartbeat = _message("Heartbeat")
RunningTask = _message("RunningTask")
HeartbeatAck = _message("HeartbeatAck")
"""The classes of the messages. They are typed as `Any`, because they are made at run time."""
