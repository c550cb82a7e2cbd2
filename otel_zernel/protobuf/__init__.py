"""Protobuf messages from their field numbers: neither a build nor a user needs protoc."""

from otel_zernel.protobuf.declaring import declared_file, message_of

__all__ = ["declared_file", "message_of"]
