"""The otlp_json_file receiver: reads records in a thread, shifts their times, and emits them at the configured pace."""

import threading
from collections.abc import Generator, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any, Literal

from otel_zernel.batch import Batch, Signal, points
from otel_zernel.clock import Clock
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
from otel_zernel_receivers.otlp_json_file.records import (
    FileRecord,
    RecordReader,
    decode_json,
    decode_protobuf,
    signals_in,
)

_LAST_NS = 2**64 - 1


class Pace:
    """Assigns to each record of one replay the time to emit it. Records without a time follow at once."""

    def __init__(self, speed: float, timestamps: Literal["recorded", "now", "moved"], clock: Clock) -> None:
        """`speed`: recorded seconds in a second; 0 for no pauses.

        With a speed of 10 and `now`, times are ten times closer together: none is ahead of the clock. With `moved`,
        they keep their distances.
        """
        self._speed = Fraction(speed)
        self._shifts = timestamps != "recorded"
        self._divisor = self._speed if timestamps == "now" else Fraction(1)
        self._clock = clock
        self._newest_ns = 0
        """The newest time of the replay."""
        self._first_ns: int | None = None
        """The time of the first record."""
        self._began_ns = 0
        """The clock's time of the first record."""
        self._began = 0.0

    def restart(self) -> None:
        """The next record is the first one of a new round."""
        self._first_ns = None

    def schedule(self, batch: Batch) -> float:
        """The moment to emit a record, in seconds of the monotonic clock. Shifts the times in it."""
        if not self._speed:
            return 0.0
        latest = max((getattr(holder, name) for holder, name in _times(batch, edit=False)), default=0)
        if not latest:
            return 0.0
        if self._first_ns is None:
            self._first_ns = latest
            spread = latest - (_first_end(batch) or latest) if self._newest_ns else 0
            self._began = self._clock.monotonic() + float(spread / self._speed) / 1e9
            self._began_ns = max(self._clock.time_ns(), self._newest_ns) + int(spread / self._divisor)
        if self._shifts:
            for holder, name in list(_times(batch, edit=True)):
                setattr(holder, name, self._shifted(getattr(holder, name)))
        return self._began + float((latest - self._first_ns) / self._speed) / 1e9

    def _shifted(self, time_ns: int) -> int:
        since = (time_ns - (self._first_ns or 0)) * self._divisor.denominator // self._divisor.numerator
        shifted = min(max(1, self._began_ns + since), _LAST_NS)
        self._newest_ns = max(self._newest_ns, shifted)
        return shifted


def _first_end(batch: Batch) -> int:
    """The earliest time at which something in the batch ends, or was observed. Begins may lie far before the record."""
    times = _times(batch, edit=False)
    return min((getattr(holder, name) for holder, name in times if name != "start_time_unix_nano"), default=0)


def _times(batch: Batch, *, edit: bool) -> Iterator[tuple[Any, str]]:
    """The messages with a time, and the name of the field. Times that are not set (0) are left out."""
    fields = ("start_time_unix_nano", "time_unix_nano", "end_time_unix_nano", "observed_time_unix_nano")
    for holder in _holders(batch, edit=edit):
        for name in fields:
            if getattr(holder, name, 0):
                yield holder, name


def _holders(batch: Batch, *, edit: bool) -> Iterator[Any]:
    """The messages that may have a time: points, exemplars, spans, events, log records."""
    if "metrics" in batch.signals:
        for resource in (batch.edit_metrics() if edit else batch.metrics).resource_metrics:
            for metric in (metric for scope in resource.scope_metrics for metric in scope.metrics):
                for point in points(metric):
                    yield point
                    yield from getattr(point, "exemplars", ())
    if "traces" in batch.signals:
        for traced in (batch.edit_spans() if edit else batch.spans).resource_spans:
            for span in (span for spans in traced.scope_spans for span in spans.spans):
                yield span
                yield from span.events
    if "logs" in batch.signals:
        for logged in (batch.edit_logs() if edit else batch.logs).resource_logs:
            yield from (record for logs in logged.scope_logs for record in logs.log_records)


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
            has_waited = False
            for name in names:
                for due in self._read(name, pace, problems):
                    has_waited = has_waited or (due is not None and due.batch.item_count > 0)
                    yield due
            if not self.config.loop:
                return
            if not has_waited:
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
