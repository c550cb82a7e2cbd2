"""The fast parser: pyarrow parses a whole block. A block with any doubtful line is left to the plain parser."""

from datetime import tzinfo

import numpy as np
from numpy.typing import NDArray

from otel_zernel_receivers.csv.layouts.layout import ColumnPlan
from otel_zernel_receivers.csv.parsing.lines import MAX_LINE, LineBlock
from otel_zernel_receivers.csv.parsing.rows import Dialect, ParsedRows, TextColumn
from otel_zernel_receivers.csv.parsing.times import parse_time


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
        times = None if plan.time is None else _times(_texts(table[str(plan.time)]), dialect.zone)
        numbers = [_column(table[str(index)], name, plan) for name, index in plan.numbers]
    except ValueError:
        return None
    if not all(column is not None for column in numbers):
        return None
    texts = [_texts(table[str(index)]) for _, index in plan.texts]
    return ParsedRows(np.arange(table.num_rows), times, texts, [column for column in numbers if column is not None])


def _read(data: bytes, plan: ColumnPlan, delimiter: str):  # type: ignore[no-untyped-def]  # pyarrow has no annotations
    import pyarrow
    from pyarrow import csv

    texts = [str(index) for _, index in plan.texts] + ([str(plan.time)] if plan.time is not None else [])
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
            null_values=[""],
            check_utf8=not data.isascii(),  # checking the whole block is faster than checking each text
        ),
    )


def _texts(column) -> TextColumn:  # type: ignore[no-untyped-def]
    chunk = column.combine_chunks()
    return TextColumn(chunk.indices.to_numpy().astype(np.int64), chunk.dictionary.to_pylist())


def _times(texts: TextColumn, zone: tzinfo | None) -> NDArray[np.uint64]:
    return np.array([parse_time(value, zone) for value in texts.values], np.uint64)[texts.codes]


def _column(column, name: str, plan: ColumnPlan) -> NDArray[np.float64] | None:  # type: ignore[no-untyped-def]
    """As `_numbers`. Raises `ValueError` for a cell that is no quantity."""
    if not plan.layout.quantities:
        return _numbers(column, sparse=plan.sparse)
    texts = _texts(column)
    return np.array([plan.layout.read_number(name, value) for value in texts.values], np.float64)[texts.codes]


def _numbers(column, *, sparse: bool) -> NDArray[np.float64] | None:  # type: ignore[no-untyped-def]
    """The column, with NaN for an empty cell; None if a cell is not a finite number.

    If the layout is not `sparse`, an empty cell is no number.
    """
    numbers: NDArray[np.float64] = column.to_numpy()
    empty = column.null_count
    if (empty and not sparse) or np.isfinite(numbers).sum() + empty != len(numbers):
        return None
    return numbers
