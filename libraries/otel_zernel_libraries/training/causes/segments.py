"""The own time of a thread in a position, doing something: which of it one could save.

Operators of a pass or of the optimizer are the work itself, but not the calls of an optimizer for many small
parameters. So are the first microseconds of Python, or of a wait for
another of their threads, around each of them, and the first millisecond for each batch that workers have made.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence, Set
from operator import itemgetter
from typing import Final

import numpy as np

from otel_zernel_libraries.training.amounts import amount, percent
from otel_zernel_libraries.training.causes.cause import CauseName, Evidence
from otel_zernel_libraries.training.causes.facts import FUSED_OPTIMIZERS, PASSES, TORCH_OPTIMIZERS, UNPACKING
from otel_zernel_libraries.training.causes.job import FOR_CPU, ON_CPU, Job, WhatIf
from otel_zernel_libraries.training.causes.replays import LeftOut
from otel_zernel_libraries.training.code_paths import in_anomaly_mode, in_clipping, is_called_by_user, is_of_hook
from otel_zernel_libraries.training.code_times import PlaceKey
from otel_zernel_libraries.training.device.streams import Flags
from otel_zernel_libraries.training.ledger import MOMENTS, Activity, Moment, Position, StepEvent
from otel_zernel_libraries.training.library_folders import is_of_pytorch
from otel_zernel_libraries.training.quantiles import quantile
from otel_zernel_libraries.training.stacks import CodeLine
from otel_zernel_libraries.training.words import POSITION_WORDS, activity_for

_COUNTED: Final = frozenset({Position.FORWARD, Position.EVALUATION, Position.INFERENCE})
"""The passes whose operators are counted."""
_UPDATES: Final = frozenset({Position.OPTIMIZER, Position.ZERO_GRAD})
THE_WORK: Final = frozenset({Activity.OPERATOR, Activity.UNKNOWN})
"""In a pass, these activities are the work itself. Without snapshots, nothing more is known."""
_AROUND_OPERATORS: Final = frozenset({Activity.PYTHON, Activity.LOCK, Activity.NATIVE, Activity.FAULT})
_WAITS: Final = frozenset(
    {
        *(Activity.FILE, Activity.SOCKET, Activity.PIPE, Activity.CHILD),
        *(Activity.TIMER, Activity.FAULT, Activity.SWAP),
    }
)
"""Waits of a call that also computes: of a database, of an encoder of images."""
OF_OTHER_CAUSES: Final = FOR_CPU | {Activity.GIL, Activity.PROBE}
"""Activities that are causes of their own, wherever they are. The collector's own is none."""
OF_OTHER_POSITIONS: Final = frozenset({Position.EVALUATION, Position.CHECKPOINT, Position.COMPILE})
"""Positions that are causes of their own."""
_AN_OPERATOR: Final = 15e-6
"""Seconds of Python, and of waits for threads, that each operator needs."""
_A_PASS: Final = 30e-6
"""Seconds of Python that a pass of each step needs besides: modules and optimizers call functions of their own."""
_CALLING: Final = frozenset({Activity.OPERATOR, Activity.PYTHON, Activity.NATIVE})
_CALLS: Final = 7e-6
"""Seconds that an optimizer of many small parameters needs for each operator that is counted, without `fused=True`:
about five of the 13 that Adam calls for each parameter. With 240 parameters of 1,024 numbers, PyTorch 2.6 takes 10.8 ms
in place of 1.6 ms."""
_MOST_OF_CALLS: Final = 0.85
_MOST_OF_THEM: Final = 0.5
_WHOLE: Final = 0.9
"""An interval with less than this part of the operators of a whole one lacks some. A whole one is at this quantile:
probes that are off for a part of the time cut most of the others."""
_SMALL: Final = 0.01
"""Less of a step is not worth a replay."""


def segments(job: Job) -> Iterator[WhatIf]:
    """A job without each activity in each position, on all ranks."""
    least = _SMALL * job.step * max(job.steps, 1.0) / max(int(np.count_nonzero(~job.is_lossy)), 1)
    for columns in _together(job):
        removed = np.zeros((1, len(job.moments)))
        removed[0, columns] = [_part(job, job.moments[at], at) for at in columns]
        more = _of_anomaly_mode(job, columns)
        # the rank that does it longest may be the one for which the others wait
        if float((job.means @ removed[0]).max()) < (0.0 if more else least):
            continue
        spent = job.totals * removed
        longest = job.moments[max(columns, key=spent.sum(axis=0).__getitem__)]
        yield WhatIf(
            cause=CauseName.SEGMENT,
            position=longest.position,
            activity=_named(longest, {job.moments[at].activity for at in columns}),
            rank=job.one_of_ranks(spent.sum(axis=1)),
            removed=dict.fromkeys(range(len(job.ranks)), removed),
            more=more,
        )


def _named(longest: Moment, activities: Set[Activity]) -> Activity:
    """The activity that names a cause of several."""
    if Activity.CHILD in activities:
        return Activity.CHILD
    if longest.position is Position.OPTIMIZER and Activity.OPERATOR in activities:
        return Activity.OPERATOR
    return Activity.PYTHON if longest.position is Position.BACKWARD and len(activities) > 1 else longest.activity


def _of_anomaly_mode(job: Job, columns: Sequence[int]) -> float:
    """If most of this Python is of anomaly mode: the seconds of a step in operators of backward passes. There it looks
    at all gradients, and nothing tells that from the pass. Else 0."""
    is_python = any(job.moments[at] == MOMENTS[Position.FORWARD][Activity.PYTHON] for at in columns)
    if not is_python or _of_stacks(job, Position.FORWARD, {Activity.PYTHON}, in_anomaly_mode) <= _MOST_OF_THEM:
        return 0.0
    backward = [moment == MOMENTS[Position.BACKWARD][Activity.OPERATOR] for moment in job.moments]
    return job.a_step(job.spent[:, :, backward].sum(axis=2).max(axis=0))


def _together(job: Job) -> list[list[int]]:
    """The columns of each cause. Outside passes, all that a thread computes in a position is one, with the waits in the
    same function of the program. Where it waits for the ends of child processes, it waits for what they write, too, and
    for threads that speak with them: a pool of processes has some."""
    by_cause: dict[tuple[Position, Activity], list[int]] = {}
    with_child = {
        moment.position
        for at, moment in enumerate(job.moments)
        if moment.activity is Activity.CHILD and _is_usual(job, at)
    }
    beside = _beside(job)
    for at, moment in enumerate(job.moments):
        position, activity = moment.position, moment.activity
        if job.is_own[at] and activity not in OF_OTHER_CAUSES and position not in OF_OTHER_POSITIONS:
            is_beside = (position, activity) in beside
            is_together = (activity in ON_CPU and position not in PASSES) or (
                is_beside and activity is not Activity.LOCK
            )
            is_of_child = activity is Activity.PIPE or (
                (is_together or is_beside) and (position, Activity.CHILD) in beside
            )
            if position in with_child and is_of_child:
                activity = Activity.CHILD
            elif is_together and activity is not Activity.CHILD:
                activity = Activity.PYTHON
            elif _of_calls(job, at):
                activity = Activity.OPERATOR
            elif activity in ON_CPU and (
                (position is Position.BACKWARD and _of_operators_in_hooks(job, activity))
                or (position is Position.CLIP and _of_checks(job))
            ):
                activity = Activity.PYTHON
            by_cause.setdefault((position, activity), []).append(at)
    return list(by_cause.values())


def _beside(job: Job) -> set[tuple[Position, Activity]]:
    """Outside passes: the positions and waits whose longest function of the program computes longest there, too, by the
    stacks."""
    times: dict[tuple[Position, Activity], Counter[PlaceKey]] = defaultdict(Counter)
    for rank in job.ranks:
        for (position, activity), stacks in rank.code.own.items():
            of_moment = times[position, Activity.PYTHON if activity in ON_CPU else activity]
            for stack, place in stacks if position not in PASSES else ():
                of_moment[rank.code.key(place)] += stack.seconds  # type: ignore[assignment]  # a float
    longest = {
        moment: place
        for moment, places in times.items()
        for place, seconds in places.most_common(1)
        if seconds >= _MOST_OF_THEM * places.total()
    }
    return {
        (position, activity)
        for (position, activity), place in longest.items()
        if activity in _WAITS | {Activity.LOCK} and longest.get((position, Activity.PYTHON)) == place
    }


def _is_usual(job: Job, at: int) -> bool:
    """Whether most steps have some time of a moment."""
    return bool((job.spent[:, :, at] > 0).any(axis=0).mean() > _MOST_OF_THEM)


def seen_in_segment(job: Job, left_out: LeftOut) -> tuple[Evidence, ...]:
    """The evidence of the time that a what-if of a segment removes, on the rank that has most of it: what the thread
    does, the longest first."""
    gone = job.spent[:, :, left_out.moments] * left_out.part
    moments = [job.moments[at] for at in left_out.moments]
    is_own = np.array([moment.activity not in FOR_CPU for moment in moments])
    longest = int(gone[:, ~job.is_lossy][:, :, is_own].sum(axis=(1, 2)).argmax())
    who = "The training thread" if job.alone else f"Rank {job.ranks[longest].rank}"
    means = {moment: job.a_step(gone[longest, :, at]) for at, moment in enumerate(moments)}
    own = [(moment, time) for moment, time in means.items() if moment.activity not in FOR_CPU]
    doings = [
        Evidence(
            f"{who} {activity_for(moment.activity, amount(time))} of each {amount(job.step)} "
            f"({percent(time / job.step)}) {POSITION_WORDS[moment.position].where}.",
            time,
            "s",
        )
        for place, (moment, time) in enumerate(sorted(own, key=itemgetter(1), reverse=True))
        if place == 0 or time >= _SMALL * job.step
    ]
    waits = sum(time for moment, time in means.items() if moment.activity in FOR_CPU)
    of_waits = [Evidence(f"For this, it waits {amount(waits)} for a CPU.", waits, "s")]
    return (*doings, *(of_waits if waits >= _SMALL * job.step else ()))


def _part(job: Job, moment: Moment, at: int) -> float:
    """The part of the time that is not the work itself, 0 to 1."""
    position, activity = moment.position, moment.activity
    if position is Position.UNKNOWN:
        return 0.0
    if position is Position.LOAD and activity in ON_CPU:
        return _beside_batches(job)
    if position not in PASSES:
        return 1.0
    if of_calls := _of_calls(job, at):
        return of_calls
    if position is Position.BACKWARD and (of_hooks := _of_operators_in_hooks(job, activity)):
        return of_hooks
    if position is Position.CLIP and activity is Activity.OPERATOR:
        return _of_checks(job)
    if activity in THE_WORK:
        return 0.0
    if activity is Activity.LOCK and any(rank.facts.is_crowded for rank in job.ranks):
        return 0.0  # it waits for its threads, which wait for a CPU
    if activity not in _AROUND_OPERATORS:
        return 1.0
    if position in _UPDATES:
        return (
            _beside_operators(job, at) if all(rank.facts.optimizer in TORCH_OPTIMIZERS for rank in job.ranks) else 1.0
        )
    if position is Position.BACKWARD:
        return _of_hooks(job, at) if activity is Activity.PYTHON else 0.0
    if position is Position.CLIP:
        return 1.0 - _of_clipping(job) if activity in ON_CPU else 1.0
    if position not in _COUNTED:
        return 1.0
    operators, known = _operators(job, position)
    spent = float(job.spent[:, :, at][known].sum())
    beside = max(1.0 - _python_for(job, operators, known) / spent, 0.0) if spent else 0.0
    return min(beside, 1.0 - _called_by_pytorch(job, position)) if activity is Activity.NATIVE else beside


def _beside_batches(job: Job) -> float:
    """The part, 0 to 1, of the computing while it loads that taking batches from workers does not need."""
    computes = [
        moment.position is Position.LOAD and moment.activity in ON_CPU - OF_OTHER_CAUSES for moment in job.moments
    ]
    spent = float(job.totals[:, computes].sum())
    batches = sum(float(job.events(rank, StepEvent("worker_batch")).sum()) for rank in range(len(job.ranks)))
    return max(1.0 - batches * UNPACKING / spent, 0.0) if spent else 1.0


def _operators(job: Job, position: Position) -> tuple[float, Flags]:
    """The number of operators in a position, and in which intervals of each rank they are known. In others, some are
    not seen: the pass is compiled, or their probes are off for a part of the time."""
    nothing = np.zeros_like(job.seconds)
    operators = np.stack([operator.get(position, nothing) for operator in job.operators])
    seen = operators[operators > 0]
    known: Flags = (
        operators >= _MOST_OF_THEM * quantile(seen, _WHOLE) if len(seen) else np.zeros_like(operators, dtype=bool)
    )
    return float(operators[known].sum()), known


def _of_clipping(job: Job) -> float:
    """The part, 0 to 1, of the computing between the passes and the optimizer in which PyTorch clips gradients, by the
    stacks: that is the work itself. Its operators are not counted."""
    return _of_stacks(job, Position.CLIP, ON_CPU, in_clipping)


def _of_checks(job: Job) -> float:
    """The part, 0 to 1, of the operators between the passes and the optimizer that the user's own code calls, by the
    stacks: it looks at gradients, or clips them one by one."""
    return _of_stacks(
        job, Position.CLIP, {Activity.OPERATOR}, lambda lines: is_called_by_user(lines) and not in_clipping(lines)
    )


def _called_by_pytorch(job: Job, position: Position) -> float:
    """The part, 0 to 1, of native code that a function of PyTorch has called, by the stacks: its operators run code
    that is no library's, such as the kernels that oneDNN writes."""
    return _of_stacks(job, position, {Activity.NATIVE}, lambda lines: is_of_pytorch(lines[0]))


def _of_stacks(
    job: Job, position: Position, activities: Set[Activity], fits: Callable[[Sequence[CodeLine]], bool]
) -> float:
    """The part, 0 to 1, of the time of these activities in a position whose stacks fit."""
    times = [
        (stack.seconds, fits(stack.lines))
        for rank in job.ranks
        for activity in activities
        for stack, _ in rank.code.own.get((position, activity), ())
    ]
    spent = sum(seconds for seconds, _ in times)
    return sum(seconds for seconds, does_fit in times if does_fit) / spent if spent else 0.0


def _of_hooks(job: Job, at: int) -> float:
    """The part, 0 to 1, of the Python in backward passes that is beside operators of models. A pass calls these
    where it runs a part of the forward pass again."""
    spent = float(job.spent[:, :, at].sum())
    operators = sum(
        float(operator[Position.BACKWARD].sum()) for operator in job.operators if Position.BACKWARD in operator
    )
    return max(1.0 - operators * _AN_OPERATOR / spent, 0.0) if spent else 0.0


def _of_operators_in_hooks(job: Job, activity: Activity) -> float:
    """The part, 0 to 1, of operators or native code in backward passes that hooks of the user call, by the stacks."""
    if activity not in (Activity.OPERATOR, Activity.NATIVE):
        return 0.0
    part = _of_stacks(job, Position.BACKWARD, {activity}, is_of_hook)
    return part if part >= _SMALL else 0.0


def _of_calls(job: Job, at: int) -> float:
    """The part, 0 to 1, of the computing of an optimizer that one operator for all parameters does not need: calls from
    Python that take longer than their arithmetic, since the parameters are many and small."""
    moment, facts = job.moments[at], [rank.facts for rank in job.ranks]
    if moment.position is not Position.OPTIMIZER or moment.activity not in _CALLING:
        return 0.0
    if any(fact.has_device or fact.optimizer not in FUSED_OPTIMIZERS for fact in facts):
        return 0.0
    if moment.activity is not Activity.OPERATOR and _beside_operators(job, at):
        return 0.0  # of hooks
    operators, known = _operators(job, Position.OPTIMIZER)
    computes = [moment.position is Position.OPTIMIZER and moment.activity in _CALLING for moment in job.moments]
    spent = float(job.spent[:, :, computes][known].sum())
    return min(operators * _CALLS / spent, _MOST_OF_CALLS) if spent else 0.0


def _python_for(job: Job, operators: float, intervals: Flags) -> float:
    """The seconds of Python that so many operators of a pass need in these intervals of each rank."""
    return operators * _AN_OPERATOR + float((intervals * np.maximum(job.trained, 1)).sum()) * _A_PASS


def _beside_operators(job: Job, at: int) -> float:
    """The part, 0 to 1, of the Python in an optimizer of PyTorch that its own code does not need. It prepares its
    parameters for about as long as its operators then take; more is code that hooks into it."""
    position = job.moments[at].position
    of_operators = [
        place
        for place, moment in enumerate(job.moments)
        if moment.position is position and moment.activity is Activity.OPERATOR
    ]
    operators, known = _operators(job, position)
    spent = float(job.spent[:, :, at][known].sum())
    needed = float(job.spent[:, :, of_operators][known].sum()) + _python_for(job, operators, known)
    return max(1.0 - needed / spent, 0.0) if spent else 0.0
