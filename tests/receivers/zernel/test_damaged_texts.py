"""A text that is not UTF-8, or a deep value, in a message of the feed costs nothing else and no connection."""

import json
from pathlib import Path

import pytest
from websockets.asyncio.server import ServerConnection, serve

from otel_zernel.testing import until
from tests.exporters.otlp.collectors import collector
from tests.receivers.damaged_texts import BAD
from tests.receivers.zernel.feeds import WHOLE

DEEP = '{"a":' * 200 + "1" + "}" * 200


@pytest.mark.parametrize(
    "damage",
    [b'"comment": "%s", ' % BAD, b'"%s": 1, ' % BAD, b'"deep": %s, ' % DEEP.encode()],
    ids=["text", "name", "deep value"],
)
async def test_the_other_fields_of_a_message_arrive(damage: bytes, tmp_path: Path) -> None:
    message = json.dumps(WHOLE).encode().replace(b"{", b"{" + damage, 1)
    clients = []

    async def feed(connection: ServerConnection) -> None:
        clients.append(connection)
        await connection.send(message, text=True)
        await connection.wait_closed()

    path = tmp_path / "out.json"
    async with serve(feed, "127.0.0.1", 0) as server:
        port = next(iter(server.sockets)).getsockname()[1]
        settings = {
            "receivers": {"zernel": {"endpoint": f"ws://127.0.0.1:{port}"}},
            "processors": {"attributes": {"actions": [{"key": "x", "value": "y", "action": "upsert"}]}},
            "exporters": {"file": {"path": str(path)}},
            "service": {
                "pipelines": {"m": {"receivers": ["zernel"], "processors": ["attributes"], "exporters": ["file"]}}
            },
        }
        async with collector(tmp_path, settings):
            await until(lambda: path.exists() and path.read_text().endswith("\n"), within=60)
    text = path.read_text()
    assert "zernel.cuda.memory.used" in text
    assert "zernel.dataloader.wait.percentiles" in text
    assert len(clients) == 1
    assert "No feed" not in (tmp_path / "log").read_text()
