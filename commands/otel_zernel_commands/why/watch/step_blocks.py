"""The steps of each process in blocks of time: how long a step took, and where, with its noise."""

from collections import defaultdict
from dataclasses import dataclass, field

from otel_zernel_libraries.training.state import SeenProcess, TrainingState

_MOST_BLOCKS = 64
"""Blocks of a process. With more, each two neighbours become one."""


@dataclass(slots=True)
class StepBlock:
    """The steps of a process between two of its reports."""

    steps: int = 0
    positions: dict[str, float] = field(default_factory=dict)
    """The time (s) by position."""

    @property
    def seconds(self) -> float:
        return sum(self.positions.values())

    def add(self, other: "StepBlock") -> None:
        """Adds the steps of the next block."""
        self.steps += other.steps
        for position, seconds in other.positions.items():
            self.positions[position] = self.positions.get(position, 0.0) + seconds


class StepBlocks:
    """The blocks of all processes, from their cumulative sums."""

    def __init__(self) -> None:
        self._totals: defaultdict[str, StepBlock] = defaultdict(StepBlock)
        self._blocks: defaultdict[str, list[StepBlock]] = defaultdict(list)

    def take(self, state: TrainingState) -> None:
        """Ends the block of each process that has reported steps since the last call."""
        for process in state.processes:
            if process.trained > self._totals[process.id].steps:
                self._end(process)

    def of(self, process: SeenProcess) -> tuple[StepBlock, ...]:
        """The blocks of a process, in order of time."""
        return tuple(self._blocks.get(process.id, ()))

    def _end(self, process: SeenProcess) -> None:
        total = StepBlock(process.trained)
        for (position, _), seconds in process.ledger.items():
            total.positions[position] = total.positions.get(position, 0.0) + seconds
        before, blocks = self._totals[process.id], self._blocks[process.id]
        self._totals[process.id] = total
        grown = {at: seconds - before.positions.get(at, 0.0) for at, seconds in total.positions.items()}
        blocks.append(StepBlock(total.steps - before.steps, {at: max(seconds, 0.0) for at, seconds in grown.items()}))
        if len(blocks) > _MOST_BLOCKS:
            for at in range(len(blocks) // 2):
                blocks[at].add(blocks[at + 1])
                del blocks[at + 1]
