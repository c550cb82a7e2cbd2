"""Where the state comes from: the stream of a collector, the older feed, files."""

import asyncio
import contextlib
import json
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.server import ServerConnection
from websockets.asyncio.server import serve as serve_websocket

from otel_zernel.component import Finding
from otel_zernel.errors import CannotStart, DecodeError
from otel_zernel.testing import until
from otel_zernel_commands.watch.sources import SourceOptions, WatchSource, source_of, watch_source
from otel_zernel_commands.watch.sources.choosing import require_probes
from otel_zernel_commands.watch.sources.live_stream import EventParser, LiveStreamSource, ServerSentEvent
from otel_zernel_commands.watch.sources.seed_feed import SeedFeedSource, state_of_message
from otel_zernel_commands.watch.sources.watch_source import ReconnectWait
from tests.commands.watch.made_states import job_state, rank_id

ROOT = Path(__file__).parents[3]
RECORDING = ROOT / "examples/training_spans.jsonl"


class ScriptedServer:
    """Answers each connection with the next of some bodies, and keeps the heads of the requests."""

    def __init__(self, *bodies: bytes, status: str = "200 OK") -> None:
        self._bodies = list(bodies)
        self._status = status
        self.heads: list[str] = []
        self.url = ""
        self.writers: list[asyncio.StreamWriter] = []

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writers.append(writer)
        self.heads.append((await reader.readuntil(b"\r\n\r\n")).decode().lower())
        body = self._bodies.pop(0) if self._bodies else b""
        head = f"HTTP/1.1 {self._status}\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"
        writer.write(head.encode() + body)
        await writer.drain()
        if not self._bodies and body:
            await reader.read()  # the last body stays open until the client leaves
        writer.close()


@asynccontextmanager
async def serving(server: ScriptedServer) -> AsyncIterator[ScriptedServer]:
    listening = await asyncio.start_server(server.answer, "127.0.0.1", 0)
    server.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    async with listening:
        yield server
    for writer in server.writers:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A source connects again after 50 ms in place of a second."""
    monkeypatch.setattr(watch_source, "_FIRST", 0.05)


@asynccontextmanager
async def following(source: WatchSource) -> AsyncIterator[None]:
    task = asyncio.create_task(source.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def event(type_: str, id_: int, value: Any) -> bytes:
    return f"id: {id_}\nevent: {type_}\ndata: {json.dumps(value)}\n\n".encode()


def delta(seq: int, *changes: Any) -> dict[str, Any]:
    return {"seq": seq, "time": seq, "set": list(changes)}


def rate_of(source: WatchSource) -> Any:
    return ((source.state() or {}).get("ranks", {}).get(rank_id(0), {})).get("step_rate")


async def test_a_lost_stream_is_resumed_after_the_last_event() -> None:
    path = ["ranks", rank_id(0), "step_rate"]
    first = event("state", 7, job_state(1)) + b": comment\n\n" + event("delta", 8, delta(8, [path, 8.5]))
    async with serving(ScriptedServer(first, event("delta", 9, delta(9, [path, 9.5])))) as server:
        source = LiveStreamSource(server.url)
        async with following(source):
            await until(lambda: rate_of(source) == 9.5)
            assert not source.trouble
    assert "last-event-id" not in server.heads[0]
    assert "last-event-id: 8\r\n" in server.heads[1]


@pytest.mark.parametrize(
    "wrong",
    [
        event("delta", 8, delta(8, [["ranks", "nobody", "x"], 1])),
        event("delta", 8, delta(8)).replace(b"id: 8", "id: 8é".encode()),  # no header can have it
    ],
    ids=["delta", "id"],
)
async def test_a_damaged_event_begins_anew_with_a_whole_state(wrong: bytes) -> None:
    again = job_state(1)
    again["ranks"][rank_id(0)]["step_rate"] = 3.25
    async with serving(ScriptedServer(event("state", 7, job_state(1)) + wrong, event("state", 9, again))) as server:
        source = LiveStreamSource(server.url)
        async with following(source):
            await until(lambda: rate_of(source) == 3.25)
    assert "last-event-id" not in server.heads[1]


async def test_while_the_connection_is_lost_the_state_stays_and_the_trouble_is_a_sentence() -> None:
    async with serving(ScriptedServer(event("state", 7, job_state(1)), b"", b"x")) as server:
        source = LiveStreamSource(server.url)
        async with following(source):
            await until(lambda: source.state() is not None and source.trouble)
            assert source.trouble.startswith(f"No connection to {server.url}: the connection was closed. Next attempt")


@pytest.mark.parametrize(
    ("status", "sentence"),
    [
        ("401 Unauthorized", "--token-file"),
        ("404 Not Found", "the exporter live"),
        ("421 Misdirected Request", "allowed_hosts"),
        ("500 Oops", "status 500"),
    ],
)
async def test_a_refusal_at_the_start_says_what_to_do(status: str, sentence: str) -> None:
    async with serving(ScriptedServer(b"x", status=status)) as server:
        with pytest.raises(CannotStart, match=sentence):
            await LiveStreamSource(server.url).run()


@pytest.mark.parametrize(
    ("version", "sentence"),
    [
        (1, "is older than this program: its live state has version 1, and this program reads version 2; update the"),
        (3, "is newer than this program: its live state has version 3, and this program reads version 2; update this"),
    ],
)
async def test_another_version_of_the_state_says_which_side_is_older(version: int, sentence: str) -> None:
    other = event("state", 7, {**job_state(1), "schema": version})
    async with serving(ScriptedServer(other)) as server:
        with pytest.raises(CannotStart, match=f"^the collector {server.url} {sentence}"):
            await LiveStreamSource(server.url).run()
    async with serving(ScriptedServer(event("state", 7, job_state(1)), other)) as server:
        source = LiveStreamSource(server.url)
        async with following(source):
            await until(lambda: f"the collector {server.url} {sentence}" in source.trouble)
            assert source.state() == job_state(1), "the screen keeps the last state"


async def test_nobody_listening_is_one_sentence() -> None:
    async with serving(ScriptedServer()) as server:
        pass
    with pytest.raises(CannotStart, match=r"^no live state from http://127\.0\.0\.1:"):
        await LiveStreamSource(server.url).run()


async def test_the_token_of_a_file_is_sent_and_never_shown(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("s3cret-token\n")
    async with serving(ScriptedServer(b"x", status="403 Forbidden")) as server:
        with pytest.raises(CannotStart) as error:
            await LiveStreamSource(server.url, token).run()
    assert "authorization: bearer s3cret-token\r\n" in server.heads[0]
    assert "s3cret" not in str(error.value)


async def test_a_missing_token_file_is_one_sentence(tmp_path: Path) -> None:
    async with serving(ScriptedServer(b"x")) as server:
        with pytest.raises(CannotStart, match="cannot read the token file"):
            await LiveStreamSource(server.url, tmp_path / "none").run()


def test_events_are_the_same_in_any_pieces() -> None:
    data = b": hi\n\nid: 1\nevent: a\ndata: x\ndata: y\r\n\r\nretry: 5\n\ndata:z\n\n"
    whole = [ServerSentEvent("a", "1", b"x\ny"), ServerSentEvent("message", "1", b"z")]
    assert EventParser().feed(data) == whole
    for seed in range(50):
        chance, parser, rest, found = random.Random(seed), EventParser(), data, []
        while rest:
            size = chance.randint(1, 9)
            found += parser.feed(rest[:size])
            rest = rest[size:]
        assert found == whole


def test_an_endless_event_is_refused() -> None:
    parser = EventParser(most_bytes=1000)
    for _ in range(10):
        parser.feed(b"data: " + b"x" * 90 + b"\n")
    with pytest.raises(DecodeError):
        parser.feed(b"data: " + b"x" * 200 + b"\n")
    with pytest.raises(DecodeError):
        EventParser(most_bytes=1000).feed(b"x" * 2000)


SEED = {
    "gpu_utilization": [
        {"key": "4711:0", "current_bytes": 3 << 30, "peak_bytes": 4 << 30},
        {"key": "4712:1", "current_bytes": 1 << 30},
        {"key": "bad"},
        7,
    ],
    "cuda_latency_p50_us": 6.5,
    "nccl_allreduce_p99_ms": 12.5,
    "last_update_ms": 1_795_377_600_000,
}


def test_a_message_of_the_older_feed_becomes_a_state() -> None:
    state = state_of_message(json.dumps(SEED), 5.0)
    assert state is not None
    assert state["ranks"]["4711:0"]["memory"] == {"used": 3 << 30, "peak": 4 << 30}
    assert list(state["ranks"]) == ["4711:0", "4712:1"]
    assert state["gpus"]["1"] == {"index": 1, "memory_used": 1 << 30}
    assert state["totals"] == {"launch": {"p50": pytest.approx(6.5e-6)}, "all_reduce": {"p99": 0.0125}}
    assert state["time"] == 1_795_377_600_000


@pytest.mark.parametrize("message", ['{"gpu_utilization": 3}', "{}"])
def test_every_field_of_the_older_feed_is_optional(message: str) -> None:
    state = state_of_message(message, 5.0)
    assert state is not None
    assert state["time"] == 5.0
    assert not state["ranks"]


@pytest.mark.parametrize("message", ["", "[]", "3", "{", "[" * 100_000, b"\xff"])
def test_a_message_that_is_no_object_is_no_state(message: str | bytes) -> None:
    assert state_of_message(message, 5.0) is None


async def test_the_older_feed_is_followed_and_nonsense_is_ignored() -> None:
    async def handler(connection: ServerConnection) -> None:
        await connection.send("nonsense")
        await connection.send(json.dumps(SEED))
        await connection.wait_closed()

    async with serve_websocket(handler, "127.0.0.1", 0) as server:
        port = next(iter(server.sockets)).getsockname()[1]
        source = SeedFeedSource(f"ws://127.0.0.1:{port}")
        await source.run(once=True)
    state = source.state()
    assert state is not None
    assert len(state["ranks"]) == 2


def test_waits_double_to_half_a_minute_and_begin_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()  # not the waits of the other tests
    wait = ReconnectWait()
    assert [round(wait.take() / 1.1) <= expected for expected in (1, 2, 4, 8, 16, 30, 30)] == [True] * 7
    assert wait.take() > 20
    wait.reset()
    assert wait.take() < 1.2


async def test_a_recording_is_replayed_into_a_state() -> None:
    source = source_of(str(RECORDING), SourceOptions(speed=0.0))
    await source.run(once=True)
    state = source.state()
    assert state is not None
    (rank,) = state["ranks"].values()
    assert rank["steps"] == 150
    assert rank["verdict"]["name"] == "input_bound"
    assert source.title == "training_spans.jsonl, replay has ended"


async def test_a_saved_state_is_shown_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    path.write_text(json.dumps(job_state(2)))
    source = source_of(str(path), SourceOptions())
    await source.run()
    assert source.state() == job_state(2)
    assert source.now_ms() == job_state(2)["time"]


def test_a_saved_state_of_another_version_is_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    for version, sentence in ((1, "older .* save the state again"), (3, "newer .* update this program")):
        path.write_text(json.dumps({**job_state(2), "schema": version}))
        with pytest.raises(CannotStart, match=rf"run\.json is {sentence}$"):
            source_of(str(path), SourceOptions())


@pytest.mark.parametrize("content", [b"hello\n", b"", b'{"a": 1}', b"[]", bytes(5000)])
def test_a_file_that_is_no_recording_is_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_bytes(content)
    with pytest.raises(CannotStart, match="is neither a recording of the file exporter nor a saved state: "):
        source_of(str(path), SourceOptions())


def test_a_host_and_a_port_are_an_address() -> None:
    assert source_of("n1:9095", SourceOptions()).title == "n1:9095"
    assert "secret" not in source_of("https://user:secret@n1:9095/", SourceOptions()).title


def test_this_machine_needs_root() -> None:
    findings = [Finding("attaching", "eBPF needs CAP_BPF", ok=False)]
    with pytest.raises(CannotStart, match=r"needs root: run `sudo \S+ watch`, or name the address of a collector"):
        require_probes(findings, user=1000)
    with pytest.raises(CannotStart, match="cannot be watched: eBPF needs CAP_BPF"):
        require_probes(findings, user=0)
    require_probes([Finding("attaching", "fine", ok=True)], user=1000)
