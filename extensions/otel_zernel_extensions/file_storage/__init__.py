"""Keeps queues and positions in files."""

from otel_zernel_extensions.file_storage.extension import FileStorageExtension as FileStorageExtension
