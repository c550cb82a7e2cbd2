"""The README begins with the output of a recorded run, and a page describes its JSON.

`python -m tests.commands.why.test_readme` writes the output again.
"""

import json
import re
from pathlib import Path
from typing import Any

from otel_zernel_commands.why.rendering import report_text
from otel_zernel_commands.why.rendering.as_json import report_json
from otel_zernel_commands.why.terminal import Terminal
from tests.commands.why.answers import slow_report
from tests.commands.why.recorded_runs import report

ROOT = Path(__file__).parents[3]


README = ROOT / "README.md"
SAMPLE = re.compile(r"(?<=<!-- output of why -->\n```\n).*?(?=```)", re.DOTALL)


def sample() -> str:
    """The report on a job that prepares its batches in the main process."""
    return report_text(report("collate in the main process"), Terminal(80))


def test_the_first_example_is_the_output_for_a_recorded_job() -> None:
    assert SAMPLE.findall(README.read_text("utf-8")) == [sample()]


def keys_of(value: Any) -> set[str]:
    """The keys of all objects in a JSON value, but those of tables by position, phase or name."""
    if isinstance(value, list):
        return set().union(*map(keys_of, value))
    if not isinstance(value, dict):
        return set()
    tables = {"positions", "shares", "evidence", "starved"}
    return {*value, *set().union(*(keys_of(one) for key, one in value.items() if key not in tables), set())}


def test_every_key_of_the_json_is_described() -> None:
    page = (ROOT / "docs/development/why_json.md").read_text("utf-8")
    described = set(re.findall(r"`(?:\w+(?:\[\])?\.)?(\w+)(?:\[\])?`", page))
    assert keys_of(json.loads(report_json(slow_report()))) - described == set()


if __name__ == "__main__":
    README.write_text(SAMPLE.sub(lambda _: sample(), README.read_text("utf-8")), "utf-8")
