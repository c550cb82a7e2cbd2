"""The steps of a process in blocks of time."""

from otel_zernel_commands.why.watch import StepBlocks, watched_state
from tests.exporters.live.live_runs import PROCESS, points


def test_a_block_has_the_steps_and_the_time_since_the_last_report() -> None:
    state, blocks = watched_state(), StepBlocks()
    for steps, load, forward in ((10, 1.0, 0.0), (10, 1.5, 0.0), (25, 2.0, 3.0)):
        times = [({"zernel.position": "load", "zernel.activity": "file"}, load),
                 ({"zernel.position": "load", "zernel.activity": "python"}, load),
                 ({"zernel.position": "forward", "zernel.activity": "python"}, forward)]  # fmt: skip
        state.add(points("zernel.ledger.time", times, PROCESS), 0.0)
        state.add(points("zernel.steps", [({"zernel.step.kind": "training"}, steps)], PROCESS), 0.0)
        blocks.take(state)
    [process] = state.processes
    first, second = blocks.of(process)
    assert (first.steps, first.positions) == (10, {"load": 2.0, "forward": 0.0})
    assert (second.steps, second.positions) == (15, {"load": 2.0, "forward": 3.0})
    assert second.seconds == 5.0


def test_a_long_watch_has_few_blocks_that_lose_nothing() -> None:
    state, blocks = watched_state(), StepBlocks()
    for report in range(1, 1001):
        moment = {"zernel.position": "load", "zernel.activity": "file"}
        state.add(points("zernel.ledger.time", [(moment, float(report))], PROCESS), 0.0)
        state.add(points("zernel.steps", [({"zernel.step.kind": "training"}, 10 * report)], PROCESS), 0.0)
        blocks.take(state)
    [process] = state.processes
    of = blocks.of(process)
    assert len(of) <= 64
    assert sum(block.steps for block in of) == 10_000
    assert sum(block.seconds for block in of) == 1000.0
