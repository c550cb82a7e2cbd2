"""Any sequence of appends, removals, restarts and crashes, compared with a model."""

import asyncio
import shutil
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given
from hypothesis import strategies as st

from otel_zernel.batch import SIGNALS, Signal
from otel_zernel.clock import SystemClock
from otel_zernel.storage import Record
from otel_zernel_extensions.file_storage.journal.journal import FileJournal
from otel_zernel_extensions.file_storage.journal.limits import JournalLimits

Step = tuple[str, list[int]]
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.lists(st.integers(0, 700), min_size=1, max_size=8)),
        st.tuples(st.just("remove"), st.lists(st.integers(0, 50), max_size=8)),
        st.tuples(st.sampled_from(["restart", "crash", "look"]), st.just([])),
    ),
    max_size=25,
)
LIMITS = JournalLimits(segment_size=2000, fsync=False)  # a test cannot cut the power; `kill -9` needs no sync


class Model:
    """A journal, and what must be in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.stored: dict[int, tuple[Record, bytes]] = {}
        self.removed: set[int] = set()

    async def run(self, steps: Sequence[Step]) -> None:
        self.journal = await self._open()
        for name, numbers in steps:
            await getattr(self, name)(numbers)
        await self.restart([])
        await self.journal.close()

    async def _open(self) -> FileJournal:
        return await FileJournal.open(self.folder, SystemClock(), LIMITS)

    async def append(self, sizes: list[int]) -> None:
        data = [bytes([len(sizes)]) * size for size in sizes]
        signals: list[Signal] = [SIGNALS[size % 3] for size in sizes]
        records = await asyncio.gather(
            *(self.journal.append(signal, one, 3) for signal, one in zip(signals, data, strict=True))
        )
        assert not {record.sequence for record in records} & (self.stored.keys() | self.removed)
        assert [record.signal for record in records] == signals
        self.stored |= {record.sequence: (record, one) for record, one in zip(records, data, strict=True)}

    async def remove(self, numbers: list[int]) -> None:
        for number in numbers:
            if self.stored:
                sequence = list(self.stored)[number % len(self.stored)]
                self.removed.add(sequence)
                self.journal.remove(self.stored.pop(sequence)[0])

    async def look(self, _: list[int]) -> None:
        for record, data in self.stored.values():
            assert self.journal.read(record) == data

    async def restart(self, _: list[int]) -> None:
        await self.journal.close()
        self.journal = await self._open()
        self._compare()

    async def crash(self, _: list[int]) -> None:
        """`kill -9` leaves all that was written: a copy of the files, taken while the journal is open and idle.

        An append that is answered shows that the removals before it are noted. `tests/reliability` kills at any moment.
        """
        await self.append([1])
        copy = self.folder.with_name("copy")
        shutil.copytree(self.folder, copy)
        await self.journal.close()
        shutil.rmtree(self.folder)
        copy.rename(self.folder)
        self.journal = await self._open()
        self._compare()

    def _compare(self) -> None:
        found = {record.sequence: record for record in self.journal.records()}
        assert list(found) == sorted(found)
        assert found.keys() == self.stored.keys()
        assert self.journal.damage == ()
        for sequence, record in found.items():
            assert record == self.stored[sequence][0]
            assert self.journal.read(record) == self.stored[sequence][1]
            self.stored[sequence] = record, self.stored[sequence][1]


@given(STEPS)
def test_a_journal_has_exactly_the_records_that_are_appended_and_not_removed(steps: list[Step]) -> None:
    with TemporaryDirectory() as made:
        asyncio.run(Model(Path(made) / "queue").run(steps))
