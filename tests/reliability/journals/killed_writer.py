"""The process that is killed: it appends and removes, and notes every answer. Imports little, to start fast."""

import asyncio
import struct
from multiprocessing.connection import Connection
from pathlib import Path

from otel_zernel.clock import SystemClock
from otel_zernel_extensions.file_storage.journal.journal import FileJournal
from otel_zernel_extensions.file_storage.journal.limits import JournalLimits

LIMITS = JournalLimits(segment_size=100_000)
SENDERS = 8
NOTE = struct.Struct("<?QQ")
"""Whether the record was removed; its sequence; the number in its data."""


def data_of(number: int) -> bytes:
    return number.to_bytes(8, "big") * (number % 700 + 1)


def write(folder: Path, start: int, notes: Connection) -> None:
    """Appends and removes until it is killed, and notes every answer."""
    asyncio.run(_write(folder, start, notes))


async def _write(folder: Path, start: int, notes: Connection) -> None:
    journal = await FileJournal.open(folder, SystemClock(), LIMITS)
    numbers = iter(range(start, 1 << 60))

    async def send() -> None:
        while True:
            number = next(numbers)
            record = await journal.append("metrics", data_of(number), 1)
            notes.send_bytes(NOTE.pack(False, record.sequence, number))
            if number % 3:
                notes.send_bytes(NOTE.pack(True, record.sequence, number))
                journal.remove(record)

    await asyncio.gather(*(send() for _ in range(SENDERS)))
