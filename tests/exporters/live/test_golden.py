"""The live state of recorded training runs: real spans of the ebpf receiver, through the real phases processor.

`ZERNEL_WRITE_GOLDEN=1 pytest tests/exporters/live/test_golden.py` writes the files anew; read their difference.
"""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.exporters.live.live_runs import LiveRun, recorded_batches

GOLDEN = Path(__file__).parent / "golden"
RUNS = {"AdamW": False, "evaluation_every_10": False, "gloo_DDP_a_late_rank": True}
"""Recorded runs, and whether they are jobs of several ranks."""


def shown(state: dict[str, Any]) -> dict[str, Any]:
    """The state without what depends on this machine, and with the first and last steps of each timeline."""
    shortened = {rank: [len(rows), *rows[:2], *rows[-2:]] for rank, rows in state["timeline"].items()}
    columns = state["heat"]["columns"]
    return {**state, "collector": {}, "timeline": shortened, "heat": {"columns": columns}}


@pytest.mark.parametrize("name", RUNS)
async def test_a_recorded_run_has_this_state(name: str) -> None:
    run = LiveRun()
    for batch in recorded_batches(name, is_job=RUNS[name]):
        await run.add(batch)
        run.clock.advance(0.2)
    loads = json.loads(json.dumps(shown(run.after(2))))
    path = GOLDEN / f"{name}.json"
    if os.environ.get("ZERNEL_WRITE_GOLDEN"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(loads, indent=1) + "\n", "utf-8")
    assert loads == json.loads(path.read_text("utf-8"))
