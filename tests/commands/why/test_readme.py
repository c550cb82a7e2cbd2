"""The README begins with the output of a recorded run, and the command's README describes its JSON."""

import json
from pathlib import Path

from otel_zernel_commands.why.rendering import Terminal, report_json, report_text
from tests.commands.why.recorded_runs import report

ROOT = Path(__file__).parents[3]


def test_the_first_example_is_the_output_for_a_recorded_job() -> None:
    readme = (ROOT / "README.md").read_text("utf-8")
    shown = readme.partition("<!-- output of why -->\n```\n")[2].partition("```")[0]
    text = report_text(report("gloo, DDP, a late rank", is_job=True), Terminal(80))
    assert shown.rstrip()
    assert text.startswith(shown.rstrip())


def test_every_key_of_the_json_is_described() -> None:
    readme = (ROOT / "commands/otel_zernel_commands/why/README.md").read_text("utf-8")
    tree = json.loads(report_json(report("gloo, DDP, a late rank", is_job=True)))
    job = tree["jobs"][0]
    named = {f"{key}[]" if key in ("jobs", "gpus") else key for key in tree}
    keys = {*named, *job, *job["step"], *job["time"][0], *job["ranks"][0]} - {
        "start",
        "step",
        "time",
        "phases",
        "device",
        "ranks",
        "gpus",
        "threads",
    }
    parts = {
        f"jobs[].{key}" for key in ("start", "step", "time[]", "phases[]", "device", "ranks[]", "gpus[]", "threads[]")
    }
    assert {key for key in keys | parts if f"`{key}`" not in readme} == set()
