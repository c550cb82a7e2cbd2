"""Quantiles of arrays. Those of NumPy import numpy.ma, which takes 1.4 MB."""

from typing import Any

import numpy as np
from numpy.typing import NDArray


def quantile(values: NDArray[Any], part: float, axis: int = 0) -> NDArray[np.float64]:
    """The quantile along an axis, between the two nearest values. Without values, a ValueError."""
    below, beyond = divmod(part * (values.shape[axis] - 1), 1)
    at = int(below), min(int(below) + 1, values.shape[axis] - 1)
    low, high = np.moveaxis(np.take(np.partition(values, at, axis), at, axis), axis, 0)
    between: NDArray[np.float64] = low + (high - low) * beyond
    return between


def median(values: NDArray[Any], axis: int = 0) -> NDArray[np.float64]:
    """The median along an axis. Without values, a ValueError."""
    return quantile(values, 0.5, axis)
