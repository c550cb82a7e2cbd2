"""Frameworks that processes run, known by the libraries they have mapped, and how much of each is seen."""

import re
from collections.abc import Collection, Iterable
from enum import StrEnum
from typing import TYPE_CHECKING

from otel_zernel.component import Logger

if TYPE_CHECKING:
    from otel_zernel_receivers.ebpf.processes.scanner import ScannedProcess


class Framework(StrEnum):
    """A library for computing that a process may have loaded."""

    PYTORCH = "PyTorch"
    VLLM = "vLLM"
    JAX = "JAX"
    TENSORFLOW = "TensorFlow"
    NONE = "CUDA without a known framework"
    """A program that uses CUDA itself."""


# As in PyPI's wheels: vllm/_C.abi3.so, since 0.28 vllm/_C_stable_libtorch.abi3.so; jaxlib/xla_extension.so, since 0.6
# jaxlib/libjax_common.so and _jax.so; tensorflow/libtensorflow_cc.so.2.
_PATHS = {
    Framework.VLLM: re.compile(r".*/vllm/_[^/]*\.so"),
    Framework.JAX: re.compile(r".*/(libjax_common|_jax|xla_extension|xla_cuda_plugin)\.so"),
    Framework.TENSORFLOW: re.compile(r".*/libtensorflow_(framework|cc)\.so(\.\d.*)?"),
    Framework.PYTORCH: re.compile(r".*/libtorch_cpu\.so"),
}
_NO_PHASES = "its phases are not seen"
_MOST = 100
_CALLS = {
    "CUDA": frozenset({"cudart", "cuda", "executable"}),
    "NCCL": frozenset({"nccl", "executable"}),
}
"""The kinds of files (`scanner.MappedLibrary`) in which the calls are probed."""


def frameworks_of(paths: Iterable[str]) -> frozenset[Framework]:
    """The frameworks whose libraries are among the mapped files."""
    paths = list(paths)
    return frozenset(framework for framework, path in _PATHS.items() if any(map(path.fullmatch, paths)))


def framework_of(process: "ScannedProcess") -> Framework:
    """The one that says most of a process: vLLM runs on PyTorch, and PyTorch jobs may load TensorFlow for its logs."""
    order = (Framework.VLLM, Framework.PYTORCH, Framework.JAX, Framework.TENSORFLOW)
    return next((one for one in order if one in process.frameworks), Framework.NONE)


def remark(framework: Framework, libraries: Collection[str]) -> str:
    """How much is seen of a process that uses these libraries; empty where phases are seen."""
    if framework is Framework.PYTORCH:
        return ""
    counted = [name for name, kinds in _CALLS.items() if not kinds.isdisjoint(libraries)]
    calls = f"calls of {' and '.join(counted)} are counted" if counted else "it has loaded no library of CUDA or NCCL"
    phases = "it serves a model, so it has no training phases" if framework is Framework.VLLM else _NO_PHASES
    return f"{calls}; {phases}"


class SeenFrameworks:
    """Frameworks that were seen, each with a kind of process."""

    def __init__(self, logger: Logger) -> None:
        self._logger = logger
        self._said: set[tuple[Framework, str, str]] = set()

    def take(self, processes: Iterable["ScannedProcess"]) -> None:
        """Says in the log what is new. A name is a program's own choice: after a hundred, no more is said."""
        for process in processes:
            framework = framework_of(process)
            text = remark(framework, {used.library for used in process.files})
            kind = (framework, process.name, text)
            if text and kind not in self._said and len(self._said) < _MOST:
                self._said.add(kind)
                self._logger.info("%s in %s %d: %s", framework, process.name, process.id.pid, text)
