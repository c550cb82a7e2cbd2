"""A block of lines becomes a batch of points; what is bad in it is counted, logged and kept."""

from collections import Counter
from dataclasses import dataclass
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from otel_zernel.batch import Batch
from otel_zernel.component import Context
from otel_zernel_receivers.csv.config import CsvConfig
from otel_zernel_receivers.csv.encoding import Encoder
from otel_zernel_receivers.csv.fast import parse_block
from otel_zernel_receivers.csv.layouts import Layout, Plan
from otel_zernel_receivers.csv.plain import parse_lines
from otel_zernel_receivers.csv.reader import Block
from otel_zernel_receivers.csv.rows import BadRow, Rows


@dataclass(frozen=True, slots=True)
class Parsed:
    """The good rows of a block."""

    rows: Rows
    plan: Plan


class Conversion:
    """From lines to points, for one run of the receiver. `parse` and `encode` may each be busy in a thread."""

    def __init__(self, config: CsvConfig, layout: Layout, context: Context) -> None:
        self._config = config
        self._context = context
        self._encoder = Encoder(layout)
        self._last_ns = 0
        self._malformed_labels = context.meter.create_counter(
            "zernel.csv.malformed_labels", "{point}", "Points whose labels_raw could not be read, sent without labels"
        )

    def parse(self, block: Block, rejects: BinaryIO | None) -> Parsed:
        """The block's rows, as far as they are good and this shard's. Bad ones go to the log and to `rejects`."""
        bad: list[BadRow] = []
        rows = parse_block(block.lines, block.plan, self._config.delimiter)
        if rows is None:
            rows, bad = parse_lines(block.lines, block.plan, self._config.delimiter)
        shard = self._config.shard
        if shard.count > 1:
            rows = rows.only((block.index + rows.lines) % shard.count == shard.index)
            bad = [row for row in bad if (block.index + row.line) % shard.count == shard.index]
        if bad:
            self._report(block, bad, rejects)
        return Parsed(rows, block.plan)

    def encode(self, parsed: Parsed) -> Batch:
        """A point for every number in the rows."""
        rows = parsed.rows
        times = self._now(len(rows)) if rows.times is None else rows.times
        encoded = self._encoder.encode(rows, times, parsed.plan)
        if encoded.flawed:
            self._malformed_labels.add(encoded.flawed)
        return Batch.encoded(metrics=encoded.metrics, point_count=encoded.points)

    def _report(self, block: Block, bad: list[BadRow], rejects: BinaryIO | None) -> None:
        for reason, count in Counter(row.reason for row in bad).items():
            self._context.drop(count, reason)
        for row in bad:
            self._context.logger.warning("%s:%d: bad row: %s", block.file, block.lines.first + row.line, row.reason)
        if rejects:
            rejects.write(b"".join(row.raw + b"\n" for row in bad))
            rejects.flush()

    def _now(self, count: int) -> NDArray[np.uint64]:
        """The time for each of `count` rows: a ns apart, and later than all before."""
        start = max(self._context.clock.time_ns(), self._last_ns + 1)
        self._last_ns = start + count - 1
        return np.arange(start, start + count, dtype=np.uint64)
