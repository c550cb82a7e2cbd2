"""A block of lines as columns: what the fast and the plain parser both make."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Texts:
    """A column of texts: `values[codes[i]]` is the text of row i."""

    codes: NDArray[np.int64]
    values: Sequence[str]


@dataclass(frozen=True, slots=True)
class Rows:
    """The good rows of a block, n of them, column by column."""

    lines: NDArray[np.int64]
    """In which line of the block each stood, from 0; shape (n,)."""
    times: NDArray[np.uint64] | None
    """ns, shape (n,); None where the plan has no time."""
    texts: Sequence[Texts]
    numbers: Sequence[NDArray[np.float64]]
    """A column each, shape (n,); NaN where the cell is empty."""

    def __len__(self) -> int:
        return len(self.lines)

    def only(self, chosen: NDArray[np.bool_]) -> "Rows":
        """The rows where `chosen`, shape (n,), is true."""
        return Rows(
            self.lines[chosen],
            None if self.times is None else self.times[chosen],
            [Texts(text.codes[chosen], text.values) for text in self.texts],
            [numbers[chosen] for numbers in self.numbers],
        )


@dataclass(frozen=True, slots=True)
class BadRow:
    """A line that is no row, and why."""

    line: int
    """In the block, from 0."""
    reason: str
    raw: bytes
    """Without its line end."""
