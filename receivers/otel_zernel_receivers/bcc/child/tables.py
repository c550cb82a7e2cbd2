"""The content of BPF tables as JSON: keys and values as lists of integers and texts.

Bytes, such as those of `char comm[16]`, become a text with one character of latin-1 for each byte.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from otel_zernel_receivers.bcc.child.frames import LARGEST

_ROOM = LARGEST - 65_536
"""Bytes for the rows of an answer."""


class BpfTable:
    """One table of a program."""

    def __init__(self, bpf: Any, program: str, name: str, resolved: Mapping[str, str]) -> None:
        """`resolved` has the fields of keys that only this process can decode, with their decoders."""
        try:
            self._table = bpf[name.encode()]
        except KeyError:
            raise ValueError(f"the program has no table {name}") from None
        self.program = program
        self.name = name
        self.key = _fields(self._table.Key)
        self.value = _fields(getattr(self._table, "sLeaf", self._table.Leaf))
        self._cpus = hasattr(self._table, "sLeaf")
        decoders = _decoders(bpf)
        self._decode = {self.key.index(field): decoders[decoder] for field, decoder in resolved.items()}

    def rows(self, gone: Mapping[str, Sequence[int]]) -> Iterator[list[list[Any]]]:
        """Key and value of each entry. Deletes the entries in whose key a field has one of the `gone` values."""
        doomed = [(self.key.index(field), frozenset(values)) for field, values in gone.items()]
        deleted = []
        for key, value in self._table.items():
            row = _plain(key)
            if any(row[at] in values for at, values in doomed):
                deleted.append(key)
                continue
            for at, decode in self._decode.items():
                row[at] = decode(row[at])
            yield [row, self._value(value)]
        for key in deleted:
            self._table.__delitem__(key)

    def _value(self, value: Any) -> list[Any]:
        if not self._cpus:
            return _plain(value)
        return [sum(numbers) for numbers in zip(*map(_plain, value))]  # noqa: B905  # strict needs Python 3.10


def answer(tables: Sequence[BpfTable], gone: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The rows of all tables. Rows that do not fit into a message are counted in `over`."""
    left, answers = _ROOM, []
    for table in tables:
        mine = [fields for fields in gone if (fields["program"], fields["table"]) == (table.program, table.name)]
        rows, over = [], 0
        for row in table.rows({field_["field"]: field_["values"] for field_ in mine}):
            size = 16 + sum(22 if isinstance(value, int) else 6 * len(str(value)) + 3 for part in row for value in part)
            if size > left:
                over += 1
                continue
            left -= size
            rows.append(row)
        answers.append({"program": table.program, "table": table.name, "rows": rows, "over": over})
    return {"tables": answers}


def _fields(type_: Any) -> list[str]:
    """The names of a structure's fields, without the compiler's padding; one empty name for a plain number."""
    return [field_[0] for field_ in getattr(type_, "_fields_", ()) if not field_[0].startswith("__pad_")] or [""]


def _plain(item: Any) -> list[Any]:
    """The fields of a key or a value, each an integer or a text."""
    if isinstance(item, ctypes.Structure):
        return [_scalar(getattr(item, field)) for field in _fields(type(item))]
    return [_scalar(item)]


def _scalar(item: Any) -> Any:
    """An integer, or the bytes of anything else. ctypes hands out `char[n]` up to its first NUL."""
    if isinstance(item, bytes):
        return item.decode("latin-1")
    if isinstance(item, (int, float)):
        return item
    value = getattr(item, "value", None)
    return value if isinstance(value, (int, float)) else bytes(item).decode("latin-1")


def _decoders(bpf: Any) -> dict[str, Callable[[int], str]]:
    """The decoders that need tables of the kernel, or those of BCC."""
    from bcc.syscall import syscall_name

    return {
        "ksym": lambda address: bpf.ksym(address).decode("latin-1"),
        "syscall": lambda number: syscall_name(number).decode("latin-1"),
    }
