"""Files of messages, declared as text.

A pool of its own holds each file, so that another package in the process may define the same messages, too.
"""

from collections.abc import Mapping
from typing import Any

from google.protobuf.descriptor import FileDescriptor
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass


def declared_file(name: str, package: str, messages: Mapping[str, str], *parts: FileDescriptorProto) -> FileDescriptor:
    """A file of messages in proto3.

    `messages` has the fields of each message: number, type and name, separated by `;`. A star after the type marks a
    repeated field. `parts` are merged into the file, such as a service.
    """
    file = FileDescriptorProto(name=name, package=package, syntax="proto3")
    for message, fields in messages.items():
        declared = [_field(one, package, messages) for one in filter(str.strip, fields.split(";"))]
        file.message_type.append(DescriptorProto(name=message, field=declared))
    for part in parts:
        file.MergeFrom(part)
    pool = DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    return pool.FindFileByName(name)


def message_of(file: FileDescriptor, name: str) -> Any:
    """The class of a message. It is typed as `Any`, because it is made at run time."""
    return GetMessageClass(file.message_types_by_name[name])


def _field(text: str, package: str, messages: Mapping[str, str]) -> FieldDescriptorProto:
    number, type_, name = text.split()
    field = FieldDescriptorProto(name=name, number=int(number), label=FieldDescriptorProto.LABEL_OPTIONAL)
    plain = type_.removesuffix("*")
    if plain != type_:
        field.label = FieldDescriptorProto.LABEL_REPEATED
    if plain in messages:
        field.type, field.type_name = FieldDescriptorProto.TYPE_MESSAGE, f".{package}.{plain}"
    else:
        field.type = FieldDescriptorProto.Type.Value(f"TYPE_{plain.upper()}")
    return field
