"""Reads files in a thread, and emits their rows as metrics."""

import asyncio
import threading
from collections.abc import Generator, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any, TypeVar

from otel_zernel.batch import Batch
from otel_zernel.component import Context, Emit, Insist
from otel_zernel.errors import CannotStart, Rejected
from otel_zernel.runtime.threads import run_in_thread
from otel_zernel_libraries.files.changes import FolderChanges
from otel_zernel_libraries.files.following import POLL, Follower
from otel_zernel_libraries.files.growing import GrowingFile
from otel_zernel_libraries.files.listing import list_files
from otel_zernel_libraries.files.positions import Position, Positions, open_values
from otel_zernel_libraries.files.sources import (
    STDIN,
    Problems,
    ReadBytes,
    Unreadable,
    is_stream,
    open_source,
    reading_errors,
)
from otel_zernel_receivers.csv.config import CsvReceiverConfig
from otel_zernel_receivers.csv.conversion import BlockConverter, PlannedRows
from otel_zernel_receivers.csv.reader import CsvFileReader, FileBlock, is_place, layouts_for
from otel_zernel_receivers.csv.rejects import Rejects

_COMPRESSED = "compressed"
"""The key in `Position.resume` for the size of a compressed or UTF-16 file. Its fingerprint covers these bytes."""


@dataclass(frozen=True, slots=True)
class ReadBlock:
    """A block, and the position after it: what a restart needs to read none of its rows again."""

    block: FileBlock
    key: str = ""
    """The file's identity, for `Positions.commit`."""
    position: Position | None = None
    """None for a pipe, which can be read only once."""


@dataclass(frozen=True, slots=True)
class Replay:
    """Reads files to their present end. Its method blocks and raises `Unreadable`."""

    reader: CsvFileReader
    positions: Positions | None
    """None to read every file from its beginning."""

    def blocks(self, name: str) -> Generator[ReadBlock | None, None, None]:
        """The blocks of a file after its position; None while a pipe has no more."""
        with reading_errors(name):
            if is_stream(name):
                yield from (ReadBlock(block) if block else None for block in self.reader.read(name))
                return
            file = GrowingFile(name)
        with closing(file), reading_errors(name):
            known = self.positions.get(file.key) if self.positions else None
            yield from self._encoded(file, known) if file.encoding else self._plain(file, known)

    def _plain(self, file: GrowingFile, known: Position | None) -> Iterator[ReadBlock]:
        if known and (_COMPRESSED in known.resume or not is_place(known.resume) or not file.go_on(known)):
            known = None
        file.end()
        for block in self.reader.go_on(file.name, file.read, file.offset, known.resume if known else None):
            if block:
                end = min(block.end, file.offset)
                yield ReadBlock(block, file.key, Position(end, file.fingerprint(end), block.resume))

    def _encoded(self, file: GrowingFile, known: Position | None) -> Iterator[ReadBlock]:
        """The position counts decoded bytes. They are decoded again and skipped."""
        size = Path(file.name).stat().st_size
        if known and not _is_same(file, size, known.resume, known.fingerprint):
            known = None
        fingerprint = file.fingerprint(size)
        offset, resume = (known.offset, known.resume) if known else (0, None)
        with closing(open_source(file.name, self.reader.stop)) as source:
            for block in self.reader.go_on(file.name, _after(source.read, offset), offset, resume):
                if block:
                    place = {**block.resume, _COMPRESSED: size}
                    yield ReadBlock(block, file.key, Position(block.end, fingerprint, place))


def _is_same(file: GrowingFile, size: int, resume: Mapping[str, Any], fingerprint: str) -> bool:
    """Whether the encoded file begins with the bytes that it had when the position was stored."""
    before = resume.get(_COMPRESSED)
    return (
        is_place(resume) and isinstance(before, int) and 0 < before <= size and file.fingerprint(before) == fingerprint
    )


def _after(read: ReadBytes, offset: int) -> ReadBytes:
    """Reads what follows the first `offset` bytes."""
    left = offset

    def rest(size: int) -> bytes | None:
        nonlocal left
        while (data := read(size)) and left:
            skipped, left = left, max(0, left - len(data))
            if len(data) > skipped:
                return data[skipped:]
        return data

    return rest


T = TypeVar("T")

_ITEMS = 2
"""The most items that a stage is ahead of the next one."""


@dataclass(frozen=True, slots=True)
class _End:
    """The last entry of the queue."""

    error: BaseException | None = None


def ahead(source: Generator[T, None, None], name: str) -> Generator[T, None, None]:
    """The items of `source`, which runs in a thread with this name. Its exception is raised here.

    Closing the result closes `source` and waits for the item that it works on.
    """
    items: SimpleQueue[T | _End] = SimpleQueue()
    room = threading.Semaphore(_ITEMS)
    closed = threading.Event()

    def work() -> None:
        try:
            with closing(source):
                for item in source:
                    items.put(item)
                    room.acquire()
                    if closed.is_set():
                        break
        except BaseException as error:  # noqa: BLE001  # raised again by the consumer
            items.put(_End(error))
        else:
            items.put(_End())

    thread = threading.Thread(target=work, name=name, daemon=True)
    thread.start()
    try:
        while not isinstance(item := items.get(), _End):
            room.release()
            yield item
        if item.error:
            raise item.error
    finally:
        closed.set()
        room.release()
        thread.join()


_LARGE = 2**20
"""From this size in bytes on, a file that is replayed is read, parsed and encoded by three threads."""
_LAST_DELIVERY = 0.5
"""Seconds that a stop or a reload leaves to the current batch, so that its position is stored too."""


class _Ended:
    """Marks the end of the batches."""


@dataclass(frozen=True, slots=True)
class _ReadBatch:
    """A batch of rows, and the position in the file after it; None for a pipe and with `loop`."""

    batch: Batch
    key: str
    """The file's identity, for `Positions.commit`."""
    position: Position | None


_ENDED = _Ended()


class CsvReading:
    """One run of a `CsvReceiver`."""

    def __init__(self, config: CsvReceiverConfig, context: Context) -> None:
        self.config = config
        self.context = context
        self._stop = threading.Event()
        timed = config.timestamps == "recorded"
        self._reader = CsvFileReader(
            layouts_for(config.layout), timed, config.delimiter, config.batch_size, self._stop, config.header
        )

    async def run(self, emit: Emit) -> None:
        """Emits batches of rows. Raises `CannotStart` for a file that cannot be read.

        All files are checked before the first batch.
        """
        insist = Insist(emit, self.context.clock)
        problems = Problems(self.context.logger)
        values = await open_values(self.context, self.config.storage)
        positions = Positions(problems, values, self.context.kept)
        await positions.load()
        if self.config.follow:
            self._reader.report = problems.warn
        follower = self._follower(positions, problems)
        replay = Replay(self._reader, None if self.config.loop else positions)
        try:
            with ThreadPoolExecutor(1, self.context.id) as thread:
                in_thread = partial(run_in_thread, executor=thread, interrupt=self._stop.set)
                await in_thread(lambda: self._check(problems))
                batches = self._batches(follower, replay, problems)
                try:
                    while not isinstance(read := await in_thread(lambda: next(batches, _ENDED)), _Ended):
                        if read is None:
                            await positions.tidy(follower.open_keys)
                            await self.context.clock.sleep(POLL)
                        else:
                            await self._accept(read, insist, positions)
                finally:
                    await in_thread(batches.close)
                await positions.tidy(())
        except Unreadable as problem:
            raise CannotStart(f"{self.context.path}: {problem}") from problem

    async def _accept(self, read: _ReadBatch, emit: Emit, positions: Positions) -> None:
        """Delivers a batch. A cancellation leaves it some time, so that no accepted row is read again."""
        delivering = asyncio.create_task(self._deliver(read, emit, positions))
        try:
            await asyncio.shield(delivering)
        except asyncio.CancelledError:
            await asyncio.wait([delivering], timeout=_LAST_DELIVERY)
            delivering.cancel()
            await asyncio.gather(delivering, return_exceptions=True)
            raise
        if self.config.interval and read.batch.point_count:
            await self.context.clock.sleep(self.config.interval)

    async def _deliver(self, read: _ReadBatch, emit: Emit, positions: Positions) -> None:
        """Emits a batch, and only then remembers its position."""
        if points := read.batch.point_count:  # afterwards the batch belongs to the pipelines
            try:
                await emit(read.batch)
            except Rejected as rejected:  # the points were counted where they were rejected
                self.context.logger.warning("Downstream rejected %d points: %s", points, rejected)
        if read.position:
            await positions.commit(read.key, read.position)

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

    def _batches(
        self, follower: Follower[FileBlock], replay: Replay, problems: Problems
    ) -> Generator[_ReadBatch | None, None, None]:
        """The batches of all blocks; None while there are no new rows."""
        with closing(self._rejects(self.config.rejects, problems)) if self.config.rejects else nullcontext() as rejects:
            converter = BlockConverter(self.config, self.context, rejects)
            if self.config.follow:
                for followed in follower.pieces():
                    if followed:
                        yield _ReadBatch(converter.convert(followed.piece), followed.key, followed.position)
                    else:
                        yield None
            while True:
                points = 0
                for name in self._reader.expand(self.config.files):
                    for read in self._replayed(name, replay, converter):
                        points += read.batch.point_count if read else 0
                        yield read
                if not self.config.loop:
                    return
                if not points:
                    yield None  # without this pause, files without a valid row would be read in a busy loop

    def _replayed(
        self, name: str, replay: Replay, converter: BlockConverter
    ) -> Generator[_ReadBatch | None, None, None]:
        """The batches of one file. Reading and parsing release Python's lock, so that other threads work meanwhile."""
        blocks = replay.blocks(name)
        with reading_errors(name):
            is_large = name != STDIN and Path(name).stat().st_size >= _LARGE
        if not is_large:
            yield from _encoded(_parsed(blocks, converter), converter)
            return
        blocks = ahead(blocks, f"{self.context.id} reader")
        parsed = ahead(_parsed(blocks, converter), f"{self.context.id} parser")
        with closing(ahead(_encoded(parsed, converter), f"{self.context.id} encoder")) as batches:
            yield from batches

    def _follower(self, positions: Positions, problems: Problems) -> Follower[FileBlock]:
        return Follower(
            self.config.files,
            self._reader.follow,
            positions,
            problems,
            self.context.clock.monotonic,
            FolderChanges(),
            from_end=self.config.start_at == "end",
        )

    def _rejects(self, path: Path, problems: Problems) -> Rejects:
        try:
            return Rejects(path, self.config.rejects_permissions, problems, self.context.meter)
        except OSError as error:
            raise CannotStart(f"{self.context.path}::rejects: cannot write {path}: {error.strerror}") from error


def _parsed(
    blocks: Iterator[ReadBlock | None], converter: BlockConverter
) -> Generator[tuple[ReadBlock, list[PlannedRows]] | None, None, None]:
    for read in blocks:
        yield (read, converter.parse(read.block)) if read else None


def _encoded(
    parsed: Iterator[tuple[ReadBlock, list[PlannedRows]] | None], converter: BlockConverter
) -> Generator[_ReadBatch | None, None, None]:
    for result in parsed:
        if result:
            read, rows = result
            yield _ReadBatch(converter.encode(read.block, rows), read.key, read.position)
        else:
            yield None
