"""The executable memory of a process, divided by what it belongs to: PyTorch, the interpreter, or another library."""

import re
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from otel_zernel_receivers.ebpf.kernel.kernel_structs import CODE_RANGE, CODE_RANGES, EXECUTABLE, Code
from otel_zernel_receivers.ebpf.processes.files.mappings import Mapping

_OPERATOR = re.compile(
    r"/torch/(lib|_C\.)|/torch\.libs/|/functorch/_C\."  # the wheels of PyTorch
    r"|/lib(torch|c10|caffe2|aoti)[^/]*$"  # other builds of it
    r"|/torchinductor_|/\.triton/|/__triton_launcher"  # the code that torch.compile generates
    r"|/lib(cu(da|blas|blasLt|dnn|fft|rand|solver|sparse|sparseLt|pti)|nccl|nvrtc|nvJitLink|mkl_)[^/]*$"
)
"""PyTorch, and the libraries of CUDA and of algebra that its operators call."""
_INTERPRETER = re.compile(r".*/(lib)?python3[^/]*|.*/lib-dynload/[^/]*")
"""The interpreter, and the modules of its standard library that many builds link into it."""
_SHARED = re.compile(
    r"(libc|libm|libpthread|libdl|librt|ld-linux[^.]*|ld-musl[^.]*|libstdc\+\+|libgcc_s"  # of C and C++
    r"|libgomp|libiomp5|libomp|libtbb"  # of threads
    r"|libjemalloc|libtcmalloc[^.]*|libmimalloc)(-[0-9a-f.]+)?[-.]so[^/]*|libc-2.*"
)
"""Libraries that many others call."""

_LARGEST = (1 << 32) - 1


def code_of(mapping: Mapping) -> Code:
    """The owner of a mapped file's code, by its path."""
    if _OPERATOR.search(mapping.path):
        return Code.OPERATOR
    if _INTERPRETER.fullmatch(mapping.path):
        return Code.PYTHON
    return Code.SHARED if _SHARED.fullmatch(mapping.name) else Code.NATIVE


def executable_of(mappings: Iterable[Mapping]) -> NDArray[np.void]:
    """The struct `executable` of a process with these mappings, sorted by address.

    If there are too many, neighbours of one kind are joined, with the data between them. If there are still too many,
    the smallest ones of other libraries are left out. A range ends after 4 GiB.
    """
    ranges = sorted(
        (part.start, part.end, code) for mapping in mappings for code in [code_of(mapping)] for part in mapping.ranges
    )
    if len(ranges) > CODE_RANGES:
        ranges = sorted(sorted(_joined(ranges), key=_importance)[-CODE_RANGES:])
    executable = np.zeros((), EXECUTABLE)
    executable["count"] = len(ranges)
    executable["ranges"][: len(ranges)] = np.array(
        [(start, min(end - start, _LARGEST), code) for start, end, code in ranges], CODE_RANGE
    )
    return executable


def _importance(entry: tuple[int, int, Code]) -> tuple[bool, int]:
    start, end, code = entry
    return code in (Code.OPERATOR, Code.PYTHON), end - start


def _joined(ranges: Iterable[tuple[int, int, Code]]) -> list[tuple[int, int, Code]]:
    joined: list[tuple[int, int, Code]] = []
    for start, end, code in ranges:
        if joined and joined[-1][2] == code and end - joined[-1][0] <= _LARGEST:
            joined[-1] = (joined[-1][0], end, code)
        else:
            joined.append((start, end, code))
    return joined
