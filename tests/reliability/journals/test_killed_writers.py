"""`kill -9` at a random moment: every batch whose append was answered is there afterwards."""

import multiprocessing
import random
import time
from pathlib import Path

import pytest

from tests.extensions.file_storage.parts import opened
from tests.reliability.journals.killed_writer import LIMITS, NOTE, SENDERS, data_of, write


class Campaign:
    """Kills one writer after another on the same journal, and checks it each time."""

    def __init__(self, folder: Path, seed: int) -> None:
        self._folder = folder
        self._random = random.Random(seed)
        self._answered: dict[int, int] = {}
        """Numbers by sequence, without those that were removed."""
        self._removed: dict[int, int] = {}
        self._next = 0
        self.appended = self.returned = 0

    async def kill_one(self) -> None:
        self._run_and_kill()
        async with opened(self._folder, LIMITS) as journal:
            assert [one.reason for one in journal.damage if one.records] == []
            found = {record.sequence: record for record in journal.records()}
            assert list(found) == sorted(found)
            lost = self._answered.keys() - found.keys()
            assert lost == set(), f"{len(lost)} answered batches are lost"
            for sequence, record in found.items():
                data = journal.read(record)
                number = int.from_bytes(data[:8], "big")
                assert data == data_of(number)
                assert number == (self._answered | self._removed).get(sequence, number)
            self.returned += len(found.keys() & self._removed.keys())
            for record in self._random.sample(list(found.values()), len(found) * 2 // 3):
                journal.remove(record)
                del found[record.sequence]
            self._answered = {one: int.from_bytes(journal.read(found[one])[:8], "big") for one in found}
            self._removed.clear()

    def _run_and_kill(self) -> None:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["asyncio", "otel_zernel_extensions.file_storage.journal.journal"])
        receiving, sending = context.Pipe(duplex=False)
        writer = context.Process(target=write, args=(self._folder, self._next, sending))
        writer.start()
        sending.close()
        deadline: float | None = None
        try:
            while deadline is None or time.monotonic() < deadline:
                if receiving.poll(0.001):
                    self._take(receiving.recv_bytes())
                    deadline = deadline or time.monotonic() + self._random.random() * 0.15
        finally:
            writer.kill()
        try:
            while True:
                self._take(receiving.recv_bytes())
        except EOFError:
            writer.join()

    def _take(self, note: bytes) -> None:
        removed, sequence, number = NOTE.unpack(note)
        if removed:
            self._removed[sequence] = self._answered.pop(sequence)
        else:
            self._answered[sequence] = number
            self.appended += 1
        self._next = max(self._next, number + SENDERS + 1)


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kills", [15, pytest.param(1000, marks=pytest.mark.soak)])
async def test_every_answered_append_survives_kill_9(tmp_path: Path, kills: int) -> None:
    campaign = Campaign(tmp_path / "q", seed=kills)
    for _ in range(kills):
        await campaign.kill_one()
    print(f"{kills} kills, {campaign.appended} answered appends, 0 lost, {campaign.returned} removed ones returned")
    assert campaign.appended > kills
