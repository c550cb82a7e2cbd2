"""Records as CSV (RFC 4180) and as an Arrow stream."""

import csv
import io
import json
from collections.abc import Mapping, Sequence
from typing import Any

Record = Mapping[str, Any]
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def csv_bytes(records: Sequence[Record], names: Sequence[str]) -> bytes:
    """A line of names and a line for each record. Maps and lists are JSON. A missing value is empty.

    A text that a spreadsheet would run as a formula begins with an apostrophe.
    """
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(names)
    writer.writerows([[_cell(record.get(name)) for name in names] for record in records])
    return text.getvalue().encode("utf-8", "replace")


def _cell(value: Any) -> Any:
    if isinstance(value, str):
        return f"'{value}" if value.startswith(_FORMULA) and value != "-Infinity" else value
    return _json(value) if isinstance(value, dict | list) else value


def arrow_bytes(records: Sequence[Record], names: Sequence[str]) -> bytes:
    """An Arrow IPC stream: times in ns, counts as integers, other numbers as doubles, maps and lists as JSON.

    Raises `ImportError` without pyarrow.
    """
    import pyarrow as pa
    from pyarrow import ipc

    columns = {name: _column(pa, name, [record.get(name) for record in records]) for name in names}
    table = pa.table(columns)
    sink = pa.BufferOutputStream()
    with ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    found: bytes = sink.getvalue().to_pybytes()
    return found


_COUNTS = ("count", "gpus", "series")
_MOST = 2**64 - 1
_TIMES = ("timestamp", "start", "end")
_NUMBERS = ("value", "avg", "min", "max", "sum", "rate")


def _column(pa: Any, name: str, values: Sequence[Any]) -> Any:
    if name in _TIMES:
        return pa.array(values, pa.string()).cast(pa.timestamp("ns", "UTC"))
    if name in _COUNTS:
        return pa.array([None if value is None else min(value, _MOST) for value in values], pa.uint64())
    if name in _NUMBERS or (name[:1] == "p" and name[1:].isdecimal()):
        return pa.array([None if value is None else float(value) for value in values], pa.float64())
    return pa.array([_json(value) if isinstance(value, dict | list) else value for value in values], pa.string())


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
