"""A durable queue is the write-ahead log: after kill -9 and an outage, every sample arrives, and in order."""

import signal
from collections.abc import Callable
from pathlib import Path

from starlette.responses import Response

from otel_zernel.testing import until
from tests.exporters.otlp.collectors import collector, send
from tests.exporters.prometheusremotewrite.receiver import WriteReceiver
from tests.libraries.prometheus.otlp import SECOND, data, gauge, number

START = 1_760_000_000 * SECOND
GPUS = 5


def reading(second: int) -> bytes:
    """A request of OTLP with one value of each GPU."""
    points = (number(float(second), {"gpu": str(gpu)}, time=START + second * SECOND) for gpu in range(GPUS))
    return data(gauge("g", *points)).SerializeToString()


async def test_every_sample_arrives_in_order_after_kill_9_and_an_outage(
    tmp_path: Path, unused_tcp_port_factory: Callable[[], int]
) -> None:
    port, receiver = unused_tcp_port_factory(), WriteReceiver()
    async with receiver.serve() as url:
        settings = {
            "receivers": {"otlp": {"protocols": {"grpc": {"endpoint": f"127.0.0.1:{port}"}}}},
            "exporters": {
                "prometheus_remote_write": {
                    "endpoint": url,
                    "sending_queue": {"storage": "file_storage"},
                    "retry_on_failure": {"max_interval": "100ms"},
                }
            },
            "extensions": {"file_storage": {"directory": str(tmp_path / "queue"), "create_directory": True}},
            "service": {
                "extensions": ["file_storage"],
                "pipelines": {"metrics": {"receivers": ["otlp"], "exporters": ["prometheus_remote_write"]}},
            },
        }
        for first in range(0, 40, 10):
            async with collector(tmp_path / "collector", settings, port) as process:
                receiver.answers.extend([Response("down", 503)] * 3)
                await send(port, *map(reading, range(first, first + 10)))
                if first < 20:  # some samples may be delivered at this moment, and some are only on the disk
                    process.send_signal(signal.SIGKILL)
                    await process.wait()
                    continue
                await until(lambda: _is_complete(receiver, first + 10))  # noqa: B023  # called at once
        assert _is_complete(receiver, 40)
        assert len(receiver.named("g")) == GPUS


def _is_complete(receiver: WriteReceiver, seconds: int) -> bool:
    """Whether each series has its value of every second, in order."""
    found = [[value for _, value in samples] for samples in receiver.named("g").values()]
    return bool(found) and all(values == [float(second) for second in range(seconds)] for values in found)
