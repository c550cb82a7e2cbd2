"""A block of lines becomes a batch of points; what is bad in it is counted, logged and kept."""

from collections import Counter
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from otel_zernel.batch import Batch
from otel_zernel.component import Context
from otel_zernel_receivers.csv.config import CsvConfig
from otel_zernel_receivers.csv.encoding import Encoder
from otel_zernel_receivers.csv.fast import parse_block
from otel_zernel_receivers.csv.layouts.layout import Layout
from otel_zernel_receivers.csv.plain import parse_lines
from otel_zernel_receivers.csv.reader import Block
from otel_zernel_receivers.csv.rows import BadRow, Rows

_SMALL = 64 * 1024
"""Bytes of a block up to which the plain parser is quick enough. A sidecar that follows a file never has more at once,
and saves the 50 MB of pyarrow."""


class Conversion:
    """From lines to points, for one run of the receiver. Called from one thread at a time."""

    def __init__(self, config: CsvConfig, layout: Layout, context: Context, rejects: BinaryIO | None) -> None:
        self._config = config
        self._context = context
        self._rejects = rejects
        self._encoder = Encoder(layout)
        self._last_ns = 0
        self._malformed_labels = context.meter.create_counter(
            "zernel.csv.malformed_labels", "{point}", "Points whose labels_raw could not be read, sent without labels"
        )

    def batch(self, block: Block) -> Batch:
        """The points of the block's rows, as far as these are good and this shard's."""
        rows, bad = self._parse(block)
        if bad:
            self._report(block, bad)
        times = self._now(len(rows)) if rows.times is None else rows.times
        encoded = self._encoder.encode(rows, times, block.plan)
        if encoded.flawed:
            self._malformed_labels.add(encoded.flawed)
        return Batch.encoded(metrics=encoded.metrics, point_count=encoded.points)

    def _parse(self, block: Block) -> tuple[Rows, list[BadRow]]:
        bad: list[BadRow] = []
        large = len(block.lines.data) > _SMALL
        rows = parse_block(block.lines, block.plan, self._config.delimiter) if large else None
        if rows is None:
            rows, bad = parse_lines(block.lines, block.plan, self._config.delimiter)
        count, index = self._config.shard.count, self._config.shard.index
        if count > 1:
            rows = rows.only((block.index + rows.lines) % count == index)
            bad = [row for row in bad if (block.index + row.line) % count == index]
        return rows, bad

    def _report(self, block: Block, bad: list[BadRow]) -> None:
        for reason, count in Counter(row.reason for row in bad).items():
            self._context.drop(count, reason)
        for row in bad:
            self._context.logger.warning("%s:%d: bad row: %s", block.file, block.lines.first + row.line, row.reason)
        if self._rejects:
            self._rejects.write(b"".join(row.raw + b"\n" for row in bad))
            self._rejects.flush()

    def _now(self, count: int) -> NDArray[np.uint64]:
        """The time for each of `count` rows: a ns apart, and later than all before."""
        start = max(self._context.clock.time_ns(), self._last_ns + 1)
        self._last_ns = start + count - 1
        return np.arange(start, start + count, dtype=np.uint64)
