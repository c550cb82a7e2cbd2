"""Messages of protobuf from their field numbers, declared as text: neither a build nor a user needs protoc.

A pool of its own holds each file, so that another package in the process may define the same messages, too.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from google.protobuf.descriptor import FileDescriptor
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass


def declared_file(
    name: str,
    package: str,
    messages: Mapping[str, str],
    *parts: FileDescriptorProto,
    syntax: str = "proto3",
    dependencies: Iterable[FileDescriptor] = (),
) -> FileDescriptor:
    """A file of messages.

    `messages` has the fields of each message: number, type and name, separated by `;`. A star after the type marks a
    repeated field. `parts` are merged into the file, such as a service or an enumeration. The types of `dependencies`
    are named in full, `google.protobuf.Timestamp`.
    """
    file = FileDescriptorProto(name=name, package=package, syntax=syntax)
    types = {
        **{message: (FieldDescriptorProto.TYPE_MESSAGE, f".{package}.{message}") for message in messages},
        **{
            enum.name: (FieldDescriptorProto.TYPE_ENUM, f".{package}.{enum.name}")
            for part in parts
            for enum in part.enum_type
        },
    }
    for dependency in dependencies:
        file.dependency.append(dependency.name)
        for known in dependency.message_types_by_name.values():
            types[known.full_name] = (FieldDescriptorProto.TYPE_MESSAGE, f".{known.full_name}")
    for message, fields in messages.items():
        declared = [_field(part, types) for part in filter(str.strip, fields.split(";"))]
        file.message_type.append(DescriptorProto(name=message, field=declared))
    for part in parts:
        file.MergeFrom(part)
    pool = DescriptorPool()
    for dependency in dependencies:
        pool.AddSerializedFile(dependency.serialized_pb)
    pool.AddSerializedFile(file.SerializeToString())
    return pool.FindFileByName(name)


def message_of(file: FileDescriptor, name: str) -> Any:
    """The class of a message. It is typed as `Any`, because it is made at run time."""
    return GetMessageClass(file.message_types_by_name[name])


def _field(text: str, types: Mapping[str, tuple[Any, str]]) -> FieldDescriptorProto:
    number, type_, name = text.split()
    field = FieldDescriptorProto(name=name, number=int(number), label=FieldDescriptorProto.LABEL_OPTIONAL)
    plain = type_.removesuffix("*")
    if plain != type_:
        field.label = FieldDescriptorProto.LABEL_REPEATED
    if plain in types:
        field.type, field.type_name = types[plain]
    else:
        field.type = FieldDescriptorProto.Type.Value(f"TYPE_{plain.upper()}")
    return field
