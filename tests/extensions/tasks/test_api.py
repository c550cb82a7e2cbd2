"""Requests for tasks: what is accepted, what is refused and how, and what is answered."""

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from otel_zernel.testing import make_context
from otel_zernel_extensions.tasks.api.requests import spec_of
from otel_zernel_extensions.tasks.api.routes import TaskRoutes
from otel_zernel_extensions.tasks.config import TasksConfig
from otel_zernel_extensions.tasks.engines.engine import TaskLimits
from otel_zernel_extensions.tasks.states.store import TaskStore
from otel_zernel_extensions.tasks.supervisor import Supervisor
from otel_zernel_libraries.serving.api.answers import ApiError
from tests.extensions.tasks.running import running
from tests.extensions.tasks.world import MemoryEngine
from tests.otlp import metrics_in

WRONG: list[tuple[bytes, str]] = [
    (b"", "not valid JSON"),
    (b"{", "not valid JSON"),
    (b"{'command': ['a']}", "Expecting property name enclosed in double quotes: line 1 column 2"),
    (b"[" * 100_000, "not valid JSON"),
    (b"[]", "the body: write an object in braces"),
    (b"{}", "command: it is missing"),
    (b'{"cmd": ["a"]}', "cmd: this field is unknown; use id, name, command, env, working_dir, limits"),
    (b'{"command": ["a"], "limits": {"ram": 1}}', "limits.ram: this field is unknown; use cpu, memory, gpus, time"),
    (b'{"command": []}', "command: write a list of texts"),
    (b'{"command": [""]}', "must not be empty"),
    (b'{"command": "rm -rf /"}', 'command: write a list of texts, such as ["python3", "train.py"]'),
    (b'{"command": ["a", 1]}', "command.1: write a text in double quotes"),
    (b'{"command": ["a\\u0000"]}', "null character"),
    (b'{"command": ["\\ud800"]}', "surrogate"),
    (b'{"command": ["a"], "shell": true}', "shell"),
    (b'{"command": ["a"], "id": "../../etc"}', "id"),
    (b'{"command": ["a"], "id": "A"}', "id: use at most 52 characters"),
    (b'{"command": ["a"], "id": "' + b"a" * 53 + b'"}', "id"),
    (b'{"command": ["a"], "env": {"A=B": "1"}}', "name of a variable"),
    (b'{"command": ["a"], "env": {"A": 1}}', "env.A"),
    (b'{"command": ["a"], "name": "a\\nb"}', "printable"),
    (b'{"command": ["a"], "working_dir": "here"}', "absolute path"),
    (b'{"command": ["a"], "limits": {"cpu": 0}}', "limits.cpu: it must be greater than 0"),
    (b'{"command": ["a"], "limits": {"memory": "10"}}', "limits.memory: it must be at least 1048576"),
    (b'{"command": ["a"], "limits": {"cpu": NaN}}', "not valid JSON"),
    (b'{"command": ["a"], "limits": {"memory": "much"}}', "limits.memory"),
    (b'{"command": ["a"], "limits": {"memory": true}}', "limits.memory"),
    (b'{"command": ["a"], "limits": {"gpus": -1}}', "limits.gpus"),
    (b'{"command": ["a"], "limits": {"gpus": 1.5}}', "limits.gpus"),
    (b'{"command": ["a"], "limits": {"time": "soon"}}', "limits.time: write seconds, or a duration such as 90s"),
    (b'{"command": ["a"], "limits": {"time": 0}}', "limits.time"),
]


@pytest.mark.parametrize(("body", "part"), WRONG, ids=range(len(WRONG)))
def test_a_wrong_request_is_refused_with_the_place_of_the_mistake(body: bytes, part: str) -> None:
    with pytest.raises(ApiError, match=re.escape(part)) as refused:
        spec_of(body, None)
    assert refused.value.status == 400


def test_an_error_does_not_repeat_values_which_may_be_secrets() -> None:
    with pytest.raises(ApiError) as refused:
        spec_of(
            b'{"command": ["a"], "env": {"TOKEN": ["hunter2"]}, "limits": {"memory": "hunter2", "time": "hunter2"}}',
            None,
        )
    assert "hunter2" not in str(refused.value)


@given(st.binary(max_size=200) | st.text(max_size=200).map(lambda text: text.encode("utf-8", "surrogatepass")))
def test_no_bytes_cause_another_error_than_a_refusal(body: bytes) -> None:
    with pytest.raises(ApiError):
        spec_of(body, None)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3),
    max_leaves=10,
)
FIELDS = ["id", "name", "command", "env", "working_dir", "limits"]


@given(
    st.fixed_dictionaries({"command": st.lists(st.text(max_size=5), max_size=3) | JSON}),
    st.dictionaries(
        st.sampled_from(FIELDS[:2] + FIELDS[3:]),
        JSON | st.dictionaries(st.sampled_from(["cpu", "memory", "gpus", "time"]), JSON),
    ),
)
def test_every_accepted_request_can_be_executed(base: dict[str, Any], more: dict[str, Any]) -> None:
    try:
        spec = spec_of(json.dumps(base | more).encode(), None)
    except ApiError as refused:
        assert refused.status in (400, 413)  # noqa: PT017  # refusals and successes are both expected
        str(refused).encode()
        return
    assert spec.command[0]
    for text in (*spec.command, *spec.env, *spec.env.values(), spec.working_dir or ""):
        assert b"\0" not in text.encode()


def test_limits_are_written_as_numbers_or_with_units() -> None:
    given_limits = {"cpu": 1.5, "memory": "2Gi", "gpus": 2, "time": "1h30m"}
    spec = spec_of(json.dumps({"command": ["a"], "limits": given_limits}).encode(), None)
    assert spec.limits == TaskLimits(1.5, 2 << 30, 2, 5400.0)
    plain = spec_of(b'{"command": ["a"], "limits": {"memory": 5000000, "time": 60, "cpu": 2.0}}', None)
    assert plain.limits == TaskLimits(2.0, 5_000_000, 0, 60.0)
    assert spec_of(b'{"command": ["a"], "limits": {"memory": "3G"}}', None).limits.memory == 3 * 10**9
    assert spec_of(b'{"command": ["a"], "limits": {"cpu": 2}}', None).limits.cpu == 2


async def test_a_repeated_request_runs_once(tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    command = ["/bin/sh", "-c", f"echo x >> {ran}"]
    async with running(tmp_path / "tasks") as client:
        answers = await asyncio.gather(*(client.post(id="a", command=command) for _ in range(20)))
        assert sorted(answer.status for answer in answers) == [200] * 19 + [201]
        keyed = await asyncio.gather(*(client.post(key="k-1", command=command) for _ in range(20)))
        assert sorted(one.status for one in keyed) == [200] * 19 + [201]
        (id_,) = {one.json["id"] for one in keyed}
        await client.end("a")
        await client.end(id_)
        assert (await client.post(id="a", command=command)).json["status"] == "succeeded"
    async with running(tmp_path / "tasks") as client:
        assert (await client.post(key="k-1", command=command)).json["status"] == "succeeded"
        assert (await client.post(id="a", command=command)).status == 200
    assert ran.read_text() == "x\nx\n"


async def test_an_id_or_key_for_another_request_is_a_conflict(tmp_path: Path) -> None:
    async with running(tmp_path) as client:
        await client.post(id="a", command=["true"])
        await client.post(key="k", command=["true"])
        for more in ({"id": "a"}, {"key": "k"}):
            answer = await client.post(command=["false"], **more)
            assert (answer.status, "another request" in answer.json["error"]) == (409, True)


def test_a_request_with_two_names_is_refused_since_either_could_run_it_again() -> None:
    with pytest.raises(ApiError, match="send id or Idempotency-Key, not both"):
        spec_of(b'{"command": ["a"], "id": "a"}', "key")


async def test_a_full_queue_refuses_until_there_is_room(tmp_path: Path) -> None:
    async with running(tmp_path, max_running=1, max_queued=2) as client:
        await client.shell("a", "sleep 1000")
        await client.reaches("a", "running")
        for id_ in "bc":
            await client.shell(id_, "true")
        refused = await client.post(id="d", command=["true"])
        assert (refused.status, refused.headers["retry-after"]) == (429, "30")
        assert (await client.post(id="b", command=["/bin/sh", "-c", "true"])).status == 200
        await client.delete("a")
        for id_ in "bc":
            await client.end(id_)
        assert (await client.post(id="d", command=["true"])).status == 201


async def test_lists_are_paged_and_filtered_by_state(tmp_path: Path) -> None:
    async with running(tmp_path) as client:
        for number in range(7):
            await client.shell(f"t{number}", f"exit {number % 2}")
            await client.end(f"t{number}")
        first = (await client.api.get("/api/tasks?limit=3")).json
        second = (await client.api.get(f"/api/tasks?limit=3&after={first['next']}")).json
        third = (await client.api.get(f"/api/tasks?limit=3&after={second['next']}")).json
        ids = [task["id"] for page in (first, second, third) for task in page["tasks"]]
        assert ids == [f"t{number}" for number in reversed(range(7))]
        assert third["next"] is None
        failed = (await client.api.get("/api/tasks?status=failed,lost")).json["tasks"]
        assert [task["id"] for task in failed] == ["t5", "t3", "t1"]
        for query in ("status=ended", "limit=0", "limit=1001", "limit=x", "after=-1", "limit=²"):
            assert (await client.api.get(f"/api/tasks?{query}")).status == 400


async def test_a_page_of_long_tasks_is_short_and_the_next_pages_have_the_rest(tmp_path: Path) -> None:
    async with running(tmp_path, max_running=1) as client:
        await client.shell("first", "sleep 1000")
        await client.reaches("first", "running")
        for number in range(25):
            answer = await client.post(id=f"t{number}", command=["true", "x" * 120_000])
            assert answer.status == 201
        ids, after, longest = [], "", 0
        while True:
            page = await client.api.get(f"/api/tasks?limit=1000&status=queued{after}")
            longest = max(longest, len(page.body))
            ids += [task["id"] for task in page.json["tasks"]]
            if page.json["next"] is None:
                break
            after = f"&after={page.json['next']}"
        assert ids == [f"t{number}" for number in reversed(range(25))]
        assert longest < 1 << 21
        for id_ in [*ids, "first"]:
            await client.delete(id_)
        await client.end("first")


async def test_a_long_body_is_checked_as_a_short_one(tmp_path: Path) -> None:
    async with running(tmp_path) as client:
        many = json.dumps({"command": [1] * 9_000}).encode()
        answer = await client.api.request("POST", "/api/tasks", many)
        assert (answer.status, "command.0: write a text" in answer.json["error"]) == (400, True)
        assert (await client.post(id="a", command=["true", "x" * 50_000])).status == 201
        assert (await client.end("a"))["status"] == "succeeded"


async def test_unknown_tasks_and_output_before_the_start_are_not_found(tmp_path: Path) -> None:
    async with running(tmp_path, max_running=1) as client:
        for path in ("/api/tasks/none", "/api/tasks/none/logs", "/api/tasks/..%2F..%2Fetc%2Fpasswd/logs"):
            assert (await client.api.get(path)).status == 404
        assert (await client.delete("none")).status == 404
        await client.shell("a", "sleep 1000")
        await client.reaches("a", "running")
        await client.shell("b", "true")
        assert "has not started" in (await client.api.get("/api/tasks/b/logs")).json["error"]
        assert (await client.api.get("/api/tasks/a/logs?tail=-1")).status == 400
        assert (await client.api.get("/api/tasks/a/logs?follow=perhaps")).status == 400
        await client.delete("a")
        await client.end("b")


async def test_values_of_variables_are_never_answered(tmp_path: Path) -> None:
    async with running(tmp_path) as client:
        answer = await client.post(id="a", command=["true"], env={"TOKEN": "hunter2"})
        bodies = [answer.body, (await client.api.get("/api/tasks")).body, json.dumps(await client.end("a")).encode()]
    assert all(b"TOKEN" in body and b"hunter2" not in body for body in bodies)


async def test_a_body_that_is_too_long_is_refused(tmp_path: Path) -> None:
    async with running(tmp_path) as client:
        assert (await client.api.request("POST", "/api/tasks", b" " * (1 << 19))).status == 413
        assert (await client.post(command=["a" * 140_000])).status == 413


async def test_more_readers_of_logs_than_allowed_are_refused(tmp_path: Path) -> None:
    async with running(tmp_path, max_log_readers=1) as client:
        await client.shell("a", "echo ready; sleep 1000")
        await client.has_logged("a", b"ready")
        async with client.api.stream("/api/tasks/a/logs?follow=true") as stream:
            await stream.start()
            assert (await client.api.get("/api/tasks/a/logs")).status == 503
        assert await client.log("a") == b"ready\n"
        await client.delete("a")
        await client.end("a")


async def test_metrics_count_the_tasks_by_state_also_after_a_restart(tmp_path: Path) -> None:
    reader = InMemoryMetricReader()
    meter = MeterProvider([reader]).get_meter("test")
    async with running(tmp_path, meter=meter) as client:
        for id_, script in (("a", "true"), ("b", "false"), ("c", "true")):
            await client.shell(id_, script)
            await client.end(id_)
    async with running(tmp_path, meter=meter) as client:
        await client.shell("d", "sleep 1000")
        await client.reaches("d", "running")
        points = points_of(reader)
        await client.delete("d")
        await client.end("d")
    assert {status: count for status, count in points["zernel.tasks"].items() if count} == {
        "succeeded": 2,
        "failed": 1,
        "running": 1,
    }
    assert points["zernel.tasks.ended"] == {"succeeded": 2, "failed": 1}
    assert points["zernel.task.duration"] == {"succeeded": 2, "failed": 1}
    assert points["zernel.task.wait"] == {None: 4}


def points_of(reader: InMemoryMetricReader) -> dict[str, dict[Any, float]]:
    """The values of the metrics by status; of histograms, the counts."""
    data = reader.get_metrics_data()
    assert data
    metrics = metrics_in(data)
    return {
        metric.name: {
            (point.attributes or {}).get("status"): float(getattr(point, "value", 0) or getattr(point, "count", 0))
            for point in metric.data.data_points
        }
        for metric in metrics
    }


def test_every_route_is_refused_to_other_machines_without_credentials(tmp_path: Path) -> None:
    engine = MemoryEngine()
    context = make_context("extensions", "tasks")
    config = TasksConfig(directory=tmp_path)
    supervisor = Supervisor(config, context, TaskStore(tmp_path / "tasks.sqlite"), engine)
    routes = TaskRoutes(supervisor, engine, 1).routes
    assert len(routes) == 5
    assert all(route.needs_token for route in routes)
