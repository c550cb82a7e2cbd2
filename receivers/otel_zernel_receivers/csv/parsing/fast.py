"""The fast parser: pyarrow parses a whole block. A block with any doubtful line is left to the plain parser."""

from datetime import tzinfo

import numpy as np
from numpy.typing import NDArray

from otel_zernel_libraries.gpu_names.nvidia_smi_cells import MISSING
from otel_zernel_receivers.csv.layouts.layout import ColumnPlan
from otel_zernel_receivers.csv.parsing.lines import MAX_LINE, LineBlock
from otel_zernel_receivers.csv.parsing.rows import Dialect, ParsedRows, TextColumn
from otel_zernel_receivers.csv.parsing.times import parse_joined, parse_time

_SEVERAL_WORDS = ("[N/A]", "[Not Supported]", "[Unknown Error]", "[GPU is lost]")
_NO_VALUES = [
    blank + word
    for text in (*MISSING, *_SEVERAL_WORDS)
    for word in dict.fromkeys((text, text.upper(), text.title(), "NaN"))
    for blank in ("", " ")
]
"""The most common cells without a value. Any other one leaves its block to the plain parser."""


def parse_block(lines: LineBlock, plan: ColumnPlan, dialect: Dialect) -> ParsedRows | None:
    """The block's rows; None unless every line is a valid row."""
    import pyarrow  # takes 50 MB, so that it is loaded only when needed

    data = lines.data
    if lines.longest > MAX_LINE or (b"\r" in data and data.count(b"\r") != data.count(b"\r\n")):
        return None
    try:
        table = _read(data, plan, dialect.delimiter)
    except pyarrow.ArrowException:
        return None
    # There are fewer rows than lines if a quote was not closed in its line, or a line is blank.
    if table.num_rows != len(lines.ends):
        return None
    try:
        times = None if plan.time is None else _times(table, plan, dialect.zone)
        numbers = [_column(table[str(index)], name, index, plan) for name, index in plan.numbers]
        texts = [_texts(table[str(index)]) for _, index in plan.texts]
    except ValueError:
        return None
    if not all(column is not None for column in numbers):
        return None
    return ParsedRows(np.arange(table.num_rows), times, texts, [column for column in numbers if column is not None])


def _read(data: bytes, plan: ColumnPlan, delimiter: str):  # type: ignore[no-untyped-def]  # pyarrow has no annotations
    import pyarrow
    from pyarrow import csv

    texts = [str(index) for index in (*(index for _, index in plan.texts), plan.time, plan.date) if index is not None]
    numbers = [str(index) for _, index in plan.numbers]
    text = pyarrow.dictionary(pyarrow.int32(), pyarrow.string())
    types = dict.fromkeys(texts, text) | dict.fromkeys(numbers, text if plan.layout.quantities else pyarrow.float64())
    names = [str(index) for index in range(plan.width)]
    return csv.read_csv(
        pyarrow.BufferReader(data),
        read_options=csv.ReadOptions(column_names=names, block_size=len(data) + 1, use_threads=False),
        parse_options=csv.ParseOptions(delimiter=delimiter),
        convert_options=csv.ConvertOptions(
            column_types=types,
            include_columns=list(types),
            null_values=_NO_VALUES if plan.sparse else [""],
            check_utf8=not data.isascii(),  # checking the whole block is faster than checking each text
        ),
    )


def _texts(column) -> TextColumn:  # type: ignore[no-untyped-def]
    """Raises `ValueError` for a quote after blanks: it may open a quoted text, which pyarrow does not know."""
    chunk = column.combine_chunks()
    values = chunk.dictionary.to_pylist()
    if any(value[:1] == " " and value.lstrip(" ")[:1] == '"' for value in values):
        raise ValueError("a quote after blanks")
    return TextColumn.stripped(chunk.indices.to_numpy().astype(np.int64), values)


def _times(table, plan: ColumnPlan, zone: tzinfo | None) -> NDArray[np.uint64]:  # type: ignore[no-untyped-def]
    times = _texts(table[str(plan.time)])
    if plan.date is None:
        return np.array([parse_time(text, zone) for text in times.values], np.uint64)[times.codes]
    dates = _texts(table[str(plan.date)])
    pairs, codes = np.unique(dates.codes * len(times.values) + times.codes, return_inverse=True)
    moments = [divmod(pair, len(times.values)) for pair in pairs.tolist()]
    parsed = [parse_joined(dates.values[date], times.values[time], zone) for date, time in moments]
    return np.array(parsed, np.uint64)[codes]


def _column(column, name: str, index: int, plan: ColumnPlan) -> NDArray[np.float64] | None:  # type: ignore[no-untyped-def]
    """As `_numbers`. Raises `ValueError` for a cell that is no quantity."""
    if not plan.layout.quantities:
        return _numbers(column, sparse=plan.sparse)
    texts = _texts(column)
    return np.array([plan.read_number(name, index, text) for text in texts.values], np.float64)[texts.codes]


def _numbers(column, *, sparse: bool) -> NDArray[np.float64] | None:  # type: ignore[no-untyped-def]
    """The column, with NaN for an empty cell; None if a cell is not a finite number.

    If the layout is not `sparse`, an empty cell is no number.
    """
    numbers: NDArray[np.float64] = column.to_numpy()
    empty = column.null_count
    if (empty and not sparse) or np.isfinite(numbers).sum() + empty != len(numbers):
        return None
    return numbers
