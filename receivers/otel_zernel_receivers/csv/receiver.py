"""The csv receiver."""

import asyncio
import importlib.util
import threading
from collections.abc import AsyncGenerator, Generator, Iterator
from contextlib import AbstractContextManager, aclosing, nullcontext
from typing import BinaryIO, ClassVar, cast

from otel_zernel.batch import Batch
from otel_zernel.component import Context, Emit, Insist, Receiver, Signal
from otel_zernel.errors import CannotStart, Rejected
from otel_zernel_receivers.csv.config import Columns, CsvConfig
from otel_zernel_receivers.csv.conversion import Conversion, Parsed
from otel_zernel_receivers.csv.dcgm import DcgmLayout
from otel_zernel_receivers.csv.follow import Follower
from otel_zernel_receivers.csv.layouts import Layout, OwnLongLayout, OwnWideLayout
from otel_zernel_receivers.csv.reader import Block, Reader, Unreadable
from otel_zernel_receivers.csv.wide import WideLayout


class _Ended:
    """What comes after the last block."""


_ENDED = _Ended()
POLL = 0.2
"""Seconds between two looks at input that may grow."""


class CsvReceiver(Receiver):
    """Reads measurements from CSV files. Ends after the last row, unless it loops or follows."""

    Config = CsvConfig
    stability = "beta"
    signals: ClassVar[frozenset[Signal]] = frozenset({"metrics"})

    def __init__(self, config: CsvConfig, context: Context) -> None:
        super().__init__(config, context)
        self._layout = _layout(config.layout)
        self._stop = threading.Event()
        timed = config.timestamps == "recorded"
        self._reader = Reader(self._layout, timed, config.delimiter, config.batch_size, self._stop)

    @classmethod
    def missing(cls) -> str | None:
        if importlib.util.find_spec("pyarrow"):
            return None
        return "the csv receiver needs pyarrow: pip install 'otel-zernel[csv]'"

    async def run(self, emit: Emit) -> None:
        """Emits batches of rows. Raises `CannotStart` for a file that cannot be read; before any batch, if it is so
        at the start."""
        self._stop.clear()
        insist = Insist(emit, self.context.clock)
        conversion = Conversion(self.config, self._layout, self.context)
        try:
            await asyncio.to_thread(self._check)
            async with aclosing(self._one_ahead(conversion)) as blocks:
                async for block in blocks:
                    if block is None:
                        await self.context.clock.sleep(POLL)
                    else:
                        await self._deliver(await asyncio.to_thread(conversion.encode, block), insist)
        except Unreadable as problem:
            raise CannotStart(f"{self.context.path}: {problem}") from problem

    async def _one_ahead(self, conversion: Conversion) -> AsyncGenerator[Parsed | None, None]:
        """Reads and parses in a thread, a block ahead of what is being encoded and delivered."""
        blocks = self._parsed(conversion)
        coming = asyncio.ensure_future(asyncio.to_thread(next, blocks, _ENDED))
        try:
            while not isinstance(block := await asyncio.shield(coming), _Ended):
                coming = asyncio.ensure_future(asyncio.to_thread(next, blocks, _ENDED))
                yield block
        finally:
            self._stop.set()
            await asyncio.wait([coming])  # soon: a block takes milliseconds, and `stop` ends all waiting
            if not coming.cancelled():
                coming.exception()
            blocks.close()

    async def _deliver(self, batch: Batch, emit: Emit) -> None:
        if not batch.point_count:
            return
        try:
            await emit(batch)
        except Rejected as rejected:  # who rejected it has counted it
            self.context.logger.warning("downstream rejected %d points: %s", batch.point_count, rejected)
        if self.config.interval:
            await self.context.clock.sleep(self.config.interval)

    def _check(self) -> None:
        if self.config.follow:
            self._follower().check()
        else:
            for name in self._reader.expand(self.config.files):
                self._reader.check(name)

    def _parsed(self, conversion: Conversion) -> Generator[Parsed | None, None, None]:
        """Reads and parses block by block; None when there is nothing now."""
        with self._rejects() as rejects:
            for block in self._blocks():
                yield conversion.parse(block, rejects) if block else None

    def _blocks(self) -> Iterator[Block | None]:
        if self.config.follow:
            yield from self._follower().blocks()
        while True:
            for name in self._reader.expand(self.config.files):
                yield from self._reader.read(name)
            if not self.config.loop:
                return
            yield None  # files without rows must not make it spin

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


def _layout(configured: str | Columns) -> Layout:
    if isinstance(configured, Columns):
        return OwnWideLayout(configured) if configured.metrics else OwnLongLayout(configured)
    return DcgmLayout() if configured == "dcgm" else WideLayout()
