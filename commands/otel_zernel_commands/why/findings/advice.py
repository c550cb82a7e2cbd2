"""What to try, by verdict. The evidence makes the first advice more exact."""

from collections.abc import Iterator

from otel_zernel_commands.why.findings.facts import Facts
from otel_zernel_commands.why.findings.shares import slowest_phase
from otel_zernel_commands.why.findings.stragglers import excess_of, straggler_and_others
from otel_zernel_libraries.training import phase_name, verdict_words

_MOST_WORKERS = 8
"""Workers to suggest for each process at most."""


def advice_on(facts: Facts, verdict: str) -> Iterator[str]:
    """Sentences in the order in which to try them."""
    advice = verdict_words(verdict).advice
    if verdict == "input_bound":
        yield from _on_input(facts, advice[1:])
    elif verdict == "straggler":
        yield _on_straggler(facts) or advice[0]
        yield from advice[1:]
    elif verdict == "unstable":
        yield _on_unstable(facts)
        yield from advice[1:]
    else:
        yield from advice


def _on_input(facts: Facts, further: tuple[str, ...]) -> Iterator[str]:
    detail = facts.longest_detail("data_loading")
    processes = facts.group.processes
    workers = max(one.workers for one in processes)
    if detail and detail.detail == "copy":
        yield "Copy while the device computes: `pin_memory=True` and `.to(device, non_blocking=True)`."
        return
    if detail and detail.detail in ("queue_wait", "io"):
        yield "Prepare batches ahead in other threads or processes: the training thread waits for each of them."
        yield "Use faster storage, or keep the data in memory."
        return
    fitting = max(1, min(_MOST_WORKERS, facts.cpus // len(processes)))
    if not workers:
        options = f"num_workers={fitting}, persistent_workers=True"
        yield f"Load in worker processes; it has none: `DataLoader(..., {options})`."
    elif _are_idle(facts):
        yield f"Its {workers} workers wait for I/O: use faster storage, larger files, or keep the data in memory."
    elif workers < fitting:
        yield f"Use more workers: it has {workers} for each process, and this machine has {facts.cpus} CPUs."
    else:
        yield "Use more workers than CPUs, if they wait for storage or for a network."
    yield from further
    if workers:
        yield "Let workers run ahead: a larger `prefetch_factor`, and `pin_memory=True` with a GPU."


def _are_idle(facts: Facts) -> bool:
    """Whether workers wait for I/O longer than they compute."""
    processes = facts.group.processes
    cpu, waiting = (sum(one.worker_times.watched(name) for one in processes) for name in ("cpu_time", "io_wait"))
    return waiting > cpu


def _on_straggler(facts: Facts) -> str:
    """Advice on the phase in which the rank is slow; empty if that is not known."""
    excess = excess_of(*straggler_and_others(facts))
    phase = excess[0][0] if excess else ""
    if phase == "data_loading":
        return "Look at the data of that rank: its storage, the size of its samples, the CPUs that its workers get."
    if phase == "gpu_compute":
        return "Look at the device of that rank: its clocks and temperature, and other programs that use it."
    return ""


def _on_unstable(facts: Facts) -> str:
    slow = slowest_phase(bar for one in facts.group.processes for bar in one.bars.bars)
    where = f" in {phase_name(slow[0])}" if slow else ""
    return f"Find what the slow steps do{where}: the time line of `--html report.html` shows each of them."
