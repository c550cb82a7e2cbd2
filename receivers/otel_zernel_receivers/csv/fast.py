"""The fast parser: a block at once, by pyarrow. It leaves every block that is not plainly good to the plain parser."""

import numpy as np
from numpy.typing import NDArray

from otel_zernel_receivers.csv.layouts.layout import Plan
from otel_zernel_receivers.csv.lines import MAX_LINE, Lines
from otel_zernel_receivers.csv.rows import Rows, Texts
from otel_zernel_receivers.csv.times import parse_time


def parse_block(lines: Lines, plan: Plan, delimiter: str) -> Rows | None:
    """The block's rows; None unless every line is a good row."""
    import pyarrow  # 50 MB: only those who read CSV pay

    data = lines.data
    if lines.longest > MAX_LINE or (b"\r" in data and data.count(b"\r") != data.count(b"\r\n")):
        return None
    try:
        table = _read(data, plan, delimiter)
    except pyarrow.ArrowException:
        return None
    # Fewer rows than lines: a quote was not closed in its line, or a line is blank.
    if table.num_rows != len(lines.ends):
        return None
    try:
        times = None if plan.time is None else _times(_texts(table[str(plan.time)]))
    except ValueError:
        return None
    numbers = [_numbers(table[str(index)], sparse=plan.sparse) for _, index in plan.numbers]
    if not all(column is not None for column in numbers):
        return None
    texts = [_texts(table[str(index)]) for _, index in plan.texts]
    return Rows(np.arange(table.num_rows), times, texts, [column for column in numbers if column is not None])


def _read(data: bytes, plan: Plan, delimiter: str):  # type: ignore[no-untyped-def]  # pyarrow has no annotations
    import pyarrow
    from pyarrow import csv

    texts = [str(index) for _, index in plan.texts] + ([str(plan.time)] if plan.time is not None else [])
    numbers = [str(index) for _, index in plan.numbers]
    text = pyarrow.dictionary(pyarrow.int32(), pyarrow.string())
    types = dict.fromkeys(texts, text) | dict.fromkeys(numbers, pyarrow.float64())
    names = [str(index) for index in range(plan.width)]
    return csv.read_csv(
        pyarrow.BufferReader(data),
        read_options=csv.ReadOptions(column_names=names, block_size=len(data) + 1, use_threads=False),
        parse_options=csv.ParseOptions(delimiter=delimiter),
        convert_options=csv.ConvertOptions(
            column_types=types,
            include_columns=list(types),
            null_values=[""],
            check_utf8=not data.isascii(),  # which is known at once, and then each text need not be looked at
        ),
    )


def _texts(column) -> Texts:  # type: ignore[no-untyped-def]
    chunk = column.combine_chunks()
    return Texts(chunk.indices.to_numpy().astype(np.int64), chunk.dictionary.to_pylist())


def _times(texts: Texts) -> NDArray[np.uint64]:
    return np.array([parse_time(value) for value in texts.values], np.uint64)[texts.codes]


def _numbers(column, *, sparse: bool) -> NDArray[np.float64] | None:  # type: ignore[no-untyped-def]
    """The column with NaN where it is empty; None if there is anything but finite numbers."""
    numbers: NDArray[np.float64] = column.to_numpy()
    empty = column.null_count
    if (empty and not sparse) or np.isfinite(numbers).sum() + empty != len(numbers):
        return None
    return numbers
