"""The mapped files of a process that have functions to probe. Facts about files are kept from one scan to the next."""

import re
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Generic, TypeVar

from otel_zernel_receivers.ebpf.binaries.elf import ElfFile
from otel_zernel_receivers.ebpf.binaries.symbol_names import UnreadableElf
from otel_zernel_receivers.ebpf.processes.files.file_identity import FileIdentity
from otel_zernel_receivers.ebpf.processes.files.mappings import (
    LocatedFile,
    Mapping,
    locate,
    open_located,
)
from otel_zernel_receivers.ebpf.processes.procfs import ProcessFolder, ProcessId

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")

# Wheels on PyPI that auditwheel repaired have a hash in the name: libcudart-a7b20f20.so.11.0.
_NAMES = "cudart|cuda|nccl|torch_cpu|torch_cuda|torch_python|c10|parcagpucupti"
_LIBRARY = re.compile(rf"lib({_NAMES})(-[0-9a-f]{{8}})?\.so(\..*)?")
_CUDA_EXPORTS = ("cudaLaunchKernel", "cudaMalloc", "cuLaunchKernel", "ncclAllReduce")


class MappedLibrary(StrEnum):
    """A library, recognized by its file name.

    `EXECUTABLE` is an executable, or a file in memory, that exports functions of these libraries.
    """

    CUDART = "cudart"
    CUDA = "cuda"
    NCCL = "nccl"
    TORCH_CPU = "torch_cpu"
    TORCH_CUDA = "torch_cuda"
    TORCH_PYTHON = "torch_python"
    C10 = "c10"
    CUPTI = "parcagpucupti"
    """Parca's library, which passes on what CUPTI records of the device."""
    EXECUTABLE = "executable"


@dataclass(frozen=True, slots=True)
class UsedFile:
    """A file with functions to probe that a process has mapped executable."""

    library: MappedLibrary
    mapping: Mapping
    file: LocatedFile

    @property
    def identity(self) -> FileIdentity:
        return self.file.identity


class KnownFiles:
    """Facts about mapped files, kept from one scan to the next, since opening a file is expensive."""

    def __init__(self, proc_root: Path) -> None:
        self._root = proc_root
        self._located: _Cache[tuple[ProcessId, Mapping], UsedFile] = _Cache()
        self._exports: _Cache[tuple[str, str, int], bool] = _Cache()

    def probed(self, folder: ProcessFolder, mappings: Sequence[Mapping]) -> Iterator[tuple[MappedLibrary, Mapping]]:
        """The mapped files of a process that have functions to probe."""
        for mapping in mappings:
            if named := _LIBRARY.fullmatch(mapping.name):
                yield MappedLibrary(named[1]), mapping
            elif self._may_export(folder, mapping) and self._exports_cuda(folder.pid, mapping):
                yield MappedLibrary.EXECUTABLE, mapping

    def located(self, process: ProcessId, library: MappedLibrary, mapping: Mapping) -> UsedFile | None:
        """The file of a mapping; None if it cannot be opened."""
        with suppress(OSError):
            return self._located.get(
                (process, mapping), lambda: UsedFile(library, mapping, locate(self._root, process.pid, mapping))
            )
        return None

    def forget_unused(self) -> None:
        """Forgets facts that were not requested since the last call."""
        self._located.forget_unused()
        self._exports.forget_unused()

    @staticmethod
    def _may_export(folder: ProcessFolder, mapping: Mapping) -> bool:
        return mapping.is_in_memory or mapping.path == folder.executable

    def _exports_cuda(self, pid: int, mapping: Mapping) -> bool:
        """Whether the file is one of the libraries, or has one linked into it."""
        with suppress(OSError):
            return self._exports.get(
                (mapping.path, mapping.device, mapping.inode), lambda: _exports(locate(self._root, pid, mapping))
            )
        return False


def _exports(executable: LocatedFile) -> bool:
    with open_located(executable) as fd, suppress(UnreadableElf):
        return bool(ElfFile(fd).find(_CUDA_EXPORTS))
    return False


class _Cache(Generic[Key, Value]):
    """A cache. A value is kept as long as it is requested between two calls of `forget_unused`."""

    def __init__(self) -> None:
        self._old: dict[Key, Value] = {}
        self._used: dict[Key, Value] = {}

    def get(self, key: Key, find: Callable[[], Value]) -> Value:
        if key not in self._used:
            self._used[key] = self._old[key] if key in self._old else find()
        return self._used[key]

    def forget_unused(self) -> None:
        self._old, self._used = self._used, {}
