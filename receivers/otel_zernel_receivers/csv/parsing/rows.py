"""Parsed rows as columns. Both parsers, fast and plain, return them."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, tzinfo

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Dialect:
    """How the cells of a file are separated and read."""

    delimiter: str = ","
    zone: tzinfo | None = UTC
    """The zone of times without one; None for that of this machine."""


@dataclass(frozen=True, slots=True)
class TextColumn:
    """A column of texts: the text of row i is `values[codes[i]]`."""

    codes: NDArray[np.int64]
    values: Sequence[str]
    """Without blanks around them. No two are equal."""

    @classmethod
    def stripped(cls, codes: NDArray[np.int64], values: Sequence[str]) -> "TextColumn":
        """The column of these texts, without blanks around them: nvidia-smi writes one after each comma."""
        texts = [value.strip() for value in values]
        if texts == values:
            return cls(codes, values)
        numbers = dict(zip(dict.fromkeys(texts), range(len(texts)), strict=False))
        if len(numbers) < len(texts):
            codes = np.array([numbers[text] for text in texts], np.int64)[codes]
        return cls(codes, list(numbers))


@dataclass(frozen=True, slots=True)
class ParsedRows:
    """The n valid rows of a block, column by column."""

    lines: NDArray[np.int64]
    """The index of each row's line in the block, from 0; shape (n,)."""
    times: NDArray[np.uint64] | None
    """In ns since 1970, shape (n,); None if the plan has no time column."""
    texts: Sequence[TextColumn]
    numbers: Sequence[NDArray[np.float64]]
    """One array of shape (n,) per number column; NaN for a cell without a value."""

    def __len__(self) -> int:
        return len(self.lines)

    def filtered(self, selected: NDArray[np.bool_]) -> "ParsedRows":
        """The rows for which `selected`, shape (n,), is true."""
        return ParsedRows(
            self.lines[selected],
            None if self.times is None else self.times[selected],
            [TextColumn(text.codes[selected], text.values) for text in self.texts],
            [numbers[selected] for numbers in self.numbers],
        )


@dataclass(frozen=True, slots=True)
class BadRow:
    """A line that is not a valid row."""

    line: int
    """The index of the line in the block, from 0."""
    reason: str
    raw: bytes
    """The line without its line end."""
    detail: str = ""
    """The column and its cell, for the log."""


MESSAGE = "message of nvidia-smi"
"""The reason of a bad row that is a message between the rows."""
UNKNOWN_COLUMNS = "unknown columns"
"""The reason of a bad row below a header that lacks a required column."""
CONFLICTING = "conflicting values"
"""The reason of a row with another value for a series and a time than an earlier row."""
