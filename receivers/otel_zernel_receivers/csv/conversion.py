"""Converts blocks of lines into batches of points. Bad rows are counted, logged and written to the rejects."""

from collections import Counter

import numpy as np
from numpy.typing import NDArray
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality

from otel_zernel.batch import Batch
from otel_zernel.component import Context
from otel_zernel_receivers.csv.config import CsvReceiverConfig
from otel_zernel_receivers.csv.declared import MALFORMED_LABELS
from otel_zernel_receivers.csv.encoding.encoding import BlockEncoder
from otel_zernel_receivers.csv.layouts.layout import ColumnPlan
from otel_zernel_receivers.csv.parsing.fast import parse_block
from otel_zernel_receivers.csv.parsing.plain import parse_lines
from otel_zernel_receivers.csv.parsing.rows import MESSAGE, BadRow, Dialect, ParsedRows
from otel_zernel_receivers.csv.reader import FileBlock
from otel_zernel_receivers.csv.rejects import Rejects

_SMALL = 64 * 1024
"""Up to this size in bytes, a block is parsed by the plain parser.

It is fast enough there. A sidecar that follows a file reads only small blocks, and saves the 50 MB of pyarrow.
"""

_TEMPORALITIES = frozenset({AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE})
"""Counters of files are cumulative."""


_LONGEST_MESSAGE = 200
"""Characters of a message in a file that the log shows."""


class BlockConverter:
    """Converts the blocks of one run of the receiver. One thread may call `parse` while another one calls `encode`."""

    def __init__(self, config: CsvReceiverConfig, context: Context, rejects: Rejects | None) -> None:
        self._config = config
        self._context = context
        self._rejects = rejects
        self._dialect = Dialect(config.delimiter, config.zone)
        self._encoder = BlockEncoder()
        self._last_ns = 0
        """The latest time of reading that was assigned to a row."""
        self._malformed_labels = context.meter.create_counter(*MALFORMED_LABELS.counter)

    def convert(self, block: FileBlock) -> Batch:
        """The points of the valid rows in the block that belong to this shard."""
        return self.encode(self.parse(block), block.plan)

    def parse(self, block: FileBlock) -> ParsedRows:
        """The valid rows of the block that belong to this shard. Reports the others."""
        bad: list[BadRow] = []
        large = len(block.lines.data) > _SMALL
        rows = parse_block(block.lines, block.plan, self._dialect) if large else None
        if rows is None:
            rows, bad = parse_lines(block.lines, block.plan, self._dialect, block.header.raw)
        count, index = self._config.shard.count, self._config.shard.index
        if count > 1:
            rows = rows.filtered((block.index + rows.lines) % count == index)
            bad = [row for row in bad if (block.index + row.line) % count == index]
        if bad:
            self._report(block, bad)
        return rows

    def encode(self, rows: ParsedRows, plan: ColumnPlan) -> Batch:
        """The points of the rows."""
        times = self._reading_times(len(rows)) if rows.times is None else rows.times
        encoded = self._encoder.encode(rows, times, plan)
        if encoded.malformed_labels:
            self._malformed_labels.add(encoded.malformed_labels)
        return Batch.encoded(metrics=encoded.metrics, point_count=encoded.points, temporalities=_TEMPORALITIES)

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
            self._context.logger.warning("%s: bad row: %s", place, row.reason)

    def _reading_times(self, count: int) -> NDArray[np.uint64]:
        """The current time for `count` rows, in ns, 1 ns apart and later than all times before."""
        start = max(self._context.clock.time_ns(), self._last_ns + 1)
        self._last_ns = start + count - 1
        return np.arange(start, start + count, dtype=np.uint64)
