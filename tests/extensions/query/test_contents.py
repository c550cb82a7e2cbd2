"""Hosts, GPUs, the summary and the health of a store."""

from pathlib import Path

import pytest

from tests.extensions.query.serving import Served, gauge, serving
from tests.libraries.store.given import sqlite_config


async def test_hosts_and_their_gpus_are_listed(served: Served) -> None:
    for host, gpus in (("n1", 2), ("n2", 1)):
        for index in range(gpus):
            metrics = [gauge(name, [1.0], hw_id=f"GPU-{host}-{index}") for name in ("hw.power", "hw.temperature")]
            await served.write(*metrics, host_name=host, zernel_gpu_index=str(index), hw_model="H100")
    assert await served.data("/telemetry/hosts") == [
        {"host_id": "n1", "gpus": 2, "series": 4},
        {"host_id": "n2", "gpus": 1, "series": 2},
    ]
    assert await served.data("/telemetry/hosts/n1/gpus") == [
        {"gpu_id": str(index), "uuid": f"GPU-n1-{index}", "model": "H100", "series": 2} for index in (0, 1)
    ]
    assert (await served.get("/telemetry/hosts/n9/gpus")).status == 404


async def test_the_summary_counts_the_store(served: Served) -> None:
    empty = (await served.get("/stats/summary")).json
    assert empty["points"] == 0
    assert empty["oldest"] is None
    await served.write(gauge("m", [1.0, 2.0], hw_id="a"), host_name="n1")
    found = (await served.get("/stats/summary")).json
    assert (found["points"], found["series"], found["hosts"], found["gpus"]) == (2, 1, 1, 1)
    assert (found["oldest"], found["newest"]) == ("2023-11-14T22:13:20.000000000Z", "2023-11-14T22:13:21.000000000Z")


async def test_a_store_that_has_no_tables_yet_is_waited_for(tmp_path: Path) -> None:
    settings = sqlite_config(tmp_path)
    async with serving(settings, url=f"sqlite://{tmp_path}/later.db") as served:
        assert (await served.api.get("/health")).status == 503
        answer = await served.get("/telemetry")
        assert answer.status == 503
        assert "does not exist yet" in answer.json["detail"]
        (tmp_path / "later.db").symlink_to(tmp_path / "metrics.db")
        assert (await served.api.get("/health")).json == {"status": "ok"}


async def test_counts_of_hosts_are_integers_in_arrow(served: Served) -> None:
    arrow = pytest.importorskip("pyarrow.ipc")
    await served.write(gauge("hw.power", [1.0], hw_id="GPU-1"), host_name="n1")
    answer = await served.get("/telemetry/hosts?format=arrow")
    assert arrow.open_stream(answer.body).read_all().to_pylist() == [{"host_id": "n1", "gpus": 1, "series": 1}]
