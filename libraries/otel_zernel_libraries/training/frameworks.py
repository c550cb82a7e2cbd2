"""Computing libraries that a process uses, recognized by the files that it has mapped."""

import re
from collections.abc import Collection, Iterable
from enum import StrEnum
from typing import Final


class Framework(StrEnum):
    """A computing library that a process may have loaded."""

    PYTORCH = "PyTorch"
    VLLM = "vLLM"
    JAX = "JAX"
    TENSORFLOW = "TensorFlow"
    XGBOOST = "XGBoost"
    LIGHTGBM = "LightGBM"
    CATBOOST = "CatBoost"
    SCIKIT_LEARN = "scikit-learn"
    NONE = "CUDA without a known framework"
    """A program that calls CUDA directly."""


# The paths are those of PyPI's wheels. vLLM: vllm/_C.abi3.so, since 0.28 vllm/_C_stable_libtorch.abi3.so. JAX:
# jaxlib/xla_extension.so, since 0.6 jaxlib/libjax_common.so and _jax.so. TensorFlow: tensorflow/libtensorflow_cc.so.2.
_PATHS: Final = {
    Framework.VLLM: re.compile(r".*/vllm/_[^/]*\.so"),
    Framework.PYTORCH: re.compile(r".*/libtorch_cpu\.so"),
    Framework.JAX: re.compile(r".*/(libjax_common|_jax|xla_extension|xla_cuda_plugin)\.so"),
    Framework.TENSORFLOW: re.compile(r".*/libtensorflow_(framework|cc)\.so(\.\d.*)?"),
    Framework.XGBOOST: re.compile(r".*/libxgboost\.so"),
    Framework.LIGHTGBM: re.compile(r".*/lib_lightgbm\.so"),
    Framework.CATBOOST: re.compile(r".*/_catboost[^/]*\.so"),
    Framework.SCIKIT_LEARN: re.compile(r".*/sklearn/.*\.so"),
}
"""In the order in which they describe a process: vLLM runs on PyTorch, PyTorch jobs may load TensorFlow to write its
logs, and many programs load scikit-learn for its metrics."""


def frameworks_of(paths: Iterable[str]) -> frozenset[Framework]:
    """The frameworks whose libraries are among the mapped files."""
    paths = list(paths)
    return frozenset(framework for framework, path in _PATHS.items() if any(map(path.fullmatch, paths)))


def main_framework(frameworks: Collection[Framework]) -> Framework:
    """The framework that describes a process best; `NONE` if `frameworks` is empty."""
    return next((framework for framework in _PATHS if framework in frameworks), Framework.NONE)
