"""Positions in files: where reading goes on after a restart."""

import json
from collections.abc import Container, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from otel_zernel.component import Context
from otel_zernel.errors import CannotStart
from otel_zernel.storage import KeyValues, Storage, StorageFailed
from otel_zernel_libraries.files.sources import Problems

MAX_CLOSED = 10_000
"""The maximum number of remembered positions in files that are not open; about 5 MB."""


@dataclass(frozen=True, slots=True)
class Position:
    """How far a file was read."""

    offset: int
    """Bytes from the beginning of the file."""
    fingerprint: str
    """Identifies the content before the offset (`GrowingFile.fingerprint`)."""
    resume: Mapping[str, Any]
    """What its reader needs to go on, as JSON."""

    @classmethod
    def parse(cls, encoded: bytes) -> "Position | None":
        """The position in stored bytes; None if they are not one."""
        try:
            position = cls(**json.loads(encoded))
        except (ValueError, TypeError):
            return None
        valid = isinstance(position.offset, int) and isinstance(position.resume, dict)
        return position if valid and isinstance(position.fingerprint, str) else None


async def open_values(context: Context, storage: str | None) -> KeyValues | None:
    """The stored values of a component in the storage extension with this id; None without an id.

    Raises `CannotStart`.
    """
    if storage is None:
        return None
    extension = context.extension(storage)
    if not isinstance(extension, Storage):
        raise CannotStart(
            f"{context.path}::storage: {storage} is not a storage extension; name one, such as file_storage"
        )
    return await extension.key_values(context.path)


class Positions:
    """The positions in all files, by the identity of the file; stored if there is a storage."""

    def __init__(self, problems: Problems, values: KeyValues | None = None, kept: dict[str, Any] | None = None) -> None:
        """`kept` is that of the component's context: without a storage, the positions outlive a reload."""
        self._problems = problems
        self._values = values
        self._known: dict[str, Position] = {} if kept is None else kept.setdefault("positions", {})
        """The one that changed last is at the end."""
        self._removed: list[str] = []

    async def load(self) -> None:
        """Reads the stored positions. Those that outlived a reload are newer."""
        for key in await self._values.keys() if self._values else ():
            encoded = await self._values.get(key) if self._values else None
            if encoded and (position := Position.parse(encoded)):
                self._known.setdefault(key, position)

    def get(self, key: str) -> Position | None:
        return self._known.get(key)

    def remove(self, key: str) -> None:
        """Forgets a file that does not exist any more. `tidy` removes it from the storage."""
        if self._known.pop(key, None):
            self._removed.append(key)

    async def commit(self, key: str, position: Position) -> None:
        """Remembers a position: what is before it was accepted downstream.

        If the storage fails, reading goes on. After a restart, the file is then read from its last stored position.
        """
        self._known.pop(key, None)
        self._known[key] = position
        await self._store(key, json.dumps(asdict(position)).encode())

    async def tidy(self, open_keys: Container[str]) -> None:
        """Removes the positions of removed files from the storage, and forgets the oldest of closed files."""
        if len(self._known) > MAX_CLOSED:
            closed = [key for key in self._known if key not in open_keys]
            for key in closed[: max(0, len(closed) - MAX_CLOSED)]:
                self.remove(key)
        removed, self._removed = self._removed, []
        for key in removed:
            if key not in self._known:
                await self._store(key, None)

    async def _store(self, key: str, value: bytes | None) -> None:
        if self._values is None:
            return
        try:
            await self._values.set(key, value)
        except StorageFailed as error:
            self._problems.warn("storage", f"cannot store positions in files, a restart will repeat rows: {error}")
        else:
            self._problems.clear("storage")
