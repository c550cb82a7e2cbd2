"""The csv receiver: reads files in a thread, and emits their rows as metrics."""

import importlib.util
import threading
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, closing, nullcontext
from functools import partial
from typing import BinaryIO, ClassVar, cast

from otel_zernel.batch import Batch, Signal
from otel_zernel.component import Context, Emit, Insist, Receiver
from otel_zernel.errors import CannotStart, Rejected
from otel_zernel.threads import run_in_thread
from otel_zernel_receivers.csv.config import Columns, CsvReceiverConfig
from otel_zernel_receivers.csv.conversion import BlockConverter
from otel_zernel_receivers.csv.follow import Follower
from otel_zernel_receivers.csv.layouts.dcgm import DcgmLayout
from otel_zernel_receivers.csv.layouts.layout import CsvLayout, CustomLongLayout, CustomWideLayout
from otel_zernel_receivers.csv.layouts.wide import WideLayout
from otel_zernel_receivers.csv.reader import CsvFileReader, FileBlock, Unreadable


class _Ended:
    """Marks the end of the batches."""


_ENDED = _Ended()
POLL = 0.2
"""Seconds between two reads of input that has no new rows."""


class CsvReceiver(Receiver):
    """Reads measurements from CSV files. Ends after the last row, unless it loops or follows."""

    Config = CsvReceiverConfig
    stability = "beta"
    signals: ClassVar[frozenset[Signal]] = frozenset({"metrics"})

    def __init__(self, config: CsvReceiverConfig, context: Context) -> None:
        super().__init__(config, context)
        self._layout = _layout(config.layout)
        self._stop = threading.Event()
        timed = config.timestamps == "recorded"
        self._reader = CsvFileReader(self._layout, timed, config.delimiter, config.batch_size, self._stop)

    @classmethod
    def missing(cls) -> str | None:
        if importlib.util.find_spec("pyarrow"):
            return None
        return "the csv receiver needs pyarrow: pip install 'otel-zernel[csv]'"

    async def run(self, emit: Emit) -> None:
        """Emits batches of rows. Raises `CannotStart` for a file that cannot be read.

        All files are checked before the first batch.
        """
        self._stop.clear()
        insist = Insist(emit, self.context.clock)
        try:
            # All work runs in one thread, which is faster than asyncio's pool: its caches stay warm.
            with ThreadPoolExecutor(1, self.context.id) as thread, closing(self._batches()) as batches:
                in_thread = partial(run_in_thread, executor=thread, interrupt=self._stop.set)
                await in_thread(self._check)
                while not isinstance(batch := await in_thread(lambda: next(batches, _ENDED)), _Ended):
                    if batch is None:
                        await self.context.clock.sleep(POLL)
                    elif batch.point_count:
                        await self._deliver(batch, insist)
        except Unreadable as problem:
            raise CannotStart(f"{self.context.path}: {problem}") from problem

    async def _deliver(self, batch: Batch, emit: Emit) -> None:
        points = batch.point_count  # afterwards the batch belongs to the pipelines
        try:
            await emit(batch)
        except Rejected as rejected:  # the points were counted where they were rejected
            self.context.logger.warning("Downstream rejected %d points: %s", points, rejected)
        if self.config.interval:
            await self.context.clock.sleep(self.config.interval)

    def _check(self) -> None:
        if self.config.follow:
            self._follower().check()
        else:
            for name in self._reader.expand(self.config.files):
                self._reader.check(name)

    def _batches(self) -> Generator[Batch | None, None, None]:
        """The batches of all blocks; None while there are no new rows."""
        with self._rejects() as rejects:
            converter = BlockConverter(self.config, self._layout, self.context, rejects)
            while True:
                points = 0
                for block in self._blocks():
                    batch = converter.convert(block) if block else None
                    points += batch.point_count if batch else 0
                    yield batch
                if not self.config.loop:
                    return
                if not points:
                    yield None  # without this pause, files without a valid row would be read in a busy loop

    def _blocks(self) -> Iterator[FileBlock | None]:
        """The blocks of all files, once."""
        if self.config.follow:
            yield from self._follower().blocks()
        for name in self._reader.expand(self.config.files):
            yield from self._reader.read(name)

    def _follower(self) -> Follower:
        return Follower(self._reader, self.config.files, self.context.clock.monotonic, self.context.logger.warning)

    def _rejects(self) -> AbstractContextManager[BinaryIO | None]:
        path = self.config.rejects
        if path is None:
            return nullcontext()
        try:
            return cast("BinaryIO", path.open("ab"))
        except OSError as error:
            raise CannotStart(f"{self.context.path}::rejects: cannot write {path}: {error.strerror}") from error


def _layout(configured: str | Columns) -> CsvLayout:
    if isinstance(configured, Columns):
        return CustomWideLayout(configured) if configured.metrics else CustomLongLayout(configured)
    return DcgmLayout() if configured == "dcgm" else WideLayout()
