"""The csv receiver: reads files in a thread, and emits their rows as metrics."""

import importlib.util
import threading
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from otel_zernel.batch import Batch, Signal
from otel_zernel.component import Context, Emit, Insist, Receiver
from otel_zernel.errors import CannotStart, Rejected
from otel_zernel.reading.changes import FolderChanges
from otel_zernel.reading.following import POLL, Followed, Follower
from otel_zernel.reading.listing import list_files
from otel_zernel.reading.positions import Positions, open_values
from otel_zernel.reading.problems import Problems
from otel_zernel.reading.sources import Unreadable
from otel_zernel.threads import run_in_thread
from otel_zernel_receivers.csv.config import Columns, CsvReceiverConfig
from otel_zernel_receivers.csv.conversion import BlockConverter
from otel_zernel_receivers.csv.layouts.dcgm import DcgmLayout
from otel_zernel_receivers.csv.layouts.layout import CsvLayout, CustomLongLayout, CustomWideLayout
from otel_zernel_receivers.csv.layouts.wide import WideLayout
from otel_zernel_receivers.csv.reader import CsvFileReader, FileBlock
from otel_zernel_receivers.csv.rejects import Rejects


class _Ended:
    """Marks the end of the batches."""


@dataclass(frozen=True, slots=True)
class _ReadBatch:
    """A batch of rows, and the position in the followed file after it."""

    batch: Batch
    followed: Followed[FileBlock] | None


_ENDED = _Ended()


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
        problems = Problems(self.context.logger)
        positions = Positions(problems, await open_values(self.context, self.config.storage))
        await positions.load()
        follower = self._follower(positions, problems)
        try:
            # All work runs in one thread, which is faster than asyncio's pool: its caches stay warm.
            with ThreadPoolExecutor(1, self.context.id) as thread:
                in_thread = partial(run_in_thread, executor=thread, interrupt=self._stop.set)
                await in_thread(lambda: self._check(problems))
                with closing(self._batches(follower, problems)) as batches:
                    while not isinstance(read := await in_thread(lambda: next(batches, _ENDED)), _Ended):
                        if read is None:
                            await positions.tidy(follower.open_keys)
                            await self.context.clock.sleep(POLL)
                        else:
                            await self._accept(read, insist, positions)
        except Unreadable as problem:
            raise CannotStart(f"{self.context.path}: {problem}") from problem

    async def _accept(self, read: _ReadBatch, emit: Emit, positions: Positions) -> None:
        """Delivers a batch, and only then remembers its position."""
        if read.batch.point_count:
            await self._deliver(read.batch, emit)
        if read.followed:
            await positions.commit(read.followed.key, read.followed.position)

    async def _deliver(self, batch: Batch, emit: Emit) -> None:
        points = batch.point_count  # afterwards the batch belongs to the pipelines
        try:
            await emit(batch)
        except Rejected as rejected:  # the points were counted where they were rejected
            self.context.logger.warning("Downstream rejected %d points: %s", points, rejected)
        if self.config.interval:
            await self.context.clock.sleep(self.config.interval)

    def _check(self, problems: Problems) -> None:
        if not self.config.follow:
            for name in self._reader.expand(self.config.files):
                self._reader.check(name)
            return
        for pattern in self.config.files:
            # A missing or empty file can be followed: a sidecar may start before the container that writes the file.
            listing = list_files([pattern])
            for subject, problem in listing.problems.items():
                problems.warn(subject, str(problem))
            if not listing.files:
                self.context.logger.warning("%s does not exist yet; waiting for it", pattern)
            for name in listing.files:
                self._reader.check_followed(name)

    def _batches(self, follower: Follower[FileBlock], problems: Problems) -> Generator[_ReadBatch | None, None, None]:
        """The batches of all blocks; None while there are no new rows."""
        with closing(self._rejects(problems)) if self.config.rejects else nullcontext() as rejects:
            converter = BlockConverter(self.config, self._layout, self.context, rejects)
            if self.config.follow:
                for followed in follower.pieces():
                    yield _ReadBatch(converter.convert(followed.piece), followed) if followed else None
            while True:
                points = 0
                for block in self._blocks():
                    batch = converter.convert(block) if block else None
                    points += batch.point_count if batch else 0
                    yield _ReadBatch(batch, None) if batch else None
                if not self.config.loop:
                    return
                if not points:
                    yield None  # without this pause, files without a valid row would be read in a busy loop

    def _blocks(self) -> Iterator[FileBlock | None]:
        """The blocks of all files, once."""
        for name in self._reader.expand(self.config.files):
            yield from self._reader.read(name)

    def _follower(self, positions: Positions, problems: Problems) -> Follower[FileBlock]:
        return Follower(
            self.config.files, self._reader.follow, positions, problems, self.context.clock.monotonic, FolderChanges()
        )

    def _rejects(self, problems: Problems) -> Rejects:
        path = self.config.rejects
        try:
            return Rejects(path, self.config.rejects_permissions, problems, self.context.meter)
        except OSError as error:
            raise CannotStart(f"{self.context.path}::rejects: cannot write {path}: {error.strerror}") from error


def _layout(configured: str | Columns) -> CsvLayout:
    if isinstance(configured, Columns):
        return CustomWideLayout(configured) if configured.metrics else CustomLongLayout(configured)
    return DcgmLayout() if configured == "dcgm" else WideLayout()
