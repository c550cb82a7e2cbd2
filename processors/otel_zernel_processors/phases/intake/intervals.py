"""What was seen of a process: its spans, reduced to what the timeline needs."""

from typing import Literal, NamedTuple, get_args

from opentelemetry.proto.trace.v1.trace_pb2 import Span

Kind = Literal["data_loading", "optimizer", "zero_grad", "backward", "ddp", "user", "sync", "collective"]
"""`zernel.interval` of docs/spans.md."""
KINDS = frozenset(get_args(Kind))

WORK = frozenset({"backward", "optimizer"})
"""What only a training step does."""


class Mark(NamedTuple):
    """An interval on a thread. Times are ns since 1970. Ordered by end, the order in which marks are known."""

    end: int
    start: int
    thread: int
    kind: str
    name: str
    in_flight: bool = False
    """Of a collective: whether the interval reaches to its completion, rather than only covering the call."""
    span: Span | None = None
    """Kept of what traces show again: collectives and syncs."""

    @property
    def waits_for_collective(self) -> bool:
        """Whether the thread does nothing here but wait for other ranks.

        `finalize_backward` is where DDP's reducer waits for its buckets.
        """
        return self.name.startswith("c10d::") if self.kind == "sync" else self.name.endswith("::finalize_backward")


def mark_of(span: Span) -> Mark | None:
    """The mark of a span in the form of docs/spans.md; None if it has none or makes no sense."""
    kind, thread, source = "", 0, ""
    for attribute in span.attributes:
        key = attribute.key  # reading a message's field costs more than all else here
        if key == "zernel.interval":
            kind = attribute.value.string_value
            if thread and kind != "collective":
                break
        elif key == "thread.id":
            thread = attribute.value.int_value
            if kind and kind != "collective":
                break
        elif key == "zernel.timing.source":
            source = attribute.value.string_value
    start, end = span.start_time_unix_nano, span.end_time_unix_nano
    if kind not in KINDS or not 0 < start <= end:
        return None
    kept = span if kind in ("sync", "collective") else None
    return Mark(end, start, thread, kind, span.name, kind == "collective" and source != "host_enqueue", kept)


_DEATHS = frozenset({"exit", "signal"})
"""`zernel.process.end` of a process that is no more; after `exec` it goes on as another program."""


def tells_death(span: Span) -> bool:
    """Whether it covers a process that is no more."""
    return any(one.key == "zernel.process.end" and one.value.string_value in _DEATHS for one in span.attributes)


def covers_process(span: Span) -> bool:
    """Whether it covers a process as a whole, which is part of no step."""
    return any(one.key == "zernel.interval" and one.value.string_value == "process" for one in span.attributes)
