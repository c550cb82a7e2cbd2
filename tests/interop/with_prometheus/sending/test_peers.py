"""The servers that other tests use are the ones that users run."""

from collections.abc import Callable
from pathlib import Path

from tests.interop.prometheus import configured, find_prometheus_3
from tests.interop.victoria_metrics import victoria
from tests.interop.with_prometheus.test_remote_write import now, written
from tests.otlp import data, gauge, number


async def test_prometheus_3_takes_remote_write(tmp_path: Path, unused_tcp_port: int) -> None:
    more = ("--web.enable-remote-write-receiver", "--web.enable-otlp-receiver")
    async with configured(find_prometheus_3(), tmp_path, unused_tcp_port, [], (), *more) as prometheus:
        assert (await prometheus.get("status/buildinfo"))["version"].startswith("3.")
        assert await written(unused_tcp_port, data(gauge("g", number(7.0, time=now())))) == {}
        assert await prometheus.value("g") == 7


async def test_victoria_metrics_takes_remote_write(
    peer: Callable[[str], Path], tmp_path: Path, unused_tcp_port: int
) -> None:
    async with victoria(peer("victoria-metrics"), tmp_path, unused_tcp_port) as server:
        assert await written(unused_tcp_port, data(gauge("g", number(7.0, time=now())))) == {}
        await server.until("g", 7)
