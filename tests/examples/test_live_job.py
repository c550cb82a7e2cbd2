"""examples/seed_compat.yaml watches a PyTorch job that runs, by eBPF."""

import asyncio
import os
import platform
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.examples.test_seed_compat import EXAMPLE, TYPES, Page, json_samples
from tests.interop.collector import collecting, page_with
from tests.receivers.ebpf.jobs.pytorch.torches import OWN, python_of
from tests.receivers.ebpf.watching import TEST_RUN, require_ebpf

JOB = EXAMPLE.with_name("train.py")


async def test_the_families_of_a_pytorch_job_on_the_cpu(tmp_path: Path, unused_tcp_port: int) -> None:
    require_ebpf()
    run = tmp_path.name
    config = {
        "receivers": {"ebpf": {"processes": {"environment": {TEST_RUN: run}}, "rescan_interval": "1s"}},
        "exporters": {"prometheus": {"endpoint": f"127.0.0.1:{unused_tcp_port}"}},
    }
    with training(TEST_RUN, run) as pid:
        async with collecting(tmp_path, unused_tcp_port, config, example=EXAMPLE) as client:
            waits = f'zernel_dataloader_wait_seconds_count{{pid="{pid}"}}'
            await page_with(client, waits, 'zernel_scheduler_tasks{type="ml"} 1', 'phase="data_loading"} 1\n')
            page: Page = {}
            while not sum(shares_of(page)):  # the first ones are those of an interval without steps
                await asyncio.sleep(0.1)
                families = (await client.get("/json")).json()
                page = dict(json_samples(families))
    assert set(families) <= {*TYPES, "zernel_scheduler_phase_transitions_total"}
    assert sum(shares_of(page)) > 99.9  # rounding
    wait = "zernel_dataloader_wait_seconds"
    quantiles = {name: page[wait, frozenset({("pid", str(pid)), ("quantile", name)})] for name in ("0.5", "0.99")}
    assert 16e-3 <= quantiles["0.5"] <= quantiles["0.99"], "16 pictures of a batch take at least 1 ms each"
    assert platform.node() not in str(families)


def shares_of(page: Page) -> list[float]:
    """The shares of the phases, in percent."""
    return [value for (name, _), value in page.items() if name == "zernel_scheduler_phase_time_pct"]


@contextmanager
def training(variable: str, value: str, **variables: str) -> Iterator[int]:
    """The pid of a PyTorch job that runs until the end of the context, with these variables in its environment."""
    environ = {**os.environ, variable: value, **variables}
    with subprocess.Popen([python_of(OWN), JOB, "1000"], env=environ, stdout=subprocess.DEVNULL) as job:
        try:
            yield job.pid
        finally:
            job.kill()
