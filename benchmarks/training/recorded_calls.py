"""A loop's own record of its calls into PyTorch, made by wrappers that know nothing of the receiver."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

import torch
from torch import nn

from benchmarks.training.truth import Truth, now


class RecordedCalls(Truth):
    """The outermost calls of the loop into PyTorch, with their times."""

    def __init__(self) -> None:
        super().__init__()
        self.on = False
        self._inside = False

    @contextmanager
    def outermost(self, name: str) -> Iterator[None]:
        """Marks the block, unless a mark encloses it."""
        if self._inside or not self.on:
            yield
            return
        self._inside = True
        try:
            with self.mark(name):
                yield
        finally:
            self._inside = False

    @contextmanager
    def suspended(self, name: str, since: list[int]) -> Iterator[None]:
        """Ends the enclosing mark, which began at the last of `since`, for the time of the block."""
        if not self.on:
            yield
            return
        self.marks.append((name, since[-1], now()))
        self._inside = False
        yield
        self._inside = True
        since.append(now())

    def watch(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        """Records the calls of this model and this optimizer."""
        self.watch_optimizer(optimizer)
        forward = model.forward

        @wraps(forward)  # transformers reads its signature
        def recorded_forward(*arguments: Any, **named: Any) -> Any:
            with self.outermost("forward"):
                return forward(*arguments, **named)

        model.forward = recorded_forward

    def watch_optimizer(self, optimizer: torch.optim.Optimizer) -> None:
        """Records the steps of this optimizer. A closure that it calls belongs to the loop."""
        step, zero_grad = optimizer.step, optimizer.zero_grad

        def recorded_step(closure: Callable[[], Any] | None = None) -> Any:
            if closure is None:
                with self.outermost("optimizer"):
                    return step()
            since = [now()]

            def recorded_closure() -> Any:
                with self.suspended("optimizer", since):
                    return closure()

            self._inside = True
            made = step(recorded_closure)
            self._inside = False
            if self.on:
                self.marks.append(("optimizer", since[-1], now()))
            return made

        def recorded_zero_grad(*arguments: Any, **named: Any) -> None:
            with self.outermost("zero_grad"):
                zero_grad(*arguments, **named)

        recorded_step._wrapped_by_lr_sched = True  # type: ignore[attr-defined]  # schedulers wrap methods only
        optimizer.step = recorded_step
        optimizer.zero_grad = recorded_zero_grad

    def watch_torch(self) -> None:
        """Records backward passes, reads of results, and loads of all loaders of the process."""
        self._replace(torch.Tensor, "backward", "backward")
        self._replace(torch.Tensor, "item", "wait")
        iterator = torch.utils.data.dataloader._BaseDataLoaderIter
        load = iterator.__next__

        def recorded_load(loader: Any) -> Any:
            if self._inside or not self.on:
                return load(loader)
            start = now()
            try:
                batch = load(loader)
            except StopIteration:
                self.marks.append(("end of data", start, now()))
                raise
            self.marks.append(("data", start, now()))
            return batch

        iterator.__next__ = recorded_load

    def _replace(self, owner: type, name: str, mark: str) -> None:
        function = getattr(owner, name)

        def recorded(*arguments: Any, **named: Any) -> Any:
            with self.outermost(mark):
                return function(*arguments, **named)

        setattr(owner, name, recorded)
