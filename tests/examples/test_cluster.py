"""The whole chain of examples/cluster: every row arrives once, also when processes die in the middle."""

import asyncio
import importlib.util
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from examples.cluster.chain import Chain
from examples.cluster.counting import Store
from examples.cluster.faults import Fault, apply
from examples.cluster.network import network
from examples.cluster.rows import write_rows
from examples.cluster.services import PASSWORD
from tests.interop.installed import miss
from tests.interop.recording import recorded, recording
from tests.libraries.store.given import config, flat, read_all
from tests.postgres import skip_without_postgres

pytestmark = pytest.mark.timeout(1000)
PATIENCE = 400.0
"""Seconds for all rows on a busy machine."""


@contextmanager
def running(rows: Path, batch: int, interval: str) -> Iterator[Chain]:
    """The chain without gateways, in a folder with a short name: paths of sockets are short."""
    skip_without_postgres()
    for package in ("noida_db", "confluent_kafka", "asyncpg"):
        if importlib.util.find_spec(package) is None:
            miss(f"the package {package} is missing: `make peers` installs it")
    with tempfile.TemporaryDirectory(prefix="zc") as folder:
        Path(folder).chmod(0o755)
        chain = Chain(Path(folder), network(), rows, batch, interval, gateway_count=0)
        try:
            chain.build()
            chain.start()
            yield chain
        finally:
            chain.close()


def stored(chain: Chain, count: int) -> int:
    """The number of rows in the store, once it has so many, or after `PATIENCE`."""
    store, found = Store(chain.store_url), 0
    for _ in chain.wait(PATIENCE):
        found = store.count().rows
        if found >= count:
            break
    return found


def test_every_row_of_a_recording_of_dcgm_exporter_arrives_unchanged() -> None:
    expected = flat([asyncio.run(recorded()).metrics])
    with running(recording(), 1000, "10ms") as chain:
        assert stored(chain, 2470) == 2470
        batches = asyncio.run(read_all(config(url=chain.store_url, password=PASSWORD), size=5000))
        assert flat(batch.metrics for batch in batches) == expected


@pytest.mark.parametrize("killed", [("streamer-1", "collector-0", "database"), ("broker",)], ids=" ".join)
def test_every_row_arrives_once_although_processes_are_killed(killed: tuple[str, ...], tmp_path: Path) -> None:
    rows = tmp_path / "rows.csv"
    write_rows(rows, 4000)
    with running(rows, 100, "50ms") as chain:
        for name in killed:
            stored(chain, 200)
            apply(Fault("kill", name), chain)
        assert stored(chain, 4000) == 4000
        assert Store(chain.store_url).count().duplicates == 0
        assert all(chain.nodes[name].starts > 1 for name in killed)


def test_a_cut_link_and_a_full_disk_cost_no_row(tmp_path: Path) -> None:
    rows = tmp_path / "rows.csv"
    write_rows(rows, 4000)
    with running(rows, 100, "50ms") as chain:
        if not chain.network.can_cut or not chain.nodes["collector-0"].disk.can_fill:
            pytest.skip("needs root, for network namespaces and small file systems")
        for fault in (Fault("cut", "broker"), Fault("fill", "collector-1"), Fault("cut", "database")):
            stored(chain, 200)
            apply(fault, chain)
        assert stored(chain, 4000) == 4000
        assert Store(chain.store_url).count().duplicates == 0
