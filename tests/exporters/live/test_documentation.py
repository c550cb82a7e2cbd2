"""docs/development/live_state.md: its JavaScript follows the stream, and its fields are those of the code."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from docs.catalogue import ROOT
from tests.exporters.live.live_runs import LiveRun, recorded_batches

PAGE = (ROOT / "docs/development/live_state.md").read_text("utf-8")
_PROGRAM = """
const { state, deltas } = JSON.parse(require("fs").readFileSync(0, "utf-8"));
for (const delta of deltas) apply(state, delta);
process.stdout.write(JSON.stringify(state));
"""


async def test_its_javascript_follows_the_deltas(tmp_path: Path) -> None:
    node = shutil.which("node")
    if not node:
        pytest.skip("needs node")
    run = LiveRun(history=20)
    first: dict[str, Any] = run.exporter.snapshot()
    for batch in recorded_batches("gloo_DDP_a_late_rank", is_job=True):
        await run.exporter.export(batch)
        run.after(0.4)
    deltas = run.exporter.changes_since(first["seq"])
    assert deltas
    (function,) = re.findall(r"```js\n(function apply.*?\n}\n)", PAGE, re.DOTALL)
    program = tmp_path / "apply.js"
    program.write_text(function + _PROGRAM, "utf-8")
    given = json.dumps({"state": first, "deltas": deltas})
    done = subprocess.run([node, program], input=given, capture_output=True, text=True, check=True, timeout=60)  # noqa: ASYNC221
    assert json.loads(done.stdout) == json.loads(json.dumps(run.exporter.snapshot()))


@pytest.mark.parametrize("table", ["ranks", "jobs"])
async def test_it_describes_every_field_of_a_recorded_job(table: str) -> None:
    state = await LiveRun().add(*recorded_batches("gloo_DDP_a_late_rank", is_job=True))
    (section,) = re.findall(rf"^### `{table}`.*?\n(.*?)(?=^###? )", PAGE, re.MULTILINE | re.DOTALL)
    named = {name for row in re.findall(r"^\| (.*?) \|", section, re.MULTILINE) for name in re.findall(r"`(\w+)`", row)}
    assert {field for one in state[table].values() for field in one} <= named
