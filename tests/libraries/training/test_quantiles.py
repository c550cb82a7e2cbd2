"""Quantiles are those of NumPy."""

import numpy as np
import pytest

from otel_zernel_libraries.training.quantiles import median, quantile


@pytest.mark.parametrize("count", [1, 2, 3, 8])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_quantiles_are_those_of_numpy(count: int, axis: int) -> None:
    values = np.sin(np.arange(60.0 * count)).reshape(count, 3, 20).swapaxes(0, axis)
    for part in (0.0, 0.05, 0.5, 0.9, 1.0):
        np.testing.assert_allclose(quantile(values, part, axis), np.quantile(values, part, axis))
    np.testing.assert_allclose(median(values, axis), np.median(values, axis))
    assert median(np.arange(count)) == (count - 1) / 2
