"""The lines of Python that take the time of a cause, and what they say about it."""

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from operator import attrgetter
from statistics import median
from typing import Final, NamedTuple

import numpy as np

from otel_zernel.text import printable
from otel_zernel_libraries.training.amounts import amount
from otel_zernel_libraries.training.causes.advice import Case, advice_on
from otel_zernel_libraries.training.causes.cause import Cause, CauseName, CodeTime, Evidence
from otel_zernel_libraries.training.causes.job import FOR_CPU, ON_CPU, Job
from otel_zernel_libraries.training.causes.library_calls import LibraryCall, library_call
from otel_zernel_libraries.training.causes.replays import LeftOut
from otel_zernel_libraries.training.code_paths import (
    Place,
    calls_compile,
    in_anomaly_mode,
    in_hook,
    in_kernel_compiler,
    in_recomputation,
    in_translation,
    is_of_hook,
    line_text,
    of_worker,
    place_text,
    short_function,
    takes_one_by_one,
    waits_for_python,
)
from otel_zernel_libraries.training.code_times import FOR_OTHERS, CodeTimes, PlacedStack, PlaceKey
from otel_zernel_libraries.training.device.streams import Floats
from otel_zernel_libraries.training.ledger import Activity, Position
from otel_zernel_libraries.training.stacks import CodeLine

_SHOWN: Final = 3
"""Lines of a cause."""
_SMALL: Final = 0.02
"""A line with less of the time of its cause is not worth a line."""
_MOST_OF_IT: Final = 0.5
"""A line, a sign or a library with this part of the gain is its reason."""
_SEVERAL: Final = 3
"""Steps with a compilation. The first ones of a program compile its functions."""
_NOTHING: Final = 1e-12
_MODULE: Final = "<module>"
_OTHER_TOOL: Final = "py-spy"
"""A known line replaces an advice to look for it."""
_OF_OTHER_PROGRAMS: Final = frozenset(
    {
        *(CauseName.CPU_TAKEN, CauseName.CPU_QUOTA, CauseName.THREADS, CauseName.MEMORY_GROWTH),
        *(CauseName.SLOW_LINK, CauseName.EXTRA_COLLECTIVES, CauseName.IMBALANCE),
        *(CauseName.DEVICE_CLOCKS, CauseName.DEVICE_SHARED),
    }
)
"""No line of the program is the reason of these."""
_OF_PASS: Final = frozenset({Activity.OPERATOR, Activity.NATIVE})
"""Activities that are the backward pass itself, except in hooks."""
_OF_WORKERS: Final = frozenset({CauseName.WORKERS_SLOW, CauseName.WORKERS_TOO_FEW})


class _Sign(NamedTuple):
    """Frames that show the reason of a cause."""

    is_in: Callable[[Sequence[CodeLine]], bool]
    text: str
    advice: str = ""


_SIGNS: Final = (
    _Sign(
        in_anomaly_mode,
        "Anomaly mode keeps the Python stack of each operator: {} of each step. It also looks at each gradient in the "
        "backward pass, for a time that is not known.",
        "Switch anomaly mode off: `torch.autograd.set_detect_anomaly(False)`. It is for debugging.",
    ),
    _Sign(
        takes_one_by_one,
        "The DataLoader takes samples one by one, and joins them: {} of each step.",
        "Take a whole batch at once: `DataLoader(data, batch_size=None, sampler=BatchSampler(RandomSampler(data), N, "
        "False))` asks a dataset of tensors once for each batch.",
    ),
    _Sign(
        in_hook,
        "Hooks, or functions of your own, run in the backward pass: {} of each step.",
        "Remove the hook, or let it do its work every so many steps.",
    ),
    _Sign(
        in_recomputation,
        "The backward pass runs parts of the forward pass again, whose activations it has not kept: {} of each step.",
        "Keep the activations of more modules, if memory allows: `torch.utils.checkpoint` runs each module again.",
    ),
    _Sign(in_translation, "torch.compile translates functions of the program: {} of each step."),
    _Sign(
        in_kernel_compiler,
        "Inductor or Triton make kernels, or tune them: {} of each step.",
        "Keep their caches from run to run: `TORCHINDUCTOR_CACHE_DIR` and `TRITON_CACHE_DIR`.",
    ),
)


class _Entry:
    """The seconds a step in one place."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._lines: defaultdict[CodeLine, float] = defaultdict(float)
        self._calls: defaultdict[CodeLine | None, float] = defaultdict(float)

    def add(self, place: Place, seconds: float) -> None:
        """Adds the time of a stack."""
        self.seconds += seconds
        self._lines[place.line] += seconds
        self._calls[place.call] += seconds

    def join(self, other: "_Entry") -> None:
        """Adds the time of another one."""
        self.seconds += other.seconds
        for line, seconds in other._lines.items():
            self._lines[line] += seconds
        for call, seconds in other._calls.items():
            self._calls[call] += seconds

    @property
    def line(self) -> CodeLine:
        """The longest line."""
        return max(self._lines, key=self._lines.__getitem__)

    @property
    def call(self) -> CodeLine | None:
        """The longest call."""
        return max(self._calls, key=self._calls.__getitem__)

    def shown(self, folder: str) -> CodeTime:
        """The entry for a person."""
        call = line_text(self.call, folder) if self.call else ""
        return CodeTime(line_text(self.line, folder), call, self.seconds)


class _Entries:
    """The places of a process that take time."""

    def __init__(self, code: CodeTimes, step: float) -> None:
        """`step`: the seconds of a step."""
        self.code = code
        self._step = step
        self.by_key: defaultdict[PlaceKey, _Entry] = defaultdict(_Entry)
        self.signs: Counter[_Sign] = Counter()
        """The seconds a step of stacks with these signs."""
        self.calls: Counter[LibraryCall] = Counter()
        """The seconds a step in calls of known libraries."""

    @property
    def seconds(self) -> float:
        """The sum, a step."""
        return sum(entry.seconds for entry in self.by_key.values())

    def add_scaled(
        self, stacks: Sequence[tuple[PlacedStack, Place]], most: float = math.inf, part: float = 1.0
    ) -> None:
        """Adds a part of the time of stacks, but at most so many seconds a step."""
        a_step = self._step / self.code.seconds
        total = sum(stack.seconds for stack, _ in stacks) * a_step
        scale = a_step * min(part, most / max(total, _NOTHING))
        for stack, place in stacks:
            self.by_key[self.code.key(place)].add(place, stack.seconds * scale)
            for sign in _SIGNS:
                if sign.is_in(stack.lines):
                    self.signs[sign] += stack.seconds * scale  # type: ignore[assignment]  # a float
            call = library_call(of_worker(stack.lines)[0])
            if call and (call.waits_for_others or stack.activity not in FOR_OTHERS):
                self.calls[call] += stack.seconds * scale  # type: ignore[assignment]  # a float

    def join(self, other: "_Entries") -> None:
        """Adds the places of others."""
        for key, entry in other.by_key.items():
            self.by_key[key].join(entry)
        self.signs.update(other.signs)
        self.calls.update(other.calls)

    def longest(self, gain: float) -> Sequence[_Entry]:
        """The longest ones, without those that matter little for a gain."""
        ranked = sorted(self.by_key.values(), key=attrgetter("seconds"), reverse=True)
        return [entry for entry in ranked[:_SHOWN] if entry.seconds >= _SMALL * gain]

    def call(self, gain: float) -> LibraryCall | None:
        """The known library in whose calls most of a gain is."""
        return next((call for call, seconds in self.calls.items() if seconds >= _MOST_OF_IT * gain), None)


def with_code(job: Job, cause: Cause, case: Case, left_out: LeftOut) -> Cause:
    """A cause with its advice, its lines, and what they say. `left_out`: what its what-if leaves out."""
    cause = replace(cause, advice=advice_on(case))
    seen = [at for at, rank in enumerate(job.ranks) if rank.code and cause.rank in (None, rank.rank)]
    if cause.cause in _OF_OTHER_PROGRAMS or not seen:
        return cause
    gone = _gone(job, cause, left_out)
    rank = max(seen, key=lambda at: float(gone[at].sum()))
    # without stacks of the others, nothing is known of the places where they need less
    is_late = cause.cause is CauseName.STRAGGLER and sum(bool(rank.code) for rank in job.ranks) > 1
    entries = _excess(job, rank, gone[rank]) if is_late else _entries(job, cause, rank, gone[rank])
    longest, folder = entries.longest(cause.gain), job.ranks[rank].code.folder
    if not longest:
        return cause
    first, evidence = longest[0], cause.evidence
    advice = advice_on(case._replace(call=entries.call(cause.gain)))
    place, function = place_text(first.line, folder), printable(short_function(first.line.function))
    is_module = function == _MODULE
    if is_late:
        where = f"at {place}" if is_module else f"in {function}() ({place})"
        text = f"It spends {amount(first.seconds)} more {where} than the others."
        evidence = (*evidence, Evidence(text, first.seconds, "s"))
    if first.seconds >= _MOST_OF_IT * cause.gain:
        look = f"Look at {place}: {'this line' if is_module else function} takes {amount(first.seconds)} of each step."
        advice = tuple(dict.fromkeys(look if _OTHER_TOOL in text else text for text in advice))
    for sign, seconds in entries.signs.items():
        if seconds >= _MOST_OF_IT * cause.gain:
            evidence = (*evidence, Evidence(sign.text.format(amount(seconds)), seconds, "s"))
            advice = (sign.advice, *advice) if sign.advice else advice
    if cause.cause is CauseName.COMPILE and (calls := _calls_of_compile(job, rank)).by_key:
        (call,) = calls.longest(0.0)[:1]
        text = f"{line_text(call.line, folder)} calls `torch.compile` between compilations."
        evidence = (*evidence, Evidence(text, call.seconds, "s"))
        advice = ("Call `torch.compile` once, before the loop: what each call returns is compiled anew.", *advice)
    lines = tuple(entry.shown(folder) for entry in longest)
    return replace(cause, lines=lines, code=tuple(line.line for line in lines), evidence=evidence, advice=advice)


def _calls_of_compile(job: Job, rank: int) -> _Entries:
    """The user's lines that call `torch.compile` in a loop with several compilations."""
    code = job.ranks[rank].code
    calls = _Entries(code, job.step)
    compiling = [moment.position is Position.COMPILE for moment in job.moments]
    if (job.spent[rank][:, compiling].sum(axis=1) > 0).sum() >= _SEVERAL:
        own = (pair for pairs in code.own.values() for pair in pairs)
        calls.add_scaled([(stack, place) for stack, place in own if place.is_user and calls_compile(stack.lines)])
    return calls


def _gone(job: Job, cause: Cause, left_out: LeftOut) -> Floats:
    """By rank and moment: the seconds a step that the what-if leaves out. What a thread computes has its part of the
    waits for a CPU."""
    gone = np.zeros((len(job.ranks), len(job.moments)))
    moments = left_out.moments
    spent = job.spent[:, :, moments] * left_out.part
    gone[:, moments] = spent[:, ~job.is_lossy].sum(axis=1) / max(job.steps, 1.0)
    if cause.cause is CauseName.SMALL_COLLECTIVES:
        at = [
            moment.activity is Activity.COLLECTIVE and moment.position is not Position.BACKWARD
            for moment in job.moments
        ]
        met = job.means * at
        gone = met * (cause.gain / np.maximum(met.sum(axis=1, keepdims=True), _NOTHING))
    for position in {moment.position for moment in job.moments}:
        own, waits = (
            [moment.position is position and moment.activity in some for moment in job.moments]
            for some in (ON_CPU, FOR_CPU)
        )
        computes = np.maximum(gone[:, own].sum(axis=1, keepdims=True), _NOTHING)
        gone[:, own] *= 1.0 + gone[:, waits].sum(axis=1, keepdims=True) / computes
    return gone


def _entries(job: Job, cause: Cause, rank: int, gone: Floats) -> _Entries:
    """The places that take the time of a cause on a rank."""
    code = job.ranks[rank].code
    entries, waiting = _Entries(code, job.step), _Entries(code, job.step)
    if cause.cause in _OF_WORKERS:
        entries.add_scaled([helper for helper in code.helpers if helper[0].worker], cause.gain)
        return entries
    if cause.cause is CauseName.GIL:
        entries.add_scaled([helper for helper in code.helpers if helper[0].activity in ON_CPU], cause.gain)
        return entries
    waits = 0.0
    for moment, seconds in zip(job.moments, gone.tolist(), strict=True):
        stacks = code.own.get((moment.position, moment.activity), ()) if seconds else ()
        if moment.activity in FOR_OTHERS and any(waits_for_python(stack.lines) for stack, _ in stacks):
            waits += seconds
            waiting.add_scaled(stacks, seconds)
        elif moment.position is Position.BACKWARD and moment.activity in _OF_PASS:
            entries.add_scaled([stack for stack in stacks if is_of_hook(stack[0].lines)], seconds, math.inf)
        else:
            part = seconds / max(job.a_step(job.spent[rank, :, job.index(moment)]), _NOTHING)
            entries.add_scaled(stacks, seconds, part)
    # a wait for another thread, or for a worker, is the work of that one
    helpers = _Entries(code, job.step)
    helpers.add_scaled(code.helpers, waits)
    entries.join(helpers if helpers.seconds >= _MOST_OF_IT * waits else waiting)
    return entries


def _excess(job: Job, rank: int, gone: Floats) -> _Entries:
    """The time of a late rank in places where the others need less."""
    own, *others = (
        _Entries(job.ranks[at].code, job.step)
        for at in sorted(range(len(job.ranks)), key=lambda at: at != rank)
        if job.ranks[at].code
    )
    for each in (own, *others):
        for moment in (moment for moment, seconds in zip(job.moments, gone.tolist(), strict=True) if seconds):
            each.add_scaled(each.code.own.get((moment.position, moment.activity), ()))
    for key, entry in own.by_key.items():
        usual = median(each.by_key[key].seconds for each in others)
        entry.seconds = max(entry.seconds - usual, 0.0)
    for call in own.calls:
        own.calls[call] -= median(each.calls[call] for each in others)  # type: ignore[assignment]  # a float
    return own
