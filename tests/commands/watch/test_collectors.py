"""The command on a terminal of 80x24 at a real collector: at its live state, and at its older feed."""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx

from otel_zernel.otlp.json import to_json
from otel_zernel_commands.watch.screens import WatchView
from tests.collectors import collector
from tests.commands.watch.test_terminal import assert_restored, below_the_first, drawn, start
from tests.commands.watch.tmux import Tmux, terminal
from tests.examples.seed_data import recorded
from tests.exporters.live.live_runs import SECOND
from tests.exporters.live.page.generated_job import GeneratedJob
from tests.free_ports import free_port

SIZE = 80, 24
RANKS, SECONDS, STRAGGLER = 4, 5, 2
PATIENCE = 60.0
"""Seconds."""


@asynccontextmanager
async def collecting(folder: Path, data: str, exporter: Mapping[str, Any], *ports: int) -> AsyncIterator[None]:
    """A collector that reads this data once, into one exporter."""
    (folder / "data.jsonl").write_text(data)
    id_ = next(iter(exporter))
    extensions = {"api": {"endpoint": f"localhost:{ports[0]}"}} if id_ == "live" else {}
    settings = {
        "receivers": {"otlp_json_file": {"include": [str(folder / "data.jsonl")]}},
        "exporters": exporter,
        "extensions": extensions,
        "service": {
            "extensions": [*extensions],
            "pipelines": {
                signal: {"receivers": ["otlp_json_file"], "exporters": [id_]}
                for signal in (("metrics", "traces") if extensions else ("metrics",))
            },
        },
    }
    async with collector(folder / "collector", settings, *ports):
        yield


def recorded_job() -> str:
    """The data of a job of four ranks, with a straggler."""
    job = GeneratedJob(RANKS, time.time_ns() - SECONDS * SECOND, straggler=STRAGGLER)
    batches = [batch for second in job.seconds(SECONDS) for batch in second]
    lines = [to_json(batch.metrics) if "metrics" in batch.signals else to_json(batch.spans) for batch in batches]
    return "".join(line.decode() + "\n" for line in lines)


async def live_state(port: int) -> dict[str, Any]:
    async with httpx.AsyncClient(timeout=PATIENCE) as client:
        json: dict[str, Any] = (await client.get(f"http://localhost:{port}/api/live")).json()
        return json


async def whole_state(port: int) -> dict[str, Any]:
    """The state with all steps of the job."""
    async with asyncio.timeout(PATIENCE):
        while True:
            state = await live_state(port)
            steps = [rank.get("steps") for rank in state["ranks"].values()]
            if steps == [SECONDS * 10] * RANKS and state["jobs"]:
                return state
            await asyncio.sleep(0.05)


async def compare(tmux: Tmux, port: int, view: WatchView) -> str:
    """Waits until the terminal shows the state of the collector with this view."""
    shown, wanted = [""], ["?"]
    try:
        async with asyncio.timeout(PATIENCE):
            while shown != wanted:
                wanted = drawn(await live_state(port), f"localhost:{port}", *SIZE, view)
                shown = below_the_first(tmux)
                await asyncio.sleep(0.05)
    except TimeoutError:
        assert "\n".join(shown) == "\n".join(wanted)
    return "\n".join(shown)


def pressed(*keys: str) -> WatchView:
    view = WatchView()
    for key in keys:
        view.press(key, [])
    return view


async def test_the_screen_of_a_live_state_is_that_state_with_every_choice(tmp_path: Path) -> None:
    port = free_port()
    async with collecting(tmp_path, recorded_job(), {"live": {"api": "api"}}, port):
        await whole_state(port)
        with terminal(tmp_path, *SIZE) as tmux:
            start(tmux, f"localhost:{port}")
            await tmux.shows("Rank 2 delays the others", "4 processes", "q quit")
            await compare(tmux, port, pressed())
            tmux.keys("r")
            await compare(tmux, port, pressed("r"))
            tmux.keys("r", "s", "s", "s", "s")
            screen = await compare(tmux, port, pressed("s", "s", "s", "s"))
            assert "sort: late, rank" in screen
            tmux.keys("/", "n", "o", "d", "e", "7", "Enter")
            late = pressed("s", "s", "s", "s", "/", *"node7", "enter")
            assert "No process matches the filter node7." in await compare(tmux, port, late)
            tmux.keys("Escape", "?")
            assert "filter" in await compare(tmux, port, pressed("s", "s", "s", "s", "?"))
            tmux.keys("?", "q")
            await assert_restored(tmux, 0)


async def test_the_screen_of_the_older_feed_has_its_processes_and_survives_its_end(tmp_path: Path) -> None:
    port = free_port()
    feed = {"websocket": {"endpoint": f"localhost:{port}", "push_interval": "100ms"}}
    with terminal(tmp_path, *SIZE) as tmux:
        async with collecting(tmp_path, recorded(), feed, port):
            start(tmux, f"ws://localhost:{port}")
            screen = await tmux.shows("3 processes", "2 GPUs", "101", "102", "104", "q quit")
            assert screen.index(" 101") < screen.index(" 102") < screen.index(" 104")
            tmux.keys("r")
            await tmux.until(lambda: _order(tmux.screen()) == ["104", "102", "101"])
            tmux.keys("/", "1", "0", "2", "Enter")
            assert _order(await tmux.shows("1 of 3 match 102")) == ["102"]
            tmux.keys("Escape")
            await tmux.shows("101", "104")
        await tmux.shows("No connection to")
        async with collecting(tmp_path, recorded(), feed, port):
            await tmux.lacks("No connection to")
            await tmux.shows("101", "102", "104")
        tmux.keys("q")
        await assert_restored(tmux, 0)


def _order(screen: str) -> list[str]:
    """The pids of the processes, from the top."""
    words = [line.split() for line in screen.splitlines()]
    return [word for line in words for word in line[:3] if word in ("101", "102", "104")]
