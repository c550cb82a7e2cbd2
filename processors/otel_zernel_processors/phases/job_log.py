"""The log lines about jobs: one when a job is found, one when it is lost, and one for each verdict."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from otel_zernel.component import Logger
from otel_zernel.text import printable
from otel_zernel_libraries.training import semconv
from otel_zernel_libraries.training.causes import JobAnswer, lead_of, verdict_of
from otel_zernel_libraries.training.hangs import JobHang, hang_sentences
from otel_zernel_libraries.training.words import mark_names, verdict_words
from otel_zernel_processors.phases.hang_watch import HangWatch
from otel_zernel_processors.phases.process import ProcessIdentity, TrainingProcess

_HOSTS = 8
"""Hosts that a line names."""


class JobLog:
    """Logs what happens to jobs and to processes that are no rank of a job."""

    def __init__(self, logger: Logger) -> None:
        self._logger = logger
        self._seen: set[str] = set()
        """The names of the jobs at the last report."""
        self._jobs: dict[str, str] = {}
        """The description of each job that is followed, by its name."""
        self._processes: dict[ProcessIdentity, str] = {}
        """The same of processes that train alone."""
        self._late: set[tuple[str, str, bool]] = set()
        """The jobs and hosts whose data was late, and whether they were silent: each logged once."""
        self._reports_until_silence: int | None = 2
        """A job that has just started has no step in its first report. None after a job, or after the line."""

    def log_silence(self, processes: int) -> None:
        """Logs once, with the second report without a training job, what a job must do to be found.

        `processes` is the number of processes that send data. After a job has been found, nothing is logged.
        """
        if self._jobs or self._processes or self._reports_until_silence is None:
            self._reports_until_silence = None
            return
        self._reports_until_silence -= 1
        if self._reports_until_silence == 0:
            self._reports_until_silence = None
            self._logger.info(
                "No training job yet: looked at %d processes that send data, and none has made a step. A step is found "
                "by PyTorch's loader, backward pass and optimizer, or by calls of CUDA and NCCL that repeat",
                processes,
            )

    def update(self, jobs: Mapping[str, Mapping[int, TrainingProcess]], single: Iterable[TrainingProcess]) -> None:
        """Logs new jobs, and jobs that have no followed rank any more.

        A job is new once all its ranks are followed, or with the second call: ranks do not begin at the same time.
        """
        known = {
            name: _description(name, ranks)
            for name, ranks in jobs.items()
            if name in self._seen or len(ranks) == next(iter(ranks.values())).attributes.get(semconv.WORLD_SIZE)
        }
        self._seen = set(jobs)
        alone = {process.identity: _process(process) for process in single if process.phases.totals.steps}
        self._log_changes(self._jobs, known)
        self._log_changes(self._processes, alone)
        self._jobs, self._processes = known, alone
        self._late = {late for late in self._late if late[0] in jobs}

    def log_processes(self, processes: Iterable[TrainingProcess]) -> None:
        """Logs the new verdicts on processes that are no rank of a job."""
        for process in processes:
            if process.has_new_verdict:
                identity, name = process.identity, process.verdict
                self._logger.info("process %d on %s is %s: %s", identity.pid, identity.host, name, _in_words([process]))

    def log_ranks(self, job: str, ranks: Mapping[int, TrainingProcess], changed: Collection[int]) -> None:
        """Logs the verdicts on the ranks of a job without an answer: one line for each that is new for one of the ranks
        in `changed`, with all ranks that it applies to."""
        of_verdict: defaultdict[str, list[int]] = defaultdict(list)
        for rank, process in sorted(ranks.items()):
            of_verdict[process.verdict].append(rank)
        for name, numbers in of_verdict.items():
            if not set(numbers).isdisjoint(changed):
                words = _in_words([ranks[rank] for rank in numbers])
                which = f"all {len(ranks)} ranks are" if len(numbers) == len(ranks) > 1 else _ranks(numbers)
                self._logger.info("job %s: %s %s: %s", printable(job), which, name, words)

    def log_job(self, job: str, answer: JobAnswer) -> None:
        """Logs the new verdict on a job."""
        self._logger.info("job %s is %s: %s", printable(job), verdict_of(answer), _answer_in_words(answer))

    def log_hung_processes(self, processes: Iterable[TrainingProcess], now: int) -> None:
        """Logs the processes that train alone and have begun to hang, or hang no more."""
        for process in processes:
            if not process.hangs.has_changed:
                continue
            pid, host = process.identity.pid, printable(process.identity.host)
            if process.hangs.hang:
                self._logger.warning("process %d on %s hangs: %s", pid, host, _hang_in_words(process.hangs.hang, now))
            else:
                self._logger.info("process %d on %s %s", pid, host, _state_in_words(process.hangs))

    def log_hang(self, job: str, hangs: HangWatch, now: int) -> None:
        """Logs that a job hangs, or that it does no more, or that all its ranks are stopped."""
        if hangs.hang:
            self._logger.warning("job %s hangs: %s", printable(job), _hang_in_words(hangs.hang, now))
        else:
            self._logger.info("job %s %s", printable(job), _state_in_words(hangs))

    def log_late(self, job: str, host: str, lateness: float) -> None:
        """Logs once for each host of a job that its data arrived after a report."""
        if (job, host, False) in self._late:
            return
        self._late.add((job, host, False))
        self._logger.warning(
            "job %s: the data of %s arrives over %.3g s after that of other hosts. The job's reports count its ranks "
            "as missing (zernel.job.ranks): raise lateness, or let its collector send more often",
            *(printable(job), printable(host) or "an unnamed host", lateness),
        )

    def log_silent(self, job: str, host: str, heard: int) -> None:
        """Logs once for each host of a job that no data arrives. The time of its last data is `heard` (ns)."""
        if (job, host, True) in self._late:
            return
        self._late.add((job, host, True))
        self._logger.warning(
            "job %s: the last data of %s is from %s. The job's reports count its ranks as missing (zernel.job.ranks): "
            "check that the host and its collector run",
            *(printable(job), printable(host) or "an unnamed host"),
            datetime.fromtimestamp(heard // 10**9, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        )

    def _log_changes(self, before: Mapping[Any, str], now: Mapping[Any, str]) -> None:
        for key, description in now.items():
            if key not in before:
                self._logger.info("Found %s", description)
        for key, description in before.items():
            if key not in now:
                self._logger.info("Lost %s: no process of it is left, or none sends data", description)


def _state_in_words(hangs: HangWatch) -> str:
    """Of a job that does not hang, and did before, or was stopped before."""
    if hangs.stop:
        return "is stopped by a signal: `fg` in its shell, or `kill -CONT`, continues it"
    return "neither hangs nor is stopped any more: it goes on, or has ended"


def _hang_in_words(hang: JobHang, now: int) -> str:
    return printable(". ".join(hang_sentences(hang, now / 1e9)))


def _in_words(processes: Sequence[TrainingProcess]) -> str:
    """The verdict on processes, and the first thing to try. Without causes: why there is no verdict."""
    first = processes[0]
    if first.answer and first.verdict != "marks_missing":
        return _answer_in_words(first.answer)
    words = verdict_words(first.verdict)
    text = ". ".join((words.sentence[0].lower() + words.sentence[1:], *words.advice[:1])).rstrip(".")
    marks = frozenset[str]().union(*(process.missing_marks for process in processes))
    return f"{text} (missing: {mark_names(marks)})" if first.verdict == "marks_missing" else text


def _answer_in_words(answer: JobAnswer) -> str:
    return " ".join((lead_of(answer), *(answer.first.advice[:1] if answer.first else ())))


def _ranks(numbers: Sequence[int]) -> str:
    return f"{'rank' if len(numbers) == 1 else 'ranks'} {ranges(numbers)} {'is' if len(numbers) == 1 else 'are'}"


def ranges(numbers: Iterable[int]) -> str:
    """Numbers in words: `0-3, 5`."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)


def _description(job: str, ranks: Mapping[int, TrainingProcess]) -> str:
    size = next(iter(ranks.values())).attributes.get(semconv.WORLD_SIZE)
    word = "rank" if len(ranks) == 1 else "ranks"
    return f"job {printable(job)}: {word} {ranges(ranks)} of {size} on {_hosts(ranks.values())}"


def _process(process: TrainingProcess) -> str:
    service = printable(str(process.attributes["service.name"]))
    return f"training process {process.identity.pid} of {service} on {_hosts([process])}"


def _hosts(processes: Collection[TrainingProcess]) -> str:
    hosts = sorted({process.identity.host or "an unnamed host" for process in processes})
    return ", ".join(hosts[:_HOSTS]) + (f" and {len(hosts) - _HOSTS} more hosts" if len(hosts) > _HOSTS else "")
