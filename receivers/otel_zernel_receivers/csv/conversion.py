"""Converts blocks of lines into batches of points. Bad rows are counted, logged and written to the rejects.

The fast parser is pyarrow, for a whole block. A block with any doubtful line is left to the plain parser.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import tzinfo
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality

from otel_zernel.batch import Batch
from otel_zernel.component import Context
from otel_zernel_libraries.gpu_names.nvidia_smi_cells import MISSING
from otel_zernel_receivers.csv.config import CsvReceiverConfig
from otel_zernel_receivers.csv.declared import MALFORMED_LABELS
from otel_zernel_receivers.csv.encoding import BlockEncoder
from otel_zernel_receivers.csv.headers import CsvHeader, Part
from otel_zernel_receivers.csv.layouts.layout import TELL_APART, ColumnPlan
from otel_zernel_receivers.csv.parsing.lines import MAX_LINE, LineBlock
from otel_zernel_receivers.csv.parsing.plain import parse_lines
from otel_zernel_receivers.csv.parsing.rows import (
    CONFLICTING,
    MESSAGE,
    UNKNOWN_COLUMNS,
    BadRow,
    Dialect,
    ParsedRows,
    TextColumn,
)
from otel_zernel_receivers.csv.parsing.times import parse_joined, parse_time
from otel_zernel_receivers.csv.reader import FileBlock
from otel_zernel_receivers.csv.rejects import Rejects

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


_SMALL = 64 * 1024
"""Up to this size in bytes, a block is parsed by the plain parser.

It is fast enough there. A sidecar that follows a file reads only small blocks, and saves the 50 MB of pyarrow.
"""

_TEMPORALITIES = frozenset({AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE})
"""Counters of files are cumulative."""


_LONGEST_MESSAGE = 200
"""Characters of a message in a file that the log shows."""
_MOST_NOTED = 10_000
"""Files whose problems are remembered, so that each is logged once."""

PlannedRows = tuple[ParsedRows, ColumnPlan]
T = TypeVar("T")


class BlockConverter:
    """Converts the blocks of one run of the receiver. One thread may call `parse` while another one calls `encode`."""

    def __init__(self, config: CsvReceiverConfig, context: Context, rejects: Rejects | None) -> None:
        self._config = config
        self._context = context
        self._rejects = rejects
        self._encoder = BlockEncoder()
        self._last_ns = 0
        """The latest time of reading that was assigned to a row."""
        self._conflicting: set[str] = set()
        """Files with two values of one series at one time."""
        self._incomplete: set[tuple[str, str]] = set()
        """Files, and their headers that lack columns."""
        self._warned: set[tuple[str, str]] = set()
        """Files, and their headers of which the layout warns."""
        self._malformed_labels = context.meter.create_counter(*MALFORMED_LABELS.counter)

    def convert(self, block: FileBlock) -> Batch:
        """The points of the valid rows in the block that belong to this shard."""
        return self.encode(block, self.parse(block))

    def parse(self, block: FileBlock) -> list[PlannedRows]:
        """The valid rows of the block that belong to this shard, by their header. Reports the others."""
        parsed, bad = list[PlannedRows](), list[BadRow]()
        count, index = self._config.shard.count, self._config.shard.index
        for part in block.parts:
            rows, of_part = self._parse(part)
            if count > 1:
                rows = rows and rows.filtered((block.index + rows.lines) % count == index)
                of_part = [row for row in of_part if (block.index + row.line) % count == index]
            bad += of_part
            if rows is not None and part.header.plan:
                parsed.append((rows, part.header.plan))
                self._report_missing(block.file, part.header)
        if bad:
            self._report(block, sorted(bad, key=lambda row: row.line))
        return parsed

    def _parse(self, part: Part) -> tuple[ParsedRows | None, list[BadRow]]:
        """The rows of a part, and its bad rows; their lines are those of the block."""
        plan, bad = part.header.plan, list[BadRow]()
        if plan is None:
            lines = [line.rstrip(b"\r\n") for line in part.lines]
            problem = f"its header {part.header.problem}"
            bad = [BadRow(n, UNKNOWN_COLUMNS, raw[:MAX_LINE], problem) for n, raw in enumerate(lines) if raw.strip()]
            return None, _placed(bad, part)
        dialect = Dialect(part.header.delimiter, self._config.zone)
        rows = parse_block(part.lines, plan, dialect) if len(part.lines.data) > _SMALL else None
        if rows is None:
            rows, bad = parse_lines(part.lines, plan, dialect)
        if part.places is not None:
            rows = replace(rows, lines=part.places[rows.lines])
        return rows, _placed(bad, part)

    def encode(self, block: FileBlock, parsed: Sequence[PlannedRows]) -> Batch:
        """The points of the rows of a block."""
        metrics, count = [], 0
        for rows, plan in parsed:
            times = self._reading_times(len(rows)) if rows.times is None else rows.times
            encoded = self._encoder.encode(rows, times, plan)
            metrics.append(encoded.metrics)
            count += encoded.points
            if encoded.malformed_labels:
                self._malformed_labels.add(encoded.malformed_labels)
            if encoded.conflicting_rows:
                self._context.drop(encoded.conflicting_rows, CONFLICTING)
            if encoded.conflict and block.file not in self._conflicting:
                self._note(self._conflicting, block.file)
                self._context.logger.warning("%s: %s", block.file, encoded.conflict)
        return Batch.encoded("metrics", b"".join(metrics), count, temporalities=_TEMPORALITIES)

    def _report_missing(self, file: str, header: CsvHeader) -> None:
        """Warns once of columns that a later header does not have, and of what else its rows lack."""
        if header.plan and header.plan.warnings and (file, header.line) not in self._warned:
            self._note(self._warned, (file, header.line))
            for warning in header.plan.warnings:
                self._context.logger.warning("%s: %s", file, warning)
                if TELL_APART in warning:  # says enough about values that conflict
                    self._note(self._conflicting, file)
        if header.problem and (file, header.line) not in self._incomplete:
            self._note(self._incomplete, (file, header.line))
            self._context.logger.warning("%s: a later header %s; its other columns are read", file, header.problem)

    @staticmethod
    def _note(noted: set[T], subject: T) -> None:
        if len(noted) >= _MOST_NOTED:
            noted.clear()
        noted.add(subject)

    def _report(self, block: FileBlock, bad: list[BadRow]) -> None:
        for reason, count in Counter(row.reason for row in bad).items():
            self._context.drop(count, reason)
        for row in bad:
            self._warn(f"{block.file}:{block.lines.first + row.line}", row)
        if self._rejects:
            self._rejects.write([row.raw for row in bad])

    def _warn(self, place: str, row: BadRow) -> None:
        if row.reason == MESSAGE:
            text = row.raw[:_LONGEST_MESSAGE].decode(errors="replace").strip()
            self._context.logger.warning("%s: nvidia-smi reports: %s", place, text)
        else:
            detail = f": {row.detail}" if row.detail else ""
            self._context.logger.warning("%s: bad row: %s%s", place, row.reason, detail)

    def _reading_times(self, count: int) -> NDArray[np.uint64]:
        """The current time for `count` rows, in ns, 1 ns apart and later than all times before."""
        start = max(self._context.clock.time_ns(), self._last_ns + 1)
        self._last_ns = start + count - 1
        return np.arange(start, start + count, dtype=np.uint64)


def _placed(bad: list[BadRow], part: Part) -> list[BadRow]:
    """The bad rows with their lines in the block."""
    return bad if part.places is None else [replace(row, line=int(part.places[row.line])) for row in bad]
