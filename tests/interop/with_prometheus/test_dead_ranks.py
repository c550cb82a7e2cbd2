"""The query of the ebpf receiver's README names the ranks that died, in Debian's Prometheus."""

import re
from collections.abc import Callable
from pathlib import Path

from otel_zernel.testing import until
from otel_zernel_receivers import ebpf
from tests.interop.prometheus import scraping
from tests.receivers.ebpf.standin import Standin
from tests.receivers.ebpf.standin.fixture import build_standin as build_standin
from tests.receivers.ebpf.standin.fixture import standin as standin
from tests.receivers.ebpf.test_ends import Collector, collector, ranked_job
from tests.receivers.ebpf.watching import loadable as loadable
from tests.receivers.ebpf.watching import own_programs as own_programs

README = Path(ebpf.__file__).with_name("README.md")


async def test_the_documented_query_names_the_rank_that_died_and_the_signal(
    loadable: None, standin: Standin, peer: Callable[[str], Path], tmp_path: Path, unused_tcp_port: int
) -> None:
    (query,) = re.findall(
        r"^\| Which rank died, and for which reason\? \| Prometheus: `([^`]+)`", README.read_text(), re.MULTILINE
    )
    with collector(tmp_path) as running:
        await until(running.page)
        async with scraping(peer("prometheus"), tmp_path, unused_tcp_port, training=running.port) as prometheus:
            await train(running, standin, "2", is_killed=False)
            await train(running, standin, "3", is_killed=True)
            await prometheus.until('count(zernel_process_ends_total{zernel_rank=~"2|3"})', 2)
            died = [labels for labels, _ in await prometheus.series(query)]
    assert [(one["zernel_rank"], one["process_signal"]) for one in died] == [("3", "SIGKILL")]


async def train(running: Collector, standin: Standin, rank: str, *, is_killed: bool) -> None:
    """A rank with a worker that trains until the collector has seen it; then it ends or is killed."""
    with ranked_job(standin, RANK=rank) as job:
        job.ask()

        def is_seen() -> bool:
            job.ask("step")
            return bool(running.series("zernel_dataloader_workers", process_pid=str(job.pid)))

        await until(is_seen)
        if not is_killed:
            job.close_input()
            assert job.process.wait() == 0
