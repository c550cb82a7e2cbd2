"""The training loops of `truth.py`, and those of `planted.py` that are recorded."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Scenario:
    """The options of a training loop."""

    workers: int = 0
    optimizer: str = "AdamW"
    accumulate: int = 1
    clip: bool = False
    evaluate_every: int = 0
    evaluate_batches: int | None = None
    """Batches after which the evaluation stops early; None for all batches."""
    checkpoint_every: int = 0
    epochs: int = 1
    regions: bool = False
    ranks: int = 1
    ddp: bool = True
    late_rank: bool = False
    stall_every: int = 0
    gpu: bool = False
    """Whether it also computes and communicates on streams of the stand-in GPU."""
    steps: int = 40

    @property
    def intervals(self) -> set[str]:
        """The kinds of intervals that the receiver emits for this loop."""
        return {"user", "sync", "collective"} if self.gpu else {"user"}


SCENARIOS = {
    "AdamW": Scenario(),
    "AdamW, 2 workers": Scenario(workers=2),
    "SGD": Scenario(optimizer="SGD"),
    "accumulation 4": Scenario(accumulate=4),
    "clipping": Scenario(clip=True),
    "evaluation every 10": Scenario(evaluate_every=10),
    "evaluation left early": Scenario(evaluate_every=10, evaluate_batches=3),
    "checkpoints every 10": Scenario(checkpoint_every=10),
    "4 epochs": Scenario(epochs=4, steps=12),
    "4 epochs, 2 workers": Scenario(epochs=4, steps=12, workers=2),
    "record_function": Scenario(regions=True),
    "stalls of 150 ms": Scenario(stall_every=10),
    "stalls of 150 ms, 2 workers": Scenario(stall_every=10, workers=2),
    "gloo, DDP": Scenario(ranks=2, steps=25),
    "gloo, DDP, a late rank": Scenario(ranks=2, late_rank=True, steps=25),
    "gloo, all_reduce by hand": Scenario(ranks=2, ddp=False, steps=25),
    "asynchronous streams": Scenario(gpu=True),
}

PLANTED = {"nothing": 1, "collate in the main process": 1, "Python on rank 1": 2}
"""By planted cause: the ranks of the loop."""
PLANTED_STEPS = {name: 300 if name == "collate in the main process" else 40 for name in PLANTED}
"""A run with stacks takes longer: one record has those of 5 s."""
