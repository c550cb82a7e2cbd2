"""Cells with another value for a time and a series than an earlier cell: rows of GPUs that no column tells apart."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from otel_zernel_receivers.csv.encoding.known_series import KnownRows


@dataclass(frozen=True, slots=True)
class Runs:
    """Runs of consecutive cells of one series. Run i has `lengths[i]` cells, from `starts[i]` on."""

    series: NDArray[np.int64]
    """The number of each run's series in `KnownRows`."""
    starts: NDArray[np.int64]
    lengths: NDArray[np.int64]


def find_conflicts(
    times: NDArray[np.uint64], values: NDArray[np.float64], runs: Runs, known: KnownRows
) -> NDArray[np.bool_]:
    """The conflicting cells, shape (columns, n). Remembers the newest cell of each series for the next block.

    `times` are those of the ordered rows, shape (n,), `values` those of each number column, shape (columns, n).
    """
    conflicting = np.zeros(values.shape, np.bool_)
    if not known.plan.layout.name:  # the user of a custom layout has named the columns that identify
        return conflicting
    starts = runs.starts[: len(runs.starts) // len(values)]
    lasts = np.append(starts[1:], len(times)) - 1
    series = runs.series.reshape(len(values), -1)
    is_later = np.zeros(len(times), np.bool_)  # rows with the time of the row before
    is_later[1:] = times[1:] == times[:-1]
    is_later[starts] = False
    moments = np.cumsum(~is_later) - 1
    for column, cells in enumerate(values):
        table = known.table[series[column]]
        is_first = np.zeros(len(times), np.bool_)
        is_first[starts] = table["last_time"] == times[starts]
        first = cells  # the value of each moment
        if is_later.any() or is_first.any():
            first = np.full(moments[-1] + 1, np.nan)
            filled = np.flatnonzero(~np.isnan(cells))[::-1]
            first[moments[filled]] = cells[filled]  # the first cell is written last
            goes_on = is_first[starts] & ~np.isnan(table["last_value"])
            first[moments[starts[goes_on]]] = table["last_value"][goes_on]
            conflicting[column, filled] = cells[filled] != first[moments[filled]]
        known.table["last_time"][series[column]] = times[lasts]
        known.table["last_value"][series[column]] = first[moments[lasts]]
    return conflicting
