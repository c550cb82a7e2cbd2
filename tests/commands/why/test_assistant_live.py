"""`otel-zernel mcp` answers an assistant about a job that runs: it needs root, eBPF and PyTorch."""

import json
import sys

import pytest

from tests.commands.why.test_live import JOBS, training

pytestmark = [pytest.mark.soak, pytest.mark.timeout(600)]


async def test_every_tool_answers_about_a_running_job() -> None:
    from mcp import Client
    from mcp.client.stdio import StdioServerParameters, stdio_client

    server = StdioServerParameters(command=sys.executable, args=["-m", "otel_zernel", "mcp"])
    async with training(str(JOBS / "slow_loader.py")) as pid, Client(stdio_client(server)) as client:
        jobs = (await client.call_tool("jobs", {"seconds": 5})).structured_content
        (number,) = (job["job"] for job in jobs["jobs"] if job["title"]["data"] == "slow_loader.py")
        why = (await client.call_tool("why", {"job": number})).structured_content
        assert why["report"] == jobs["report"], "the tools share a report"
        assert why["causes"][0]["position"] == "load", json.dumps(why)
        assert any("slow_loader.py" in line["line"]["data"] for cause in why["causes"] for line in cause["lines"])
        hung = (await client.call_tool("hung", {"job": number})).structured_content
        assert hung["ranks"] == []
        lines = (await client.call_tool("lines", {"job": number})).structured_content
        assert lines["lines"]
        metrics = (await client.call_tool("metrics", {"job": number})).structured_content
        assert pid in [rank["pid"] for rank in metrics["ranks"]]
        fresh = (await client.call_tool("why", {"job": number, "seconds": 5, "fresh": True})).structured_content
        assert fresh["report"] == why["report"] + 1
        numbers = {"before": why["report"], "after": fresh["report"]}
        compared = (await client.call_tool("compare", numbers)).structured_content
        assert [job["is_slower"] for job in compared["jobs"]] == [False], json.dumps(compared)
