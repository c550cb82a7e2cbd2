"""Collectors of the last release and of this one work together, and this one goes on where the last one stopped."""

import asyncio
import gzip
import io
import json
import os
import re
import subprocess
import sys
import tarfile
import tomllib
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

import httpx
import pytest
import yaml

from docs.catalogue import ROOT
from otel_zernel.testing import until
from otel_zernel_libraries.training.names import PHASES
from tests.examples.seed_data import recorded

Result = TypeVar("Result")
LAST_RELEASE: Final = "19fa23aa2fa066560395e853cf264a72e8c6a0b9"
"""The commit of the last release. No version is tagged yet: this is the one before `libraries/` was made."""
_ROOTS: Final = ("", "libraries", "receivers", "processors", "exporters", "extensions", "commands")
"""The folders with packages, relative to the checkout."""


@dataclass(frozen=True)
class Release:
    """A version of the collector."""

    name: str
    sources: Path
    """A checkout, in which it is installed or which PYTHONPATH names."""

    @property
    def environ(self) -> dict[str, str]:
        """The variables with which Python imports this version."""
        roots = [self.sources / root for root in _ROOTS]
        return {**os.environ, "PYTHONPATH": os.pathsep.join(str(root) for root in roots if root.exists())}

    @asynccontextmanager
    async def running(self, folder: Path, name: str, settings: Mapping[str, Any], *options: str) -> AsyncIterator[None]:
        """A collector that is ready. Without an error, it must end by itself with `--exit-when-done`, or by SIGTERM."""
        path, log = folder / f"{name}.yaml", folder / f"{name}.log"
        path.write_text(yaml.safe_dump(dict(settings)))
        command = (sys.executable, "-m", "otel_zernel", "run", "--config", str(path), *options)
        with log.open("w") as output:
            process = await asyncio.create_subprocess_exec(*command, stderr=output, env=self.environ, cwd=folder)
        try:
            await until(lambda: process.returncode is not None or "Everything is ready" in log.read_text())
            yield
            if not options:
                process.terminate()
            async with asyncio.timeout(40):
                status = await process.wait()
            assert status == 0, log.read_text()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()

    async def run(self, folder: Path, name: str, settings: Mapping[str, Any]) -> None:
        """Runs a collector until its receivers have finished and everything is delivered."""
        async with self.running(folder, name, settings, "--exit-when-done"):
            pass


THIS: Final = Release("this", ROOT)


def last_release(folder: Path) -> Release:
    """The last release, from the history of this repository. Skips the test if the history does not have it."""
    command = ("git", "-C", str(ROOT), "archive", LAST_RELEASE, "otel_zernel", *_ROOTS[2:], "docs", "pyproject.toml")
    try:
        archive = subprocess.run(command, capture_output=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"the commit {LAST_RELEASE[:8]} is missing ({error}): `git fetch --unshallow` gets it")
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        tar.extractall(folder, filter="data")
    _describe(folder)
    release = Release("last", folder)
    where = (sys.executable, "-c", "import otel_zernel_exporters.file as package; print(package.__file__)")
    found = subprocess.run(where, env=release.environ, cwd=folder, capture_output=True, text=True, check=True).stdout
    assert found.startswith(str(folder)), found
    return release


def _describe(folder: Path) -> None:
    """Writes the metadata of the package, in which the collector finds its components."""
    project = tomllib.loads((folder / "pyproject.toml").read_text("utf-8"))["project"]
    metadata = folder / f"otel_zernel-{project['version']}.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    )
    groups = {group: dict(names) for group, names in project["entry-points"].items()}
    lines = [
        line for group, names in groups.items() for line in (f"[{group}]", *(f"{k} = {v}" for k, v in names.items()))
    ]
    (metadata / "entry_points.txt").write_text("\n".join(lines) + "\n")


SPANS = ROOT / "examples/training_spans.jsonl"
"""The spans of a training, recorded by the ebpf receiver."""
COLLECTIVES = ROOT / "tests/processors/phases/recorded/GPU_NCCL_DDP/spans.jsonl.gz"
"""The same of a rank with NCCL, on a GPU."""
ROWS = 200
WORKER = "worker-1"
AT_ONCE = {"flush_interval": "100ms"}
Received = tuple[list[str], list[str], dict[str, Any]]
"""The points and spans in the file of a gateway, the series on its page, and the training in its live state."""


@pytest.fixture(scope="session")
def last(tmp_path_factory: pytest.TempPathFactory) -> Release:
    return last_release(tmp_path_factory.mktemp("last-release"))


def test_no_option_and_no_metric_of_the_last_release_is_gone_without_advice(last: Release) -> None:
    page = (ROOT / "docs/migration.md").read_text("utf-8")
    gone = {*options_of(last.sources), *metrics_of(last.sources)} - {*options_of(ROOT), *metrics_of(ROOT)}
    assert {name for _, name in gone if f"| `{name}` |" not in page} == set()


def test_each_old_word_of_the_page_was_in_the_last_release(last: Release) -> None:
    rooms = ("commands", "exporters/otel_zernel_exporters/live", "processors/otel_zernel_processors/phases")
    files = (path for room in rooms for path in (last.sources / room).rglob("*.*") if path.suffix in (".py", ".js"))
    sources = "\n".join(path.read_text("utf-8") for path in files)
    page = (ROOT / "docs/development/packages.md").read_text("utf-8")
    table = page.partition("| before | now | where |\n")[2].partition("\n\n")[0]
    before = re.findall(r"^\| `([^`]+)` \|", table, re.MULTILINE)
    assert len(before) > 20
    assert [word for word in before if word not in sources] == []


def options_of(sources: Path) -> set[tuple[str, str]]:
    """The keys in the sample of each component, which has all of them, some behind `#`."""
    samples = {path.parent.name: path.read_text("utf-8") for path in sources.glob("*/otel_zernel_*/*/sample.yaml")}
    assert len(samples) > 30
    return {
        (type_, key)
        for type_, text in samples.items()
        for key in re.findall(r"^[# ]*(\w+):(?: |$)", text, re.MULTILINE)
    }


def metrics_of(sources: Path) -> set[tuple[str, str]]:
    page, command = sources / "docs/metrics.md", [sys.executable, "-m", "docs.metrics"]
    if page.exists():
        text = page.read_text("utf-8")
    else:
        environ = Release("", sources).environ
        text = subprocess.run(command, cwd=sources, env=environ, capture_output=True, text=True, check=True).stdout
    names = re.findall(r"^\| `([a-z][\w.]+)` \|", text, re.MULTILINE)
    assert len(names) > 300
    return {("", name) for name in names}


async def test_another_release_loses_and_changes_nothing(
    last: Release, tmp_path: Path, unused_tcp_port_factory: Callable[[], int]
) -> None:
    """Each release judges a training by its own rules, so the agents of a comparison are alike."""

    async def received_by(agent: Release, gateway: Release) -> Received:
        folder = tmp_path / f"{agent.name}-{gateway.name}"
        folder.mkdir()
        return await through(agent, gateway, folder, unused_tcp_port_factory)

    received = await of_pairs(received_by, *pairs(last), (last, last))
    assert received["last", "this"] == received["last", "last"]
    assert received["this", "last"] == received["this", "this"]


async def test_spans_of_a_training_through_another_release_give_the_same_phases(
    last: Release, tmp_path: Path, unused_tcp_port_factory: Callable[[], int]
) -> None:
    """The spans are those of the ebpf receiver, recorded. The gateway judges them by the rules of its release."""
    (tmp_path / "spans.jsonl").write_bytes(gzip.decompress(COLLECTIVES.read_bytes()))

    async def judged_by(agent: Release, gateway: Release) -> tuple[list[tuple[str, str]], dict[str, float]]:
        port, file = unused_tcp_port_factory(), tmp_path / f"{agent.name}-{gateway.name}.jsonl"
        otlp, phases = {"protocols": {"grpc": {"endpoint": f"127.0.0.1:{port}"}}}, {"pace": 0, "traces": {"sample": 1}}
        judging = pipe({"otlp": otlp}, {"file": {"path": str(file), **AT_ONCE}}, {"phases": phases})
        sending = pipe(
            {"otlp_json_file": {"include": [str(tmp_path / "spans.jsonl")]}},
            {"otlp_grpc": {"endpoint": f"http://127.0.0.1:{port}"}},
        )
        async with gateway.running(tmp_path, f"{file.stem}-gateway", judging):
            await agent.run(tmp_path, f"{file.stem}-agent", sending)
        return sorted(spans_of(file)), phase_times(file)

    judged = await of_pairs(judged_by, *pairs(last), (last, last))
    steps, times = judged["this", "this"]
    assert len(steps) > 100
    assert len(times) == len(PHASES)
    assert judged["last", "this"] == judged["this", "this"]
    assert judged["this", "last"] == judged["last", "last"]


def phase_times(file: Path) -> dict[str, float]:
    """The last time in each phase, by process and phase. Earlier reports depend on the sizes of the batches."""
    return {
        resource + json.dumps(json.loads(rest)["attributes"]): value
        for resource, name, value, rest in points_of(file)
        if name == "zernel.phase.time"
    }


async def test_the_live_feed_of_another_release_is_read(
    last: Release, tmp_path: Path, unused_tcp_port_factory: Callable[[], int]
) -> None:
    recording = tmp_path / "training.jsonl"
    recording.write_text(recorded())

    async def read_by(agent: Release, gateway: Release) -> set[tuple[str, str]]:
        endpoint, file = f"127.0.0.1:{unused_tcp_port_factory()}", tmp_path / f"{agent.name}-{gateway.name}.jsonl"
        feed = pipe(
            {"otlp_json_file": {"include": [str(recording)]}},
            {"websocket": {"endpoint": endpoint, "push_interval": "100ms"}},
        )
        reader = pipe({"zernel": {"endpoint": f"ws://{endpoint}"}}, {"file": {"path": str(file), **AT_ONCE}})
        async with agent.running(tmp_path, f"{file.stem}-feed", feed), gateway.running(tmp_path, file.stem, reader):
            await until(partial(is_whole, file))
        return {(name, values) for name, values in reports_in(file)[-1] if "update" not in name}

    read = await of_pairs(read_by, *pairs(last))
    assert read["last", "this"] == read["this", "last"] == read["this", "this"]
    assert {"zernel.cuda.memory.used", "zernel.cuda.launch.latency.percentiles"} <= dict(read["this", "this"]).keys()


async def test_the_heartbeats_of_another_release_arrive(
    last: Release, tmp_path: Path, unused_tcp_port_factory: Callable[[], int]
) -> None:

    async def names_by(agent: Release, gateway: Release) -> set[str]:
        endpoint, file = f"127.0.0.1:{unused_tcp_port_factory()}", tmp_path / f"{agent.name}-{gateway.name}.jsonl"
        master = pipe(
            {"heartbeat": {"endpoint": endpoint, "collection_interval": "1s"}}, {"file": {"path": str(file), **AT_ONCE}}
        )
        worker = pipe(
            {"host": {"collection_interval": "500ms", "initial_delay": "0s"}},
            {"heartbeat": {"endpoint": f"http://{endpoint}", "worker_id": WORKER, "interval": "1s"}},
        )
        async with gateway.running(tmp_path, file.stem, master), agent.running(tmp_path, f"{file.stem}-worker", worker):
            await until(partial(has_worker, file))
        return {name for resource, name, _, _ in points_of(file) if WORKER in resource}

    names = await of_pairs(names_by, *pairs(last))
    assert names["last", "this"] == names["this", "last"] == names["this", "this"]


def has_worker(file: Path) -> bool:
    """Whether a worker has reported the use of its machine."""
    return count_points(file) > 0 and any(
        WORKER in resource and name == "system.memory.utilization" for resource, name, _, _ in points_of(file)
    )


def pairs(last: Release) -> tuple[tuple[Release, Release], ...]:
    """Agents, each with its gateway. The first two are alike."""
    return (THIS, THIS), (last, THIS), (THIS, last)


async def of_pairs(
    run: Callable[[Release, Release], Coroutine[Any, Any, Result]], *pairs: tuple[Release, Release]
) -> dict[tuple[str, str], Result]:
    """The result of each agent and its gateway, by their names. All run at the same time."""
    async with asyncio.TaskGroup() as group:
        tasks = {(agent.name, gateway.name): group.create_task(run(agent, gateway)) for agent, gateway in pairs}
    return {names: task.result() for names, task in tasks.items()}


def pipe(
    receivers: dict[str, Any], exporters: dict[str, Any], processors: dict[str, Any] | None = None
) -> dict[str, Any]:
    """One pipeline."""
    processors = processors or {}
    pipeline = {"receivers": [*receivers], "processors": [*processors], "exporters": [*exporters]}
    service = {
        "telemetry": {"metrics": {"level": "none"}},
        "shutdown_timeout": "1s",
        "pipelines": {"all": pipeline},
    }
    return {"receivers": receivers, "processors": processors, "exporters": exporters, "service": service}


def reports_in(file: Path) -> list[set[tuple[str, str]]]:
    """The series of each message of a feed with their values, without times."""
    lines = file.read_text().splitlines()[:-1] if file.exists() else []  # the last one may be incomplete
    return [{(name, values_of(rest)) for _, name, _, rest in points_in([json.loads(line)])} for line in lines]


def values_of(point: str) -> str:
    times = ("timeUnixNano", "startTimeUnixNano")
    return text_of({key: value for key, value in json.loads(point).items() if key not in times})


def is_whole(file: Path) -> bool:
    """Whether the feed has read everything: two messages in a row have the same."""
    reports = reports_in(file)
    return len(reports) > 1 and reports[-1] == reports[-2] and len(reports[-1]) > 6


async def test_the_queue_and_the_positions_of_the_last_release_are_taken_over(
    last: Release, tmp_path: Path, unused_tcp_port_factory: Callable[[], int]
) -> None:
    """The last release reads rows into a queue on the disk, while no gateway is there. This one sends them."""
    port, page = unused_tcp_port_factory(), unused_tcp_port_factory()
    table = tmp_path / "gpus.csv"
    write_rows(table, range(ROWS))
    settings = agent_settings(tmp_path, port)
    del settings["service"]["pipelines"]["training"]
    settings["receivers"]["csv"] |= {"follow": True, "storage": "file_storage"}
    async with last.running(tmp_path, "before", settings):
        await until(lambda: stored(tmp_path / "storage") > ROWS)
    write_rows(table, range(ROWS, ROWS + 50))
    async with THIS.running(tmp_path, "gateway", gateway_settings(tmp_path, port, page)):
        assert f"keeps {ROWS} metric points on the disk" in (tmp_path / "before.log").read_text()
        async with THIS.running(tmp_path, "after", settings):
            await until(lambda: count_points(tmp_path / "received.jsonl") >= ROWS + 50)
    temperatures = sorted(value for _, _, value, _ in points_of(tmp_path / "received.jsonl"))
    assert temperatures == [float(row) for row in range(ROWS + 50)], "each row once"


async def through(agent: Release, gateway: Release, folder: Path, ports: Callable[[], int]) -> Received:
    """Sends rows of a table, and the phases of a recorded training, from an agent through a gateway."""
    port, page, api = ports(), ports(), ports()
    write_rows(folder / "gpus.csv", range(ROWS))
    settings = gateway_settings(folder, port, page)
    settings["exporters"]["live"] = {}
    settings["extensions"] = {"api": {"endpoint": f"127.0.0.1:{api}"}}
    settings["service"]["extensions"] = ["api"]
    settings["service"]["pipelines"]["all"]["exporters"].append("live")
    running = gateway.running(folder, "gateway", settings)
    async with running, httpx.AsyncClient() as client:
        await agent.run(folder, "agent", agent_settings(folder, port))
        text = (await client.get(f"http://127.0.0.1:{page}/metrics")).text
        live = (await client.get(f"http://127.0.0.1:{api}/api/live")).json()
    received = folder / "received.jsonl"
    items = [*map(str, points_of(received)), *map(str, spans_of(received))]
    names = {name for _, name, _, _ in points_of(received)}
    assert sum(name == "hw.temperature" for _, name, _, _ in points_of(received)) == ROWS
    assert {"zernel.step.duration", "zernel.verdict", "zernel.phase.time"} <= names
    assert list(spans_of(received))
    series = sorted(line for line in text.splitlines() if line and not line.startswith("#"))
    [process] = live["ranks"].values()
    assert process["steps"] > 0
    assert next(iter(live["timeline"].values()))
    return sorted(items), series, training_of(live)


def training_of(state: dict[str, Any]) -> dict[str, Any]:
    """The processes, jobs and steps of a live state, without the times of their arrival.

    The last release has no view of causes, and none of positions and activities.
    """
    arrivals = {"seen", "phase_since", "step", "step_rate"}
    views = {"moments", "device"}

    def without(left_out: set[str], entities: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
        return {id_: {key: seen[key] for key in seen.keys() - left_out} for id_, seen in entities.items()}

    ranks, jobs = without(arrivals | views, state["ranks"]), without({"answer"}, state["jobs"])
    return {"ranks": ranks, "jobs": jobs, "timeline": state["timeline"]}


def agent_settings(folder: Path, port: int) -> dict[str, Any]:
    """Rows of a table, and a recorded training through `phases`, into a queue on the disk."""
    endpoint = {"endpoint": f"http://127.0.0.1:{port}"}
    return {
        "receivers": {
            "csv": {"files": [str(folder / "gpus.csv")]},
            "otlp_json_file": {"include": [str(SPANS)]},
        },
        "processors": {"phases": {"pace": 0, "interval": "1s"}},
        "extensions": {"file_storage": {"directory": str(folder / "storage"), "create_directory": True}},
        "exporters": {"otlp_grpc": {**endpoint, "sending_queue": {"storage": "file_storage"}}},
        "service": {
            "telemetry": {"metrics": {"level": "none"}},
            "extensions": ["file_storage"],
            "shutdown_timeout": "0s",
            "pipelines": {
                "gpus": {"receivers": ["csv"], "exporters": ["otlp_grpc"]},
                "training": {"receivers": ["otlp_json_file"], "processors": ["phases"], "exporters": ["otlp_grpc"]},
            },
        },
    }


def gateway_settings(folder: Path, port: int, page: int) -> dict[str, Any]:
    """OTLP into a file and onto a page."""
    return {
        "receivers": {"otlp": {"protocols": {"grpc": {"endpoint": f"127.0.0.1:{port}"}}}},
        "exporters": {
            "file": {"path": str(folder / "received.jsonl"), **AT_ONCE},
            "prometheus": {"endpoint": f"127.0.0.1:{page}"},
        },
        "service": {
            "telemetry": {"metrics": {"level": "none"}},
            "pipelines": {"all": {"receivers": ["otlp"], "exporters": ["file", "prometheus"]}},
        },
    }


def write_rows(table: Path, temperatures: range) -> None:
    """Appends rows of a GPU's temperature, a second apart, with a header at the beginning."""
    with table.open("a") as file:
        if not file.tell():
            file.write("timestamp,metric_name,gpu_id,uuid,value\n")
        for row in temperatures:
            time = f"2026-01-01T00:{row // 60:02}:{row % 60:02}Z"
            file.write(f"{time},DCGM_FI_DEV_GPU_TEMP,0,GPU-1,{row}\n")


def requests_in(file: Path) -> Iterator[dict[str, Any]]:
    return map(json.loads, file.read_text().splitlines())


def points_of(file: Path) -> Iterator[tuple[str, str, float, str]]:
    """The resource, the name, the value (0 for a histogram) and everything else of each point."""
    return points_in(requests_in(file))


def points_in(requests: Iterable[dict[str, Any]]) -> Iterator[tuple[str, str, float, str]]:
    for request in requests:
        for resource in request.get("resourceMetrics", ()):
            for metric in (metric for scope in resource["scopeMetrics"] for metric in scope["metrics"]):
                [kind] = metric.keys() & {"sum", "gauge", "histogram", "exponentialHistogram", "summary"}
                for point in metric[kind]["dataPoints"]:
                    value = float(point.get("asDouble", point.get("asInt", 0)))
                    rest = {key: metric[kind][key] for key in metric[kind].keys() - {"dataPoints"}}
                    yield text_of(resource["resource"]), metric["name"], value, text_of({**rest, **point})


def spans_of(file: Path) -> Iterator[tuple[str, str]]:
    for request in requests_in(file):
        for resource in request.get("resourceSpans", ()):
            for span in (span for scope in resource["scopeSpans"] for span in scope["spans"]):
                yield text_of(resource["resource"]), text_of(span)


def text_of(tree: Mapping[str, Any]) -> str:
    return json.dumps(tree, sort_keys=True)


def stored(directory: Path) -> int:
    """The bytes in a directory."""
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())


def count_points(file: Path) -> int:
    """The points in a file that is being written."""
    is_whole = file.exists() and file.read_text().endswith("\n")
    return sum(1 for _ in points_of(file)) if is_whole else 0
