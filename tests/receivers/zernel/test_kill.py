"""kill -9 of either side of a feed: the other one goes on, and both find each other again."""

import signal
from pathlib import Path

from otel_zernel.testing import until
from tests.collectors import running_collector
from tests.examples.seed_data import recorded
from tests.exporters.websocket.feeds import feeding, memory
from tests.receivers.zernel.feeds import receiving, rows_of

TELEMETRY = "  telemetry: {metrics: {level: none}}\n"


async def test_a_feed_that_is_killed_ends_its_series_and_comes_back(tmp_path: Path, unused_tcp_port: int) -> None:
    data = tmp_path / "data.jsonl"
    data.write_text(recorded())
    config = (
        f"receivers: {{otlp_json_file: {{include: ['{data}'], loop: true}}}}\n"
        f"exporters: {{websocket: {{endpoint: 'localhost:{unused_tcp_port}', push_interval: 100ms}}}}\n"
        "service:\n  pipelines: {metrics: {receivers: [otlp_json_file], exporters: [websocket]}}\n" + TELEMETRY
    )
    async with receiving(f"ws://localhost:{unused_tcp_port}") as (received, context):
        for _ in range(2):
            received.batches.clear()
            with running_collector(tmp_path, config, end=signal.SIGKILL):
                await until(lambda: any(len(rows_of(batch)) > 6 for batch in received.batches))
                assert not context.health.sentences(0)
            await until(lambda: context.health.sentences(0))
            assert {value for _, _, value in rows_of(received.batches[-1])} == {None}


async def test_a_receiver_that_is_killed_leaves_its_place_and_comes_back(tmp_path: Path) -> None:
    async with feeding() as exporter:
        await exporter.export(memory(5))
        config = (
            f"receivers: {{zernel: {{endpoint: 'ws://{exporter.address}'}}}}\n"
            "exporters: {debug: null}\n"
            "service:\n  pipelines: {metrics: {receivers: [zernel], exporters: [debug]}}\n" + TELEMETRY
        )
        for _ in range(2):
            with running_collector(tmp_path, config, end=signal.SIGKILL):
                await until(lambda: len(exporter.readers) == 1)
            await until(lambda: not len(exporter.readers))
