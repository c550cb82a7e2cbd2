"""A training loop with a planted cause, and the same loop after somebody has followed an advice on it.

`python -m benchmarks.training.advised NAME ADVICE FOLDER`: NAME is one of CAUSES of `benchmarks.training.planted`, and
ADVICE a sentence of `why`, which is followed word for word. The loops run in pairs of blocks. The first rank writes
FOLDER/gains.json: for each pair, by which part a step is shorter. Needs torch.
"""

import gc
import json
import os
import queue
import re
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as checkpoint

from benchmarks.training.planted import (
    ManyParameters,
    Places,
    Training,
    Work,
    begin,
    block_of,
    every,
    gains,
    nothing,
    places_of,
    steps,
)

FEW, FEW_HUNDRED = 10, 200
"""The steps of "every few steps", and of "every few hundred steps"."""
ROUNDS = 3
"""Of the pairs."""
WORKS = ("before_forward", "in_forward", "before_backward", "before_step", "after_step")
WARM = 10
Followed = Callable[[Places, str], Places]


def with_workers(places: Places, advice: str) -> Places:
    """What the loop does before the pass is done by workers, as many as the sentence has."""
    number = re.search(r"num_workers=(\d+)", advice)
    assert number
    before, sample = places.before_forward, places.sample

    def prepare() -> None:
        sample()
        before(None)  # type: ignore[arg-type]  # work that needs no model

    return replace(places, before_forward=nothing, sample=prepare, workers=int(number[1]), persistent=True)


def every_few_steps(places: Places, _: str) -> Places:
    return _with_works(places, lambda work: every(FEW, work))


def in_another_thread(places: Places, _: str) -> Places:
    return _with_works(places, Elsewhere)


def _with_works(places: Places, change: Callable[[Work], Work]) -> Places:
    """The loop with a change of all that it does beside training."""
    changed: dict[str, Any] = {name: change(work) for name in WORKS if (work := getattr(places, name)) is not nothing}
    return replace(places, **changed)


class Elsewhere:
    """Does a work in another thread, one after another."""

    def __init__(self, work: Work) -> None:
        self._work, self._waiting = work, queue.Queue[Training]()
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while True:
            self._work(self._waiting.get())

    def __call__(self, training: Training) -> None:
        self._waiting.put(training)


class Background:
    """Writes the checkpoint that `planted.save` writes by `torch.distributed.checkpoint.async_save`."""

    def __init__(self) -> None:
        self._folder = tempfile.mkdtemp()
        self._last: Any = None

    def __call__(self, training: Training) -> None:
        if not training.kept:
            training.kept = [torch.zeros(2_000_000) for _ in range(12)]
        if self._last is not None:
            self._last.result()
        state = {"model": training.model.state_dict(), "more": training.kept}
        self._last = checkpoint.async_save(state, checkpoint_id=self._folder)


def in_background(places: Places, _: str) -> Places:
    return replace(places, after_step=every(20, Background()))


def with_freeze(places: Places, _: str) -> Places:
    """Without automatic collections once the objects are there that live as long as the program."""
    work = places.after_step

    def collect(training: Training) -> None:
        is_first = not training.kept
        work(training)
        if is_first:
            gc.freeze()
            gc.disable()
        if training.steps % FEW_HUNDRED == 0:
            gc.collect()

    return replace(places, after_step=collect)


def joined(places: Places, _: str) -> Places:
    """One collective of all values in place of 40."""

    def work(training: Training) -> None:
        dist.all_reduce(torch.ones(40))

    return replace(places, after_step=work)


FOLLOWED: Mapping[str, Followed] = {
    "num_workers=": with_workers,
    "`DataLoader(..., persistent_workers=True)`": lambda places, _: replace(places, persistent=True),
    "fused=True": lambda places, _: replace(places, before_step=ManyParameters(fused=True)),
    "model.no_sync()": lambda places, _: replace(places, syncs_all=False),
    "every few steps": every_few_steps,
    "in another thread": in_another_thread,
    "async_save": in_background,
    "gc.freeze()": with_freeze,
    "Join them": joined,
    "batches = iter(loader)": lambda places, _: replace(places, iterator_per_step=False),
}
"""By a part of an advice: the loop of somebody who has followed it. The first part that the advice has counts."""


def followed(places: Places, advice: str) -> Places:
    """The loop after the advice. Raises LookupError if there is no change for it."""
    change = next((change for part, change in FOLLOWED.items() if part in advice), None)
    if change is None:
        raise LookupError(advice)
    return change(places, advice)


def main(name: str, advice: str, folder: Path) -> None:
    warnings.simplefilter("ignore")
    tempfile.tempdir = str(folder)
    training, places = begin(), places_of(name)("")
    running = steps(training, places)
    for _ in range(WARM):
        next(running)
    after = followed(places, advice)
    gained = [gain for _ in range(ROUNDS) for gain in gains(training, places, after, block_of(name))]
    if os.environ.get("RANK", "0") == "0":
        (folder / "gains.json").write_text(json.dumps(gained))
    os._exit(0)  # workers and daemons need no end


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
