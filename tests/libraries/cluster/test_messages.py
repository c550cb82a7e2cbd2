"""The messages in Python are those of `cluster.proto`, as protoc reads it."""

from pathlib import Path

from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from grpc_tools import protoc

import otel_zernel_libraries.cluster
from otel_zernel_libraries.cluster import messages as m

FOLDER = Path(otel_zernel_libraries.cluster.__file__).parent


def test_the_messages_and_methods_are_those_of_the_proto_file(tmp_path: Path) -> None:
    output = tmp_path / "cluster.binpb"
    assert not protoc.main(["protoc", f"-I{FOLDER}", f"--descriptor_set_out={output}", str(FOLDER / "cluster.proto")])
    (compiled,) = FileDescriptorSet.FromString(output.read_bytes()).file
    for message in compiled.message_type:
        for field in message.field:
            field.ClearField("json_name")
    ours = FileDescriptorProto()
    m.FILE.CopyToProto(ours)
    ours.message_type.sort(key=lambda message: message.name)
    compiled.message_type.sort(key=lambda message: message.name)
    for message in ours.message_type:
        for field in message.field:
            field.ClearField("json_name")
    assert ours == compiled


def test_a_heartbeat_has_the_wire_format_of_the_field_numbers() -> None:
    task = m.RunningTask(task_id="t", status="running", cpu_allocated=1.0)
    heartbeat = m.Heartbeat(worker_id="w", gpu_usage=2.0, running_tasks=[task])
    one, two = b"\0" * 6 + b"\xf0\x3f", b"\0" * 7 + b"\x40"  # 1.0 and 2.0 as IEEE 754
    encoded_task = b"\x0a\x01t" + b"\x11" + one + b"\x22\x07running"
    assert heartbeat.SerializeToString() == (
        b"\x0a\x01w" + b"\x2a" + bytes((len(encoded_task),)) + encoded_task + b"\x31" + two
    )
