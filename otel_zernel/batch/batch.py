"""The batch: OTLP messages on their way through a pipeline. A signal is parsed and encoded only when needed."""

from collections.abc import Collection, Iterable, Set
from contextlib import suppress
from typing import cast
from weakref import WeakSet

from opentelemetry.proto.logs.v1.logs_pb2 import LogsData
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData
from opentelemetry.proto.profiles.v1development.profiles_pb2 import ProfilesData
from opentelemetry.proto.trace.v1.trace_pb2 import TracesData

from otel_zernel.batch.counts import ItemCount, count_items, temporalities_of
from otel_zernel.batch.parsing import LARGE, parse_mended, parse_sound
from otel_zernel.batch.pieces import count_encoded
from otel_zernel.batch.signals import ALL_SIGNALS, MESSAGE_TYPES, SIGNALS, Signal, SignalData
from otel_zernel.errors import DecodeError
from otel_zernel.runtime.threads import compute


class Content:
    """One signal of a batch: a message, its encoding, or both. A batch and its copies hold one content."""

    __slots__ = ("_count", "_encoded", "_failure", "_holders", "_message", "_signal", "_temporalities")

    def __init__(
        self,
        signal: Signal,
        message: SignalData | None = None,
        encoded: bytes | None = None,
        count: int | None = None,
        temporalities: Set[int] | None = None,
    ) -> None:
        self._signal: Signal = signal
        self._message = message
        self._encoded = encoded
        self._failure: str | None = None
        """Why the encoding cannot be read, even mended."""
        self._count = count
        self._temporalities = temporalities
        self._holders: WeakSet[object] | None = None
        """The batches that share this content. None if it was never shared."""

    @property
    def message(self) -> SignalData:
        """The message. Raises `DecodeError` if the encoding is not valid."""
        if self._message is None:
            self._message = self._parse()
        return self._message

    def read_at_once(self) -> bool:
        """Whether `message` costs nothing more. Parses it, unless that takes long: it is large, or needs mending."""
        if self._message is None and self._failure is None:
            if self._encoded is None or len(self._encoded) > LARGE:
                return False
            try:
                self._message = parse_sound(MESSAGE_TYPES[self._signal], self._encoded)
            except DecodeError:
                return False
        return True

    def try_to_read(self) -> None:
        """Parses and mends the message, so that the next `message` costs nothing. It raises the error, if any."""
        with suppress(DecodeError):
            _ = self.message

    @property
    def encoded(self) -> bytes:
        if self._encoded is None:
            self._encoded = self.message.SerializeToString()
        return self._encoded

    @property
    def count(self) -> int:
        if self._count is None:
            self._count = count_items(self.message)
        return self._count

    @property
    def temporalities(self) -> Set[int]:
        """The aggregation temporalities of the sums and histograms. Raises `DecodeError` as `message` does."""
        if self._temporalities is None:
            self._temporalities = self._read_temporalities()
        return self._temporalities

    @property
    def known_temporalities(self) -> Set[int] | None:
        """The same if they are known without a parse."""
        return self._temporalities

    def _read_temporalities(self) -> Set[int]:
        if self._signal != "metrics":
            return frozenset()
        if isinstance(self._message, MetricsData):
            return temporalities_of(self._message)
        temporalities: set[int] = set()
        count_encoded(self._signal, self.encoded, temporalities=temporalities)
        return temporalities

    def _parse(self) -> SignalData:
        """The message in the encoding, which is mended if it needs that."""
        if self._failure is not None:
            raise DecodeError(self._failure)  # a new one: a raised error keeps its traceback, and so the batch
        type_, encoded = MESSAGE_TYPES[self._signal], self._encoded or b""
        try:
            message, self._encoded = parse_mended(type_, encoded)
        except DecodeError as error:
            self._failure = str(error)
            raise
        return message

    def _new_message(self) -> SignalData:
        """An own message for an editor. Parsing the encoding costs as much as a copy, and saves the other's parse."""
        if self._message is None:
            return self._parse()
        message = type(self._message)()
        message.CopyFrom(self._message)  # type: ignore[arg-type]  # both have the same type
        return message

    def share(self, holder: object, other: object) -> "Content":
        """This content, which `other` holds from here on as `holder` does."""
        if self._holders is None:
            self._holders = WeakSet((holder,))
        self._holders.add(other)
        return self

    def editable(self, holder: object) -> "Content":
        """A content that `holder` may change: this one if no other living batch holds it, else a copy."""
        if self._holders is not None and len(self._holders) > 1:
            own = Content(self._signal, self._new_message())
            self._holders.discard(holder)  # only now may another thread edit this content
            return own
        self._message = self.message
        self._encoded = None
        self._count = None
        self._temporalities = None
        return self


class Batch:
    """Metrics, spans, log records and profiles in the form of OTLP.

    Reading changes nothing and costs at most one parse. A processor that changes a batch calls `edit_metrics`,
    `edit_spans`, `edit_logs` or `edit`; only then is the batch encoded again. Copies share their content until one of
    them is edited. The last batch that holds a content edits it in place. So code that keeps a part of a message longer
    than its batch must copy that part.

    A batch from received bytes is parsed only if its messages are read; a mistake that the check on receipt did not
    see raises `DecodeError` there.
    """

    __slots__ = ("__weakref__", "_contents")

    def __init__(
        self,
        metrics: MetricsData | None = None,
        spans: TracesData | None = None,
        logs: LogsData | None = None,
        profiles: ProfilesData | None = None,
    ) -> None:
        """The messages belong to the batch: the caller must not change them any more."""
        self._contents: dict[Signal, Content] = {}
        if metrics is not None:
            self._contents["metrics"] = Content("metrics", metrics)
        if spans is not None:
            self._contents["traces"] = Content("traces", spans)
        if logs is not None:
            self._contents["logs"] = Content("logs", logs)
        if profiles is not None:
            self._contents["profiles"] = Content("profiles", profiles)

    @classmethod
    def from_bytes(
        cls,
        *,
        metrics: bytes | None = None,
        spans: bytes | None = None,
        logs: bytes | None = None,
        profiles: bytes | None = None,
    ) -> "Batch":
        """A batch from untrusted bytes: encoded `MetricsData`, `TracesData`, `LogsData` and `ProfilesData`, or the
        export requests of OTLP, which have the same encoding.

        Checks and counts the bytes (`count_encoded`). Raises `DecodeError`.
        """
        batch = cls()
        for signal, encoded in zip(SIGNALS, (metrics, spans, logs, profiles), strict=True):
            if encoded is not None:
                seen: set[int] = set()
                count = count_encoded(signal, encoded, temporalities=seen)
                batch._contents[signal] = Content(signal, encoded=encoded, count=count, temporalities=seen)
        return batch

    @classmethod
    def encoded(cls, signal: Signal, encoded: bytes, count: int, temporalities: Set[int] | None = None) -> "Batch":
        """A batch of one signal that the collector has encoded and counted itself. It is parsed only if it is read.

        `temporalities` of the metrics, if they are known: without them, an exporter that converts them has to look.
        """
        batch = cls()
        batch._contents[signal] = Content(signal, encoded=encoded, count=count, temporalities=temporalities)
        return batch

    @classmethod
    def join(cls, batches: Iterable["Batch"]) -> "Batch":
        """One batch with the items of all, in order. Concatenated encodings are the encoding of the joined message.

        Raises `ValueError` if several of them have profiles: see `stays_alone`.
        """
        batches = list(batches)
        if len(batches) == 1:
            return batches[0]
        joined = cls()
        for signal in SIGNALS:
            contents = [batch._contents[signal] for batch in batches if signal in batch._contents]
            if len(contents) > 1 and signal == "profiles":
                raise ValueError("profiles of several batches cannot be joined")
            if contents:
                data = b"".join(content.encoded for content in contents)
                count = sum(content.count for content in contents)
                known = _joined([content.known_temporalities for content in contents])
                joined._contents[signal] = Content(signal, encoded=data, count=count, temporalities=known)
        return joined

    @property
    def signals(self) -> tuple[Signal, ...]:
        """The signals that the batch carries, in the order of `SIGNALS`."""
        contents = self._contents
        if len(contents) < 2:  # the usual case, several times for each batch
            return tuple(contents)
        return tuple(signal for signal in SIGNALS if signal in contents)

    @property
    def stays_alone(self) -> bool:
        """Whether it cannot be joined with others or divided: all profiles of a message share one dictionary, whose
        rows their samples name by number."""
        return "profiles" in self._contents

    @property
    def metrics(self) -> MetricsData:
        """The metrics, read-only. Empty if the batch has none."""
        return cast("MetricsData", self.message("metrics"))

    @property
    def spans(self) -> TracesData:
        """The spans, read-only. Empty if the batch has none."""
        return cast("TracesData", self.message("traces"))

    @property
    def logs(self) -> LogsData:
        """The log records, read-only. Empty if the batch has none."""
        return cast("LogsData", self.message("logs"))

    @property
    def profiles(self) -> ProfilesData:
        """The profiles, read-only. Empty if the batch has none."""
        return cast("ProfilesData", self.message("profiles"))

    def message(self, signal: Signal) -> SignalData:
        """The message of one signal, read-only. Empty if the batch has none."""
        content = self._contents.get(signal)
        return content.message if content else MESSAGE_TYPES[signal]()

    def edit_metrics(self) -> MetricsData:
        """The metrics, to change in place. Call it again after the batch was copied, encoded or counted."""
        return cast("MetricsData", self.edit("metrics"))

    def edit_spans(self) -> TracesData:
        """The spans, to change in place. Call it again after the batch was copied, encoded or counted."""
        return cast("TracesData", self.edit("traces"))

    def edit_logs(self) -> LogsData:
        """The log records, to change in place. Call it again after the batch was copied, encoded or counted."""
        return cast("LogsData", self.edit("logs"))

    def edit(self, signal: Signal) -> SignalData:
        """The message of one signal, to change in place. Call it again after the batch was copied, encoded or
        counted."""
        content = self._contents.get(signal) or Content(signal, MESSAGE_TYPES[signal]())
        self._contents[signal] = content = content.editable(self)
        return content.message

    def bytes_of(self, signal: Signal) -> bytes:
        """The encoded message of one signal: the received bytes, unless the batch was edited. Empty without it."""
        content = self._contents.get(signal)
        return content.encoded if content else b""

    @property
    def point_count(self) -> int:
        """The number of metric data points."""
        return self.count_of("metrics")

    def count_of(self, signal: Signal) -> int:
        """The number of items of one signal."""
        content = self._contents.get(signal)
        return content.count if content else 0

    @property
    def counts(self) -> ItemCount:
        """The number of items of each signal."""
        count_of = self.count_of
        return ItemCount(count_of("metrics"), count_of("traces"), count_of("logs"), count_of("profiles"))

    @property
    def item_count(self) -> int:
        """The number of data points, spans, log records and samples together, which `sizer: items` measures."""
        items = 0
        for content in self._contents.values():  # a loop is twice as fast as `sum` for the usual one signal
            items += content.count
        return items

    @property
    def temporalities(self) -> Set[int]:
        """The aggregation temporalities of its sums and histograms, as numbers of OTLP's enumeration.

        0 (unspecified) may be too many. `EXPLICIT_HISTOGRAMS` is among them if there are histograms with explicit
        bounds. Those of received metrics are known; otherwise this costs a thin parse. Raises `DecodeError` if the
        metrics are not valid.
        """
        content = self._contents.get("metrics")
        return content.temporalities if content else frozenset()

    @property
    def byte_size(self) -> int:
        """The encoded size in bytes, which `sizer: bytes` measures."""
        size = 0
        for content in self._contents.values():
            size += len(content.encoded)
        return size

    def copy(self) -> "Batch":
        """An independent batch with the same content. Costs nothing until one of the two is edited."""
        return self.only(ALL_SIGNALS)

    def only(self, signals: Iterable[Signal]) -> "Batch":
        """A copy with only these signals."""
        copy = Batch()
        for signal in signals:
            if content := self._contents.get(signal):
                copy._contents[signal] = content.share(self, copy)
        return copy

    def is_readable(self, signals: Collection[Signal] = ALL_SIGNALS) -> bool:
        """Whether reading these messages costs little. Parses them, unless that takes long: `make_readable` does it."""
        return all(content.read_at_once() for signal, content in self._contents.items() if signal in signals)

    async def make_readable(self, signals: Collection[Signal] = ALL_SIGNALS) -> None:
        """Parses the messages that the caller is about to read: in a thread if that takes long.

        A large message takes 5 ms a MiB, and mending one up to 0.5 s a MiB. Reading raises the errors.
        """
        if not self.is_readable(signals):
            await compute(lambda: self._try_to_read(signals))

    def _try_to_read(self, signals: Collection[Signal]) -> None:
        for signal, content in self._contents.items():
            if signal in signals:
                content.try_to_read()


def _joined(known: Iterable[Set[int] | None]) -> Set[int] | None:
    """All temporalities; None if some are not known."""
    joined: set[int] = set()
    for temporalities in known:
        if temporalities is None:
            return None
        joined |= temporalities
    return joined
