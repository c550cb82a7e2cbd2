"""Compares two reports of `why --json`: what changed, where and why, and whether that is more than the noise."""

import json
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from math import sqrt
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from pydantic import ValidationError

from otel_zernel.errors import CannotStart
from otel_zernel.text import one_line, printable, visible
from otel_zernel_commands.why.rendering.as_json import Job, Report
from otel_zernel_commands.why.terminal import Terminal
from otel_zernel_commands.why.watch import StepBlock
from otel_zernel_libraries.training.amounts import amount, percent
from otel_zernel_libraries.training.causes import Cause, label_of
from otel_zernel_libraries.training.words import position_name

SLOWER, UNKNOWN = 3, 4
"""The exit status if a job has become slower, and if too few steps show whether one has."""
_MOST_BYTES = 64 << 20
_FEWEST_BLOCKS = 3
_FEWEST_MERGED = 6
"""Each of these blocks joins several neighbours."""
_SURELY = 0.5
"""A step that takes longer by this share is slower, even if the noise is not known."""
_FLOOR = 0.02
"""Of a mean: the noise between two runs on one machine that the blocks of one run do not show."""
_BOUNDS = 1.645
"""The bounds of a gain are so many standard errors away from it."""
_LABEL = 34


class Measure(NamedTuple):
    """A mean time in s a step, with its noise: about nineteen times in twenty, another run is within it."""

    mean: float
    noise: float | None
    """None with too few steps to know it."""


class Change(NamedTuple):
    """Something in both reports, or in one of them."""

    name: str
    before: Measure | None
    after: Measure | None

    @property
    def difference(self) -> float:
        """In s a step. What is not there takes no time."""
        return (self.after.mean if self.after else 0.0) - (self.before.mean if self.before else 0.0)

    @property
    def noise(self) -> float | None:
        """The noise of the difference."""
        noises = [measure.noise for measure in (self.before, self.after) if measure]
        return None if None in noises else sqrt(sum(noise**2 for noise in noises if noise is not None))

    @property
    def is_real(self) -> bool:
        """Whether the difference is more than the noise."""
        return self.noise is not None and abs(self.difference) > self.noise


class JobComparison(NamedTuple):
    """One job in both reports."""

    title: str
    step: Change
    positions: list[Change]
    causes: list[Change]

    def is_slower(self, tolerance: float) -> bool:
        """Whether a step takes longer by more than the noise and this share of what it took. Few steps have no noise:
        then it must take much longer, as a step that has become so slow that few fit into the watch."""
        before = self.step.before.mean if self.step.before else 0.0
        is_real = self.step.is_real or (self.step.noise is None and self.step.difference > _SURELY * before)
        return is_real and self.step.difference > tolerance * before

    @property
    def is_known(self) -> bool:
        """Whether the steps are enough to tell a change from noise."""
        return self.step.noise is not None


def status_of(jobs: Iterable[JobComparison], tolerance: float) -> int:
    """The exit status of a comparison: 0 only if no job has become slower."""
    compared_jobs = list(jobs)
    if any(job.is_slower(tolerance) for job in compared_jobs):
        return SLOWER
    return 0 if all(job.is_known for job in compared_jobs) else UNKNOWN


def read_report(path: Path) -> Report:
    """Raises `CannotStart`."""
    try:
        with path.open("rb") as file:
            text = file.read(_MOST_BYTES)
    except OSError as error:
        raise CannotStart(f"cannot read {printable(str(path))}: {error.strerror}") from error
    return report_of(text, printable(str(path)))


def report_of(text: bytes, shown: str) -> Report:
    """The report in the output of `why --json`. `shown` names it in `CannotStart`."""
    try:
        return _parsed(text)
    except ValidationError as error:
        first = error.errors()[0]
        where = visible(one_line(".".join(map(str, first["loc"])))) or "the file"
        reason = visible(one_line(first["msg"]))
        raise CannotStart(f"{shown} is no output of `otel-zernel why --json`: {where}: {reason}") from error


def _parsed(text: bytes) -> Report:
    """Raises `ValidationError`. A newer release may name causes that this one does not know: they are left out."""
    try:
        return Report.model_validate_json(text)
    except ValidationError as error:
        places = [problem["loc"] for problem in error.errors()]
        if not all(len(place) == 5 and place[2::2] == ("causes", "cause") for place in places):
            raise
        tree = json.loads(text)
        for _, job, _, number, _ in reversed(places):
            del tree["jobs"][job]["causes"][number]
        return Report.model_validate(tree)


def compared(before: Report, after: Report) -> list[JobComparison]:
    """The jobs that are in both, by their titles. Raises `CannotStart` if there is none."""
    old, new = ({job.title: job for job in report.jobs if job.step.count} for report in (before, after))
    if len(old) == len(new) == 1:
        return [_job(*old.values(), *new.values())]
    if not (both := [title for title in old if title in new]):
        names = [visible(", ".join(names)) or "none" for names in (old, new)]
        raise CannotStart(f"no job is in both reports: {names[0]} in the first, {names[1]} in the second")
    return [_job(old[title], new[title]) for title in both]


def _job(before: Job, after: Job) -> JobComparison:
    steps = Change("step", *(_step_of(side) for side in (before, after)))
    names = {position: None for job in (before, after) for position in _positions_of(job)}
    positions = [Change(visible(position_name(at)), _measure_in(before, at), _measure_in(after, at)) for at in names]
    old, new = ({_key_of(cause): cause for cause in side.causes} for side in (before, after))
    causes = [
        Change(label_of(new.get(key) or old[key]), *(_gain_of(cause.get(key)) for cause in (old, new)))
        for key in dict.fromkeys((*old, *new))
    ]
    return JobComparison(
        visible(after.title), steps, *(sorted(some, key=_size, reverse=True) for some in (positions, causes))
    )


def _size(change: Change) -> float:
    return abs(change.difference)


def _key_of(cause: Cause) -> tuple[object, ...]:
    return cause.cause, cause.position, cause.activity, cause.rank


def _gain_of(cause: Cause | None) -> Measure | None:
    if cause is None:
        return None
    return Measure(cause.gain, 1.96 * (cause.gain_high - cause.gain_low) / 2 / _BOUNDS)


def _step_of(job: Job) -> Measure:
    several = [_measure([(block.steps, block.seconds) for block in blocks]) for blocks in _blocks_of(job)]
    return _mean_of(several) or Measure(job.step.mean, None)


def _measure_in(job: Job, position: str) -> Measure | None:
    return _mean_of(
        _measure([(block.steps, block.positions.get(position, 0.0)) for block in blocks]) for blocks in _blocks_of(job)
    )


def _positions_of(job: Job) -> Iterator[str]:
    yield from (at for rank in job.ranks for block in rank.blocks for at in block.positions)


def _blocks_of(job: Job) -> Iterator[Sequence[StepBlock]]:
    """The blocks of each rank, without those of the warm-up."""
    for rank in job.ranks:
        blocks, warming = list(rank.blocks), job.start.warm_up_steps if job.start else 0
        while warming > 0 and len(blocks) > _FEWEST_BLOCKS:
            warming -= blocks.pop(0).steps
        if sum(block.steps for block in blocks):
            yield blocks


def _mean_of(several: Iterable[Measure]) -> Measure | None:
    """The mean of the ranks. They step together, so their noise is not less than that of one."""
    measures = list(several)
    if not measures:
        return None
    noises = [measure.noise for measure in measures if measure.noise is not None]
    noise = fmean(noises) if len(noises) == len(measures) else None
    return Measure(fmean(measure.mean for measure in measures), noise)


def _measure(blocks: Sequence[tuple[int, float]]) -> Measure:
    """The time of a step by blocks of steps and seconds. Its noise is that of the residuals of a ratio (Cochran, 1977),
    whose neighbours may be alike, and at least `_FLOOR`."""
    steps = sum(steps for steps, _ in blocks)
    mean = sum(seconds for _, seconds in blocks) / steps
    if len(blocks) < _FEWEST_BLOCKS:
        return Measure(mean, None)
    noises = [_noise(blocks, mean) / steps]
    while len(blocks) >= 2 * _FEWEST_MERGED:  # batch means: the noise of longer blocks has that of their neighbours
        pairs = zip(blocks[::2], blocks[1::2], strict=False)
        blocks = [(first[0] + second[0], first[1] + second[1]) for first, second in pairs]
        noises.append(_noise(blocks, sum(seconds for _, seconds in blocks) / sum(each for each, _ in blocks)) / steps)
    return Measure(mean, max(*noises, _FLOOR * mean))


def _noise(blocks: Sequence[tuple[int, float]], mean: float) -> float:
    """The noise of the sum of the seconds."""
    free = len(blocks) - 1
    student = 1.96 + 2.7 / free + 4.0 / free**2  # its quantile at 97.5 %, within 4 %
    return student * sqrt((free + 1) / free * sum((seconds - mean * each) ** 2 for each, seconds in blocks))


def comparison_text(jobs: Iterable[JobComparison], tolerance: float, terminal: Terminal) -> str:
    """The comparison of all jobs. Ends with a line break."""
    return terminal.encodable("\n\n".join("\n".join(_lines(job, tolerance, terminal.width)) for job in jobs)) + "\n"


def _lines(job: JobComparison, tolerance: float, width: int) -> Iterator[str]:
    yield from textwrap.wrap(f"{job.title}: {_verdict(job, tolerance)}", width, subsequent_indent="  ")
    yield ""
    yield f"{'':<{_LABEL}}  {'before':>9}  {'after':>9}  {'change':>10}  {'noise':>9}"
    yield _row(job.step._replace(name="step"))
    for heading, changes in (("by position", job.positions), ("by cause", job.causes)):
        shown = [change for change in changes if change.is_real or change.before is None or change.after is None]
        if changes:
            yield heading
            yield from (_row(change._replace(name=f"  {change.name}")) for change in shown)
            if len(shown) < len(changes):
                yield f"  {len(changes) - len(shown)} within the noise"


def _verdict(job: JobComparison, tolerance: float) -> str:
    """One sentence: `slower by 4.30 ms a step (10 %), mainly in data loading (4.10 ms).`"""
    step = job.step
    before = step.before.mean if step.before else 0.0
    if not job.is_known and not job.is_slower(tolerance):
        return "too few steps to tell a change from noise: watch longer, with `--for`."
    size = f"{amount(abs(step.difference))} a step ({percent(abs(step.difference) / before if before else 0.0)})"
    if step.noise is not None and not step.is_real:
        return f"no change beyond the noise of {amount(step.noise)} a step."
    same_way = [
        position for position in job.positions if position.is_real and position.difference * step.difference > 0
    ]
    where = f", mainly in {same_way[0].name} ({amount(abs(same_way[0].difference))})" if same_way else ""
    within = (
        "" if step.difference <= 0 or job.is_slower(tolerance) else f", within the tolerance of {percent(tolerance)}"
    )
    return f"{'slower' if step.difference > 0 else 'faster'} by {size}{where}{within}."


def _row(change: Change) -> str:
    before, after = (amount(measure.mean) if measure else "-" for measure in (change.before, change.after))
    sign = "+" if change.difference > 0 else "-" if change.difference < 0 else ""
    noise = "?" if change.noise is None else amount(change.noise)
    name = change.name if len(change.name) <= _LABEL else f"{change.name[: _LABEL - 1]}…"
    return f"{name:<{_LABEL}}  {before:>9}  {after:>9}  {sign + amount(abs(change.difference)):>10}  {noise:>9}"
