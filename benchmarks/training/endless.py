"""Trains with planted causes for so many steps: `python benchmarks/training/endless.py NAME STEPS [traceml]`.

It prints a line once it trains. With `traceml`, it has the two changes that TraceML asks for: its `init`, and a
`trace_step` around each step. NAME is one of `benchmarks.training.planted`. Needs torch, and this repository in
PYTHONPATH.
"""

import os
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from typing import Any

from torch import nn

from benchmarks.training.planted import Places, Training, begin, places_of, steps

WARM = 10
"""Steps before it says that it trains."""
Around = Callable[[nn.Module], AbstractContextManager[Any]]


def within(places: Places, around: Around) -> Places:
    """The same loop with a context around all that it does with a batch."""
    entered = ExitStack()

    def enter(training: Training) -> None:
        entered.enter_context(around(training.model))
        places.before_forward(training)

    def leave(training: Training) -> None:
        places.after_step(training)
        entered.close()

    return replace(places, before_forward=enter, after_step=leave)


def main(name: str, count: int, *options: str) -> None:
    places = places_of(name)("")
    if "traceml" in options:
        import traceml_ai  # type: ignore[import-not-found]  # a peer, in a folder of its own

        traceml_ai.init(mode="auto")
        places = within(places, traceml_ai.trace_step)
    running = steps(begin(), places)
    for number in range(count):
        next(running)
        if number == WARM and os.environ.get("RANK", "0") == "0":
            print("trains", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), *sys.argv[3:])
