"""The otlp_json_file receiver: reads records in a thread, and emits them at the configured pace."""

import threading
from collections.abc import Generator, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Any

from otel_zernel.batch import Batch, Signal
from otel_zernel.component import Context, Emit, Insist, Receiver
from otel_zernel.errors import CannotStart, DecodeError, Rejected
from otel_zernel.runtime.threads import run_in_thread
from otel_zernel_libraries.files.changes import FolderChanges
from otel_zernel_libraries.files.following import POLL, Followed, Follower
from otel_zernel_libraries.files.growing import GrowingFile
from otel_zernel_libraries.files.listing import list_files
from otel_zernel_libraries.files.positions import Positions, open_values
from otel_zernel_libraries.files.sources import Problems, Unreadable, open_source, reading_errors
from otel_zernel_receivers.otlp_json_file.config import OtlpJsonFileConfig
from otel_zernel_receivers.otlp_json_file.decoding import decode_json, decode_protobuf, signals_in
from otel_zernel_receivers.otlp_json_file.pace import Pace
from otel_zernel_receivers.otlp_json_file.records import FileRecord, RecordReader

_MOST_DAMAGED = 100
"""So many more damaged records than records of logs show that a file is no recording."""
_MOST_LOGS = 10_000
"""A file that begins with so many records is a recording, even if they are all of logs."""
_NO_TRAINING = "its records have no metrics and no spans"


class _ReplayEnd:
    """Marks the end of the replay."""


_END = _ReplayEnd()


@dataclass(frozen=True, slots=True)
class _DueBatch:
    """A batch, the moment to emit it, and the position in the followed file after it."""

    batch: Batch
    due: float
    followed: Followed[FileRecord] | None = None


class OtlpJsonFileReceiver(Receiver):
    """Replays files of OTLP that the `file` exporter wrote. Ends after the last record, unless it loops or follows."""

    Config = OtlpJsonFileConfig
    stability = "beta"

    @classmethod
    def damage_of(cls, path: str) -> str:
        """The reason why a file is no recording of a training. Empty if it has metrics or spans, or begins with too
        many logs to look for them."""
        damage, damaged, logs = "", 0, 0
        try:
            with reading_errors(path), closing(open_source(path, threading.Event())) as source:
                for number, record in enumerate(RecordReader(source.read).records()):
                    if record is None or number == _MOST_LOGS:
                        return ""  # a pipe, or logs before the training
                    reason = record.damage or _no_training_in(record)
                    if not reason:
                        return ""
                    logs += reason == _NO_TRAINING
                    if reason != _NO_TRAINING:
                        damage, damaged = damage or reason, damaged + 1
                        if damaged - logs == _MOST_DAMAGED:
                            return damage
        except Unreadable as problem:
            return damage or str(problem)
        return _NO_TRAINING if logs else damage or "it has no record"

    def __init__(self, config: OtlpJsonFileConfig, context: Context) -> None:
        super().__init__(config, context)
        self._stop = threading.Event()

    async def run(self, emit: Emit) -> None:
        """Emits the records. Raises `CannotStart` if there is no file to replay."""
        self._stop.clear()
        insist = Insist(emit, self.context.clock)
        problems = Problems(self.context.logger)
        values = await open_values(self.context, self.config.storage)
        positions = Positions(problems, values, self.context.kept)
        await positions.load()
        follower = self._follower(positions, problems)
        with ThreadPoolExecutor(1, self.context.id) as thread, closing(self._batches(follower, problems)) as batches:
            in_thread = partial(run_in_thread, executor=thread, interrupt=self._stop.set)
            while not isinstance(due := await in_thread(lambda: next(batches, _END)), _ReplayEnd):
                if due is None:
                    await positions.tidy(follower.open_keys)
                    await self.context.clock.sleep(POLL)
                    continue
                if due.batch.item_count:
                    await self._deliver(due, insist)
                if due.followed:
                    await positions.commit(due.followed.key, due.followed.position)

    async def _deliver(self, due: _DueBatch, emit: Emit) -> None:
        if (wait := due.due - self.context.clock.monotonic()) > 0:
            await self.context.clock.sleep(wait)
        items = due.batch.item_count  # afterwards the batch belongs to the pipelines
        try:
            await emit(due.batch)
        except Rejected as rejected:  # the items were counted where they were rejected
            self.context.logger.warning("Downstream rejected %d items: %s", items, rejected)

    def _batches(self, follower: Follower[FileRecord], problems: Problems) -> Generator[_DueBatch | None, None, None]:
        """The batches of all records; None while there are no new ones."""
        if self.config.follow:
            for followed in follower.pieces():
                yield self._decode(followed.name, followed.piece, self._pace(), followed) if followed else None
        names, pace = self._expand(), self._pace()
        while True:
            pace.restart()
            found = False
            for name in names:
                for due in self._read(name, pace, problems):
                    found = found or (due is not None and due.batch.item_count > 0)
                    yield due
            if not self.config.loop:
                return
            if not found:
                yield None  # without this pause, files without a valid record would be read in a busy loop

    def _pace(self) -> Pace:
        return Pace(self.config.speed, self.config.timestamps, self.context.clock)

    def _expand(self) -> list[str]:
        listing = list_files(self.config.include, self.config.exclude)
        for problem in listing.problems.values():
            raise CannotStart(f"{self.context.path}::include: {problem}")
        if not listing.files:
            patterns = ", ".join(self.config.include)
            raise CannotStart(f"{self.context.path}::include: no file matches {patterns}; check the paths")
        return list(listing.files)

    def _read(self, name: str, pace: Pace, problems: Problems) -> Iterator[_DueBatch | None]:
        """The batches of one file; None while a pipe has no more. If the file cannot be read, its rest is lost."""
        try:
            with reading_errors(name), closing(open_source(name, self._stop)) as source:
                for record in RecordReader(source.read).records():
                    yield self._decode(name, record, pace) if record else None
        except Unreadable as problem:
            self.context.drop(1, "unreadable file")
            problems.warn(name, str(problem))

    def _decode(
        self, name: str, record: FileRecord, pace: Pace, followed: Followed[FileRecord] | None = None
    ) -> _DueBatch:
        """The signals of a record that the pipelines use. Empty if it is damaged, which is counted and logged."""
        damage, detail = record.damage, record.damage
        if not damage:
            try:
                signal = None if self.config.signal == "auto" else self.config.signal
                batch = _decoded(record, signal).only(self.context.signals)
                return _DueBatch(batch, pace.schedule(batch), followed)
            except DecodeError as error:
                damage, detail = "not OTLP", str(error)
        self.context.drop(1, damage)
        self.context.logger.warning("Skipped a damaged record of %s at byte %d: %s", name, record.start, detail)
        return _DueBatch(Batch(), 0.0, followed)

    def _follower(self, positions: Positions, problems: Problems) -> Follower[FileRecord]:
        return Follower(
            self.config.include,
            _follow,
            positions,
            problems,
            self.context.clock.monotonic,
            FolderChanges(),
            exclude=self.config.exclude,
            from_end=self.config.start_at == "end",
        )


def _decoded(record: FileRecord, signal: Signal | None) -> Batch:
    """The batch of an intact record. `signal` is None if it is unknown. Raises `DecodeError`."""
    return decode_json(record.data) if record.is_json else decode_protobuf(record.data, signal)


def _no_training_in(record: FileRecord) -> str:
    """The reason why an intact record shows no training; empty if it has metrics or spans."""
    if record.is_json and signals_in(record.data) == {"logs"}:
        return _NO_TRAINING  # decoding many of them would take seconds
    try:
        batch = _decoded(record, None)
    except DecodeError as error:
        return str(error)
    return "" if {"metrics", "traces"} & set(batch.signals) else _NO_TRAINING


def _follow(file: GrowingFile, resume: Mapping[str, Any] | None) -> Iterator[FileRecord | None]:
    if file.encoding:
        raise Unreadable(f"cannot follow {file.name}: the file as a whole is compressed; follow the uncompressed file")
    form = resume.get("form") if resume and file.offset else None
    reader = RecordReader(file.read, file.offset, form if form in ("lines", "frames") else None)
    with reading_errors(file.name):
        yield from reader.records()
