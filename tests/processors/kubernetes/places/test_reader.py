"""A thread reads processes. One that is stuck holds up no batch."""

import asyncio
import os
from pathlib import Path

import pytest

from otel_zernel.testing import until
from otel_zernel_processors.kubernetes.places.processes import ProcessKey
from otel_zernel_processors.kubernetes.sources import PlaceReader
from tests.processors.kubernetes.places.test_processes import GROUP, POD, places_in
from tests.processors.kubernetes.tree import ProcTree


async def test_many_processes_are_read_in_parts(tmp_path: Path) -> None:
    tree = ProcTree(tmp_path / "proc")
    keys = [ProcessKey(pid, tree.add(pid, cgroup=GROUP)) for pid in range(1, 400)]
    places = places_in(tree)
    reader = PlaceReader(places)
    await reader.read(keys)
    missing = [key for key in keys if places.missing(key)]
    assert len(missing) == 399 - 256
    await reader.read(missing)
    assert not any(map(places.missing, keys))
    reader.close()


async def test_a_stuck_process_holds_up_neither_the_caller_nor_what_was_read_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("otel_zernel_processors.kubernetes.sources._HANGS", 0.0)
    tree = ProcTree(tmp_path / "proc")
    first, second = (ProcessKey(pid, tree.add(pid, cgroup=GROUP)) for pid in (1, 2))
    stuck = tmp_path / "proc" / "2" / "environ"
    os.mkfifo(stuck)  # opening it waits for a writer
    places = places_in(tree)
    reader = PlaceReader(places)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(reader.read([first, second]), 0.2)
    assert reader.hangs
    await reader.read([second])
    assert places.known(first).container.pod_uid == POD
    assert places.missing(second)
    with stuck.open("wb") as writer:
        writer.write(b"SLURM_JOB_ID=1\0")

    def is_read() -> bool:
        reader.take()
        return not places.missing(second)

    await until(is_read)
    assert places.known(second).container.pod_uid == POD
    reader.close()
