"""The live state, its sequence numbers, and its changes: docs/development/live_state.md has the JSON of a delta."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from threading import RLock
from typing import Any, Final, NamedTuple

from otel_zernel.batch import Batch
from otel_zernel.clock import Clock
from otel_zernel_exporters.live import rendering
from otel_zernel_libraries.serving.api.answers import json_bytes
from otel_zernel_libraries.serving.api.live import SCHEMA
from otel_zernel_libraries.training import semconv
from otel_zernel_libraries.training.state import DETAIL_READERS, MEMORY_READERS, MOMENT_READERS, WAITS, TrainingState

Path = list[str]
_NONE: Final = object()


class StateChanges:
    """Collects changes. Each one is encoded at once: to free the objects of 1,024 processes together takes 100 ms."""

    def __init__(self, *, is_kept: bool) -> None:
        """Without `is_kept`, nothing is encoded."""
        self._is_kept = is_kept
        self._is_changed = False
        self._set: list[bytes] = []
        self._remove: list[bytes] = []
        self._append: dict[str, list[bytes]] = {}

    def __bool__(self) -> bool:
        """Whether anything has changed."""
        return self._is_changed

    def compare(self, path: Path, before: Mapping[str, Any] | None, after: Mapping[str, Any] | None) -> None:
        """Adds the changes of the object at `path`, field by field. None: it is not there."""
        if after is None:
            if before is not None:
                self.remove(path)
        elif before is None:
            self.set([path, after])
        else:
            self.set(*([[*path, key], value] for key, value in after.items() if before.get(key, _NONE) != value))
            self.remove(*([*path, key] for key in before if key not in after))

    def set(self, *pairs: list[Any]) -> None:
        """Adds pairs of a path and its new value."""
        self._add(self._set, pairs)

    def remove(self, *paths: Path) -> None:
        """Adds paths that are not there any more."""
        self._add(self._remove, paths)

    def append(self, name: str, id_: str, items: Sequence[Any]) -> None:
        """Adds items, or their JSON, to the end of the list with this id."""
        if items:
            self._is_changed = True
            if self._is_kept:
                encoded = b",".join(item if isinstance(item, bytes) else json_bytes(item) for item in items)
                self._append.setdefault(name, []).append(b"%s:[%s]" % (json_bytes(id_), encoded))

    def as_json(self, seq: int, time_ms: int) -> bytes:
        """The delta to the state with this number."""
        parts = [b'"seq":%d,"time":%d' % (seq, time_ms)]
        if self._append:
            lists = (b'"%s":{%s}' % (name.encode(), b",".join(several)) for name, several in self._append.items())
            parts.append(b'"append":{%s}' % b",".join(lists))
        if self._set:
            parts.append(b'"set":[%s]' % b",".join(self._set))
        if self._remove:
            parts.append(b'"remove":[%s]' % b",".join(self._remove))
        return b"{%s}" % b",".join(parts)

    def _add(self, to: list[bytes], values: tuple[Any, ...]) -> None:
        if values:
            self._is_changed = True
            if self._is_kept:
                to.append(json_bytes(values)[1:-1])


_MOST_BYTES: Final = 16 << 20
"""Bytes of the deltas that are kept for readers that are behind or come back. At least the last one is kept."""
_MOST_EVENTS: Final = 600
_FOLLOWED: Final = 60.0
"""Seconds. Without a reader for longer, no deltas are kept."""
_FRESH: Final = 0.1
"""Seconds for which an encoded state serves further readers."""
_KEPT_AFTER_END: Final = 60.0
"""Seconds for which an ended process stays visible with its end."""
_OBJECTS: Final = 16
"""Objects, or processes of the timeline, that are encoded in one call, which holds the other threads for 1 to 10 ms."""
_NOT_SHOWN: Final = (*MEMORY_READERS, WAITS, *(DETAIL_READERS.keys() - {*MOMENT_READERS}), semconv.PROBE_TIME)
"""The metrics that the live state does not show."""
_DATA: Final = b"data: "
Table = dict[str, Any]


class Published(NamedTuple):
    """The last deltas: never changed, so that any thread may read it."""

    seq: int
    """The number of the state after all of them."""
    events: tuple[tuple[int, bytes], ...] = ()
    """The number and the server-sent event of each. The numbers follow each other."""

    def since(self, seq: int) -> list[tuple[int, bytes]] | None:
        """The events after the state with this number; None if they are not kept."""
        if seq == self.seq:
            return []
        if not self.events or not self.events[0][0] - 1 <= seq < self.seq:
            return None
        return list(self.events[seq + 1 - self.events[0][0] :])


class LiveState:
    """Keeps the state of a training from batches. `advance` gives the current state the next sequence number.

    Any thread may call it; one call works at a time, and the others wait. `collector` is the state of the collector.
    """

    def __init__(self, clock: Clock, *, history: int, expiration: float) -> None:
        """`history` and `expiration` as `LiveConfig` has them."""
        self._clock = clock
        self.executor = ThreadPoolExecutor(1, "live")
        """The thread that adds batches in their order, and renders: both may take longer than the event loop can wait.
        It lives as long as the state, also over a reload."""
        self._lock = RLock()
        self._training = TrainingState(
            expiration=expiration,
            kept_after_end=_KEPT_AFTER_END,
            rows=history,
            metrics=lambda name: not name.startswith(_NOT_SHOWN),
        )
        self._columns = rendering.JobColumns()
        self._limits = {"timeline": history, "heat": rendering.HEAT_LENGTH, "shares": rendering.SHARES_LENGTH}
        self.published = Published(clock.time_ns() // 1_000_000)
        """Begins with the time, so that a reader of a former process finds no equal number."""
        self._time_ms = self.published.seq
        self._rendered = _nothing()
        """The state with the number of `published`, without the lists over time."""
        self._advanced = clock.monotonic()
        self._whole: tuple[int, list[bytes], float] | None = None
        """The last encoded state: its number, the pieces, and when it was made."""

    def add(self, batch: Batch) -> None:
        """Adds a batch, which stays as it is. Raises `DecodeError`."""
        with self._lock:
            now, training = self._clock.monotonic(), self._training
            self._columns.add_to(training, batch, now)
            if now - self._advanced > _FOLLOWED:  # nobody takes the changes: the next reader gets everything
                for table in (training.gpus, training.processes, training.jobs):
                    table.forget_left()

    @property
    def malformed(self) -> str:
        """As `TrainingState.malformed`."""
        return self._training.malformed

    def take_dropped(self) -> Counter[str]:
        """As `TrainingState.take_dropped`."""
        return self._training.take_dropped()

    def advance(self, collector: dict[str, Any]) -> Published:
        """Gives the current state the next number, if it has changed."""
        with self._lock:
            try:
                self._advance(collector)
            except Exception:
                self._begin_anew()
                raise
            return self.published

    def snapshot(self, collector: dict[str, Any]) -> dict[str, Any]:
        """As `LiveSource.snapshot`."""
        state: dict[str, Any] = json.loads(b"".join(self.encoded(collector, fresh=0.0)[1]))
        return state

    def changes_since(self, seq: int, collector: dict[str, Any]) -> list[dict[str, Any]] | None:
        """As `LiveSource.changes_since`."""
        events = self.advance(collector).since(seq)
        return None if events is None else [json.loads(event.partition(_DATA)[2]) for _, event in events]

    def encoded(self, collector: dict[str, Any], fresh: float = _FRESH) -> tuple[int, list[bytes]]:
        """The number and the JSON of the state of now, or of `fresh` seconds ago, in pieces of about 32 KiB."""
        with self._lock:
            now = self._clock.monotonic()
            if self._whole is None or not fresh or now - self._whole[2] > fresh:
                seq = self.advance(collector).seq
                self._whole = seq, list(_joined(self._pieces())), now
            return self._whole[:2]

    def forget(self) -> None:
        """Forgets the deltas and the encoded state."""
        with self._lock:
            self.published, self._whole = Published(self.published.seq), None

    def _begin_anew(self) -> None:
        """After a failure, some changes are lost: everything is rendered again, and readers get the whole state."""
        self.published, self._whole = Published(self.published.seq + 1), None
        self._render_anew()

    def _render_anew(self) -> None:
        self._rendered = _nothing()
        for table in (self._training.gpus, self._training.processes, self._training.jobs):
            table.change_all()

    def _advance(self, collector: dict[str, Any]) -> None:
        now = self._clock.monotonic()
        is_followed, self._advanced = now - self._advanced <= _FOLLOWED, now
        if self._whole and now - self._whole[2] > _FRESH:
            self._whole = None
        training, columns = self._training, self._columns
        if not is_followed:
            self._render_anew()
        columns.settle(training, now)
        changes = StateChanges(is_kept=is_followed)
        changes.compare(["collector"], self._rendered["collector"], collector)
        self._rendered["collector"] = collector
        for id_ in training.gpus.take_changed():
            gpu = training.gpus.get(id_)
            self._replace("gpus", id_, rendering.gpu_object(gpu) if gpu else None, changes)
        for id_ in training.jobs.take_changed():
            job = training.jobs.get(id_)
            self._replace_job(id_, rendering.job_object(job) if job else None, changes)
        for id_ in training.processes.take_changed():
            self._replace_process(id_, changes, now)
        for id_, history in columns.heat.items():
            changes.append("heat", id_, history.take_new())
        for id_, history in columns.shares.items():
            changes.append("shares", id_, history.take_new())
        if not changes:
            return
        self._time_ms = self._clock.time_ns() // 1_000_000
        self._publish(changes, is_followed=is_followed)

    def _replace_process(self, id_: str, changes: StateChanges, now: float) -> None:
        """Renders a process, its job if it trains alone, and its new steps."""
        process = self._training.processes.get(id_)
        if process is None and id_ in self._rendered["ranks"]:
            changes.remove(["timeline", id_])
        self._replace("ranks", id_, rendering.rank_object(process, now) if process else None, changes)
        self._replace_job(id_, rendering.lone_job_object(process) if process and process.job == id_ else None, changes)
        if process:
            rows, is_whole = process.rows.take_new()
            if is_whole:
                changes.set([["timeline", id_], rows])
            else:
                changes.append("timeline", id_, rows)

    def _replace_job(self, id_: str, after: dict[str, Any] | None, changes: StateChanges) -> None:
        if after is None and id_ in self._rendered["jobs"]:
            changes.remove(["heat", "columns", id_], ["shares", id_])
        self._replace("jobs", id_, after, changes)

    def _replace(self, table: str, id_: str, after: dict[str, Any] | None, changes: StateChanges) -> None:
        changes.compare([table, id_], self._rendered[table].get(id_), after)
        if after is None:
            self._rendered[table].pop(id_, None)
        else:
            self._rendered[table][id_] = after

    def _publish(self, changes: StateChanges, *, is_followed: bool) -> None:
        seq = self.published.seq + 1
        if not is_followed:
            self.published = Published(seq)
            return
        head = b"id: %d\nevent: delta\n%s" % (seq, _DATA)
        events = [*self.published.events, (seq, head + changes.as_json(seq, self._time_ms) + b"\n\n")]
        size = sum(len(event) for _, event in events)
        while len(events) > 1 and (size > _MOST_BYTES or len(events) > _MOST_EVENTS):
            size -= len(events.pop(0)[1])
        self.published = Published(seq, tuple(events))

    def _pieces(self) -> Iterator[bytes]:
        """The JSON of the state in pieces."""
        head = {"schema": SCHEMA, "seq": self.published.seq, "time": self._time_ms, "limits": self._limits}
        yield json_bytes(head)[:-1]
        for name, table in self._rendered.items():
            yield b',"%s":' % name.encode()
            yield from _object(table.items())
        yield b',"timeline":'
        processes = filter(None, map(self._training.processes.get, self._rendered["ranks"]))
        yield from _object((process.id, rows) for process in processes if (rows := process.rows.rows()))
        yield b',"heat":{"bounds":%s,"columns":' % json_bytes(rendering.BOUNDS)
        yield from _columns_object(self._columns.heat)
        yield b'},"shares":'
        yield from _columns_object(self._columns.shares)
        yield b"}"


def _nothing() -> dict[str, Table]:
    """The tables of an empty state."""
    return {"collector": {}, "gpus": {}, "ranks": {}, "jobs": {}}


def _columns_object(histories: Mapping[str, rendering.ColumnHistory]) -> Iterator[bytes]:
    """A JSON object of the columns of each job."""
    members = (b"%s:%s" % (json_bytes(id_), history.as_json()) for id_, history in histories.items() if history)
    yield b"{"
    for position, member in enumerate(members):
        yield b"," + member if position else member
    yield b"}"


def _object(items: Iterable[tuple[str, Any]]) -> Iterator[bytes]:
    """A JSON object, some members at a time."""
    yield b"{"
    before, members = b"", iter(items)
    while held := dict(islice(members, _OBJECTS)):
        yield before + json_bytes(held)[1:-1]
        before = b","
    yield b"}"


def _joined(pieces: Iterable[bytes], size: int = 1 << 15) -> Iterator[bytes]:
    """The same bytes in pieces of about 32 KiB: a connection buffers 64."""
    held = bytearray()
    for piece in pieces:
        held += piece
        while len(held) >= size:
            yield bytes(held[:size])
            del held[:size]
    yield bytes(held)
