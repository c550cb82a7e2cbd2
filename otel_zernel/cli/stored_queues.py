"""The content of stored queues, for `otel-zernel queue`. It changes nothing, so a collector may use them meanwhile."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from otel_zernel.batch import SIGNALS, Batch, Signal, split_batch
from otel_zernel.errors import CannotStart, DecodeError
from otel_zernel.otlp.json import to_json
from otel_zernel.registry import Registry
from otel_zernel.storage import JournalView, Record, Storage, StorageFailed
from otel_zernel.text import quoted, suggestion

LINE_ITEMS = 1000
"""The most items in an exported line, as in the `file` exporter: many log readers reject lines over 1 MiB."""
_UNITS: dict[Signal, str] = {
    "metrics": "metric points",
    "traces": "spans",
    "logs": "log records",
    "profiles": "profile samples",
}


def journals(registry: Registry, directory: Path, component: str | None = None) -> list[JournalView]:
    """The queues in the directory of a storage extension of any installed type; of one component if it is named.

    Raises `CannotStart` with one sentence if there is none.
    """
    if not directory.is_dir():
        raise CannotStart(f"{directory} is not a directory; name the directory of a storage extension")
    try:
        views = [view for cls in _storages(registry) for view in cls.look(directory)]
    except StorageFailed as error:
        raise CannotStart(str(error)) from error
    if not views:
        raise CannotStart(f"{directory} has no queue; name the directory of a storage extension")
    components = {view.component for view in views}
    if component is None:
        return views
    if component not in components:
        hint = suggestion(component, components, "components")
        raise CannotStart(f"{directory} has no queue of {quoted(component)}{hint}")
    return [view for view in views if view.component == component]


def _storages(registry: Registry) -> Iterator[type[Storage]]:
    for type_ in registry.aliases("extensions"):
        cls = registry.load("extensions", type_)
        if issubclass(cls, Storage):
            yield cls


def description(view: JournalView, now_ns: int) -> str:
    """Lines of YAML about one queue."""
    records = list(view.records())
    lines = [f"{view.component}:", f"  batches: {len(records)}"]
    for signal in SIGNALS:
        items = sum(record.items for record in records if record.signal == signal)
        lines.append(f"  {_UNITS[signal]}: {items}")
    lines += [f"  bytes: {sum(record.size for record in records)}", f"  bytes on disk: {view.disk_bytes}"]
    lines.append(f"  oldest: {_age(records[0].time_ns, now_ns) if records else 'none'}")
    lines.append("  damage:" if view.damage else "  damage: none")
    lines += [f"    - {quoted(str(damage))}" for damage in view.damage]
    return "\n".join(lines)


def _age(time_ns: int, now_ns: int) -> str:
    at = datetime.fromtimestamp(time_ns // 10**9, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    seconds = max(0, now_ns - time_ns) // 10**9
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    age = f"{hours}h{minutes}m{seconds}s" if hours else f"{minutes}m{seconds}s" if minutes else f"{seconds}s"
    return f"{at} ({age} ago)"


@dataclass
class Export:
    """Writes queues as lines of OTLP JSON. `problems` has a sentence for each batch that cannot be written."""

    batches: int = 0
    problems: list[str] = field(default_factory=list)

    def lines(self, view: JournalView) -> Iterator[bytes]:
        """The lines of one queue, oldest batch first, without newlines."""
        for record in view.records():
            try:
                pieces = list(_lines(view.read(record), record))
            except (StorageFailed, DecodeError) as error:
                self.problems.append(f"{view.component}: cannot export batch {record.sequence}: {error}")
                continue
            self.batches += 1
            yield from pieces


def _lines(data: bytes, record: Record) -> Iterator[bytes]:
    batch = Batch.encoded(record.signal, data, record.items)
    return (to_json(piece.message(record.signal)) for piece in split_batch(batch, LINE_ITEMS))
