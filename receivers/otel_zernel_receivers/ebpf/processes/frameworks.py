"""How much the receiver counts of a process, by its framework."""

from collections.abc import Collection

from otel_zernel_libraries.training.frameworks import Framework

_CALLS = {
    "CUDA": frozenset({"cudart", "cuda", "executable"}),
    "NCCL": frozenset({"nccl", "executable"}),
}
"""The kinds of files (`scanner.MappedLibrary`) in which each library's calls are probed."""


def coverage(framework: Framework, libraries: Collection[str]) -> str:
    """How much the receiver counts of a process that uses these libraries; empty if it also reports phases."""
    if framework is Framework.PYTORCH:
        return ""
    counted = [name for name, kinds in _CALLS.items() if not kinds.isdisjoint(libraries)]
    calls = f"calls of {' and '.join(counted)} are counted" if counted else "it has loaded no library of CUDA or NCCL"
    if framework is Framework.VLLM:
        return f"{calls}; it serves a model, so it has no training phases"
    return f"{calls}; its phases are not reported"
