"""Cuts the intervals of a training thread without a DataLoader into steps.

An update is all optimizers up to the next pass. A unit lasts from one update to the next. A step is a period of units
(see `scopes.periods`): one unit in most loops, two in a GAN. A loop without a known update has a step for each backward
pass.

Passes without gradients before the first one with gradients are a step of their own: a rollout, an evaluation, or the
generation of text.
"""

from dataclasses import dataclass

from otel_zernel_processors.phases.intake.intervals import IN_PLACE, SKIPPED, UPDATES, ThreadInterval
from otel_zernel_processors.phases.scopes.periods import Signature
from otel_zernel_processors.phases.scopes.steps import Boundary, Step, StepKind
from otel_zernel_processors.phases.scopes.units import Units, averages, with_batch, with_updates

_PASSES = 64
"""Backward passes without an update, after which each one is a step,"""
_PATIENCE_NS = 30_000_000_000
"""and the same for time with at least three of them."""
_STRETCH_NS = 10_000_000_000
"""A longer stretch without gradients is divided into steps,"""
_LONGEST = 100
"""and one of more runs. Each run may have 16 parts."""
_ADJACENT_NS = 1_000_000
"""A run without gradients that ends so shortly before a forward pass belongs to it: for example, the targets of
Q-learning."""
_DIRECTLY_NS = 50_000
"""Runs with less time between them are one pass: for example, of layers that compute without gradients (activation
checkpoints)."""
_PASS_KINDS = frozenset({"forward", "inference", "backward", "data_loading"})
"""The kinds that begin the next unit after an update."""
_STRETCH_KINDS = frozenset({"inference", "data_loading", "zero_grad"})
_TOKENS = _PASS_KINDS | UPDATES | {"zero_grad", IN_PLACE}


@dataclass(slots=True)
class _Token:
    """An interval of the open unit that no other encloses."""

    start: int
    end: int
    kind: str
    name: str
    backwards: int
    """Backward passes in it."""
    operators: int
    is_open: bool
    """Whether it is a run whose pass goes on."""
    updates: bool
    """Whether it changes the weights or averages them, or encloses an interval that does."""
    averages: bool = False


class PassCutter:
    """Cuts the intervals of one thread, fed in the order of their ends, into steps.

    Only the end of an interval shows which others it encloses, so a unit is cut when the next one begins.
    """

    def __init__(self, bridge_ns: int, start: int | None = None) -> None:
        """A zero_grad that follows an update within `bridge_ns` belongs to it. The first step begins at `start` (ns),
        or with the first interval."""
        self._bridge_ns = bridge_ns
        self._intervals: list[ThreadInterval] = []
        """Of the open unit."""
        self._tokens: list[_Token] = []
        self._is_stretch = True
        """Whether all of these are passes without gradients, loads or zero_grads."""
        self._start = start
        self._is_start_known = self._has_lead = start is not None
        """Whether `_start` is the end of another step, and whether another pass followed. Nothing marks the beginning
        of a loop."""
        self._has_updates = self._has_backwards = self._by_backward = self._has_optimizer = False
        self._units = Units()
        self._skipped: ThreadInterval | None = None
        """Steps without intervals that the next interval ends."""

    @property
    def is_skipping(self) -> bool:
        """Whether the next interval ends steps that have none."""
        return self._skipped is not None

    @property
    def pending(self) -> int:
        """Number of intervals held."""
        return len(self._intervals) + self._units.pending

    @property
    def begins(self) -> int | None:
        """When (ns) the first held step begins; None without one."""
        begins = self._units.begins
        return self._start if begins is None else begins

    @property
    def has_cut(self) -> bool:
        """Whether it has cut a unit."""
        return self._has_updates and self._units.count > 0

    def feed(self, interval: ThreadInterval) -> list[Step]:
        """Adds an interval; returns the steps that it completes."""
        if self._skipped:
            return [self._end_skipped(self._skipped, interval)]
        if interval.kind == SKIPPED:
            return self._skip(interval)
        steps: list[Step] = []
        if interval.kind in _TOKENS:
            token = self._token(interval)
            if self._tokens and token.kind in _PASS_KINDS:
                if self._is_stretch:
                    self._begin_evaluation(interval)
                steps = self._cut_before(token)
            if token.kind != IN_PLACE or token.updates:  # else it clips gradients, or adds to sums of a metric
                self._is_stretch = self._is_stretch and token.kind in _STRETCH_KINDS
                self._tokens.append(token)
        if self._start is None:
            self._start = interval.start
        self._intervals.append(interval)
        return steps

    def end(self) -> list[Step]:
        """The remaining steps. The last one is unfinished, unless it ends with an update."""
        steps = self._cut_unit() if self._is_updated() else []
        steps += self._units.flush()
        if self._intervals and self._start is not None:
            end = max(interval.end for interval in self._intervals)
            if end > self._start:
                steps.append(self._take(end, "unfinished"))
        self._intervals, self._tokens, self._start, self._is_stretch = [], [], None, True
        self._skipped = None
        return steps

    def _skip(self, skipped: ThreadInterval) -> list[Step]:
        """The steps up to some that have no intervals."""
        self._intervals = [interval for interval in self._intervals if interval.end <= skipped.start]
        self._tokens = [token for token in self._tokens if token.end <= skipped.start]
        steps = self.end()
        self._intervals, self._start, self._skipped = [skipped], skipped.start, skipped
        return steps

    def _end_skipped(self, skipped: ThreadInterval, last: ThreadInterval) -> Step:
        """These steps. `last`: the interval that ends the last of them."""
        self._intervals, self._skipped = [], None
        self._start, self._is_start_known = last.end, True
        return Step(skipped.start, last.end, "skipped", [last], boundary=self._boundary, skipped=skipped.issued)

    def cut(self) -> list[Step]:
        """The steps held so far. The last one is unfinished."""
        rest = max((interval.end for interval in self._intervals), default=self._start)
        steps = self.end()
        self._start = rest
        return steps

    def _token(self, interval: ThreadInterval) -> _Token:
        """The token of an interval. It replaces those that it encloses."""
        end, start, _, kind, name = interval[:5]
        run = interval.operators
        operators, is_open = (run.count, run.is_open) if run else (0, False)
        repeats = averages(interval) and self._is_updated()
        token = _Token(start, end, kind, name, int(kind == "backward"), operators, is_open, repeats, repeats)
        if kind == "optimizer" and not self._has_optimizer:
            self._find_optimizer()
        if kind == "optimizer" or (kind in ("update", IN_PLACE) and self._follows_backward()):
            token.updates = repeats or kind != IN_PLACE or not self._has_optimizer
        while self._tokens and self._tokens[-1].start >= start:
            inner = self._tokens.pop()
            token.backwards += inner.backwards
            token.operators += inner.operators
            token.updates |= inner.updates
        self._has_updates |= token.updates
        self._has_backwards |= token.backwards > 0
        return token

    def _begin_evaluation(self, following: ThreadInterval) -> None:
        """A loop may begin with an evaluation. Its first batch comes as long before its first pass as the next one."""
        if not self._is_start_known and not self._has_lead and following.kind == "inference":
            first = self._intervals[0]
            self._intervals[0], self._start = with_batch(first, following, following.start - self._tokens[-1].end)
        self._has_lead = True

    def _find_optimizer(self) -> None:
        """The changes so far were no update: the thread has an optimizer."""
        self._has_optimizer = True
        for token in self._tokens:
            token.updates = token.updates and token.kind != IN_PLACE

    def _follows_backward(self) -> bool:
        """Whether weights change after a backward pass. Else it is, for example, an average of the weights."""
        return any(token.backwards or token.updates for token in self._tokens)

    def _is_updated(self) -> bool:
        """Whether the last work of the open unit is an update."""
        last = next((token for token in reversed(self._tokens) if token.kind != "zero_grad"), None)
        return last is not None and last.updates

    def _cut_before(self, token: _Token) -> list[Step]:
        """The steps that are complete because this token begins the next one, if it does."""
        if self._is_updated():
            return self._cut_unit()
        if self._is_stretch:
            return self._cut_stretch(token)
        if self._has_updates:
            return []
        return self._cut_passes(token) if self._has_backwards else self._cut_inference(token)

    def _cut_unit(self) -> list[Step]:
        """Cuts after the last update, and a zero_grad that follows at once."""
        at = max(at for at, token in enumerate(self._tokens) if token.updates)
        tokens, end = self._tokens[: at + 1], self._tokens[at].end
        for token in self._tokens[at + 1 :]:
            if token.start - end >= self._bridge_ns:
                break
            end = token.end
        repeated = [token for token in tokens if not token.averages]
        updates = tuple([token.name for token in repeated if token.updates])
        backwards, operators = sum([unit.backwards for unit in repeated]), sum([unit.operators for unit in repeated])
        begins = next((token.start for token in tokens if token.kind != "zero_grad"), end)
        gap = begins - self._start if self._is_start_known and self._start is not None else None
        self._by_backward = False
        if gap is None and not backwards:  # the collector attached within this step
            return [self._take(end, "unfinished")]
        return self._units.add(self._take(end, "training"), Signature(updates, backwards, operators), gap)

    def _cut_stretch(self, token: _Token) -> list[Step]:
        """Cuts after passes without gradients, if passes with gradients begin."""
        tokens = self._tokens
        if token.kind in _STRETCH_KINDS:
            is_long = token.start - tokens[0].start > _STRETCH_NS or len(tokens) >= _LONGEST
            is_over = is_long or not (self._has_backwards or tokens[-1].is_open)
            whole = tokens if is_over else []
        elif (last := tokens[-1]).kind == "inference":
            belongs = last.is_open or token.kind == "backward" or token.start - last.end < _ADJACENT_NS
            whole = tokens[: _begin_of_pass(tokens)] if belongs else tokens
        else:
            whole = tokens[: _count_without_loads(tokens)]
        if all(mark_.kind == "zero_grad" for mark_ in whole):
            return []
        kind: StepKind = "evaluation" if any(mark_.kind == "data_loading" for mark_ in whole) else "inference"
        return [*self._units.flush(), self._take(whole[-1].end, kind)]

    def _cut_inference(self, token: _Token) -> list[Step]:
        """Without any training: cuts a long stretch of passes whose gradients nothing uses."""
        if token.start - self._tokens[0].start <= _STRETCH_NS:
            return []
        return [*self._units.flush(), self._take(self._tokens[-1].end, "inference")]

    def _cut_passes(self, token: _Token) -> list[Step]:
        """Without any update: cuts after each backward pass once it is clear that no update comes."""
        backwards = [token for token in self._tokens if token.backwards]
        if not self._by_backward:
            lasted = token.end - backwards[0].start if backwards else 0
            if len(backwards) < _PASSES and (lasted < _PATIENCE_NS or len(backwards) < 3):
                return []
            self._by_backward = True
        steps: list[Step] = []
        if not self._is_start_known and self._begins_late(backwards):
            steps.append(self._take(backwards.pop(0).end, "unfinished"))
        return [*steps, *(self._take(backward.end, "training") for backward in backwards)]

    def _begins_late(self, backwards: list[_Token]) -> bool:
        """Whether the collector attached within the first of these steps: nothing, or a part of a pass, is before its
        backward pass."""
        at, following = (self._tokens.index(backward) for backward in backwards[:2])
        first, second = (
            sum(pass_.operators for pass_ in some) for some in (self._tokens[:at], self._tokens[at:following])
        )
        return at == 0 or first < second

    def _take(self, end: int, kind: StepKind) -> Step:
        """Removes the part of the open unit up to `end` (ns)."""
        start = self._start if self._start is not None else end
        taken = [interval for interval in self._intervals if interval.end <= end]
        taken = with_updates(taken, by_hand=not self._has_optimizer)
        self._intervals = [interval for interval in self._intervals if interval.end > end]
        trains = any(token.updates or token.backwards for token in self._tokens if token.end <= end)
        self._tokens = [token for token in self._tokens if token.end > end]
        self._is_stretch = all(token.kind in _STRETCH_KINDS for token in self._tokens)
        self._start, self._is_start_known = end, True
        has_runs = any(pass_.operators for pass_ in taken)
        return Step(start, end, kind, taken, trains=trains, boundary=self._boundary, has_runs=has_runs)

    @property
    def _boundary(self) -> Boundary:
        if self._has_updates:
            return "optimizer"
        return "backward" if self._by_backward else ""


def _begin_of_pass(tokens: list[_Token]) -> int:
    """The position of the first of the runs at the end that follow each other directly. There are none if they go on
    with an earlier run: then they are the end of an evaluation."""
    first = len(tokens) - 1
    while (
        first and tokens[first - 1].kind == "inference" and tokens[first].start - tokens[first - 1].end < _DIRECTLY_NS
    ):
        first -= 1
    return len(tokens) if first and tokens[first - 1].is_open else first


def _count_without_loads(tokens: list[_Token]) -> int:
    """The number of tokens before the loads at the end."""
    count = len(tokens)
    while count and tokens[count - 1].kind != "inference":
        count -= 1
    return count
