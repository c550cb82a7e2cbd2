"""One signal of a batch, parsed and encoded only when needed."""

from collections.abc import Set
from contextlib import suppress
from weakref import WeakSet

from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

from otel_zernel.batch.counts import count_items, temporalities_of
from otel_zernel.batch.parsing import LARGE, parse_mended, parse_sound
from otel_zernel.batch.pieces import count_encoded
from otel_zernel.batch.signals import MESSAGE_TYPES, Signal, SignalData
from otel_zernel.errors import DecodeError


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
        found: set[int] = set()
        count_encoded(self._signal, self.encoded, temporalities=found)
        return found

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
        self._message, self._encoded, self._count, self._temporalities = self.message, None, None, None
        return self
