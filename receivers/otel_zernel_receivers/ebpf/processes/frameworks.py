"""Frameworks that a process uses, recognized by the libraries that it has mapped, and how much the receiver counts."""

import re
from collections.abc import Collection, Iterable
from enum import StrEnum


class Framework(StrEnum):
    """A computing library that a process may have loaded."""

    PYTORCH = "PyTorch"
    VLLM = "vLLM"
    JAX = "JAX"
    TENSORFLOW = "TensorFlow"
    NONE = "CUDA without a known framework"
    """A program that calls CUDA directly."""


# The paths are those of PyPI's wheels. vLLM: vllm/_C.abi3.so, since 0.28 vllm/_C_stable_libtorch.abi3.so. JAX:
# jaxlib/xla_extension.so, since 0.6 jaxlib/libjax_common.so and _jax.so. TensorFlow: tensorflow/libtensorflow_cc.so.2.
_PATHS = {
    Framework.VLLM: re.compile(r".*/vllm/_[^/]*\.so"),
    Framework.JAX: re.compile(r".*/(libjax_common|_jax|xla_extension|xla_cuda_plugin)\.so"),
    Framework.TENSORFLOW: re.compile(r".*/libtensorflow_(framework|cc)\.so(\.\d.*)?"),
    Framework.PYTORCH: re.compile(r".*/libtorch_cpu\.so"),
}
_PRECEDENCE = (Framework.VLLM, Framework.PYTORCH, Framework.JAX, Framework.TENSORFLOW)
_CALLS = {
    "CUDA": frozenset({"cudart", "cuda", "executable"}),
    "NCCL": frozenset({"nccl", "executable"}),
}
"""The kinds of files (`scanner.MappedLibrary`) in which each library's calls are probed."""


def frameworks_of(paths: Iterable[str]) -> frozenset[Framework]:
    """The frameworks whose libraries are among the mapped files."""
    paths = list(paths)
    return frozenset(framework for framework, path in _PATHS.items() if any(map(path.fullmatch, paths)))


def main_framework(frameworks: Collection[Framework]) -> Framework:
    """The framework that describes a process best; `NONE` if `frameworks` is empty.

    vLLM runs on PyTorch, so vLLM comes first. PyTorch jobs may load TensorFlow to write its logs, so PyTorch comes
    before TensorFlow.
    """
    return next((framework for framework in _PRECEDENCE if framework in frameworks), Framework.NONE)


def coverage(framework: Framework, libraries: Collection[str]) -> str:
    """How much the receiver counts of a process that uses these libraries; empty if it also reports phases."""
    if framework is Framework.PYTORCH:
        return ""
    counted = [name for name, kinds in _CALLS.items() if not kinds.isdisjoint(libraries)]
    calls = f"calls of {' and '.join(counted)} are counted" if counted else "it has loaded no library of CUDA or NCCL"
    if framework is Framework.VLLM:
        return f"{calls}; it serves a model, so it has no training phases"
    return f"{calls}; its phases are not reported"
