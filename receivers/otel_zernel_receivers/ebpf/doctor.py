"""The findings of `otel-zernel doctor`: whether eBPF works on this machine, and what the receiver would probe.

The ways to attach are tried on a function of the collector itself, the best first, until one works. No other process
is touched.
"""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from otel_zernel.component import Finding
from otel_zernel_libraries.training.frameworks import Framework
from otel_zernel_receivers.ebpf.binaries.symbol_names import UnreadableElf
from otel_zernel_receivers.ebpf.budget.overhead import NEVER_SAMPLED
from otel_zernel_receivers.ebpf.config import EbpfConfig, ProcessesConfig
from otel_zernel_receivers.ebpf.emit.skipped import skipped_sentence
from otel_zernel_receivers.ebpf.kernel.capabilities import Capability, held
from otel_zernel_receivers.ebpf.kernel.libbpf_calls import missing, version
from otel_zernel_receivers.ebpf.kernel.unavailable import BTF, Unavailable, explain
from otel_zernel_receivers.ebpf.opening import VerifiedAhead
from otel_zernel_receivers.ebpf.probes.attach_modes import Mode, too_old_for
from otel_zernel_receivers.ebpf.probes.cost import ProbeCost
from otel_zernel_receivers.ebpf.probes.libraries import PROBES, AttachPoints, find_attach_points
from otel_zernel_receivers.ebpf.probes.loading import load
from otel_zernel_receivers.ebpf.probes.marks import sentence
from otel_zernel_receivers.ebpf.processes.files.file_identity import FileIdentity
from otel_zernel_receivers.ebpf.processes.files.mappings import open_located
from otel_zernel_receivers.ebpf.processes.files.used_files import UsedFile
from otel_zernel_receivers.ebpf.processes.scanner import Scan, ScannedProcess, Scanner, Selection, as_text, coverage
from otel_zernel_receivers.ebpf.tables.tables import Limits

_REQUIRED = {Capability.CAP_BPF: "to load programs", Capability.CAP_PERFMON: "to attach them"}
_OPTIONAL = {
    Capability.CAP_SYS_PTRACE: "to watch processes of other users and containers",
    Capability.CAP_DAC_READ_SEARCH: "for libraries in folders that only the job's user may enter",
    Capability.CAP_CHECKPOINT_RESTORE: "for libraries that were deleted or replaced while a job runs",
}
_LIMITS = Limits(max_processes=8, max_series=8)
_BUSY = 10_000
"""Calls a second for the estimate of the overhead: about the rate of a training process."""
_LOG_LINES = 12
"""Lines that are kept from the end of a kernel log."""
_NAMED = 8
"""Most pids that are listed for one library."""


def examine(config: EbpfConfig) -> Iterator[Finding]:
    """All findings. Processes are the running ones that the configuration selects."""
    with VerifiedAhead(_LIMITS) as ahead:
        yield from _findings(config, ahead)


def _findings(config: EbpfConfig, ahead: VerifiedAhead) -> Iterator[Finding]:
    system = os.uname()
    yield Finding("kernel", f"Linux {system.release} on {system.machine}")
    yield from _capabilities()
    yield Finding("libbpf", "not found", ok=False) if missing() else Finding("libbpf", version(), ok=True)
    yield Finding("BTF", str(BTF), ok=True) if BTF.exists() else _no_btf()
    trials: dict[Mode, ProbeCost | _Failure] = {}
    best: ProbeCost | None = None
    for mode in Mode:
        trials[mode] = trial = _try(mode, ahead)
        if isinstance(trial, ProbeCost):
            best = trial
            break
    yield from _modes(trials)
    yield _limit(config, best)
    yield from _uses(Scanner(selection=Selection(**dict(config.processes))).scan(), best, config)


def _no_btf() -> Finding:
    return Finding(
        "BTF",
        f"{BTF} does not exist. Use a kernel that is built with CONFIG_DEBUG_INFO_BTF, or mount the folder if a "
        "container hides it",
        ok=False,
    )


def _limit(config: EbpfConfig, cost: ProbeCost | None) -> Finding:
    """The load above which calls are sampled."""
    if not config.max_overhead:
        return Finding("max_overhead", "0: no limit, so nothing is sampled")
    paid = cost.at(0).call_ns if cost else 0.0
    hits = f", or {config.max_overhead / paid * 1e9:,.0f} calls/s," if paid else ""
    return Finding(
        "max_overhead",
        f"above {config.max_overhead:.1%} of a CPU{hits} in one process, launches are sampled first, then operators on "
        "one tensor, then operators of models, then copies, waits for the GPU and collectives; never sampled: "
        f"{NEVER_SAMPLED}",
    )


def _capabilities() -> Iterator[Finding]:
    has = held()
    for capability, purpose in (_REQUIRED | _OPTIONAL).items():
        if capability in has:
            yield Finding(capability.name, f"held, {purpose}", ok=True)
        else:
            ok = False if capability in _REQUIRED else None
            yield Finding(capability.name, f"not held; run as root, or add it {purpose}", ok)


class _Failure(NamedTuple):
    """Why a mode does not work: one sentence, and each trial with its log."""

    sentence: str
    reasons: Sequence[str]

    @property
    def details(self) -> tuple[str, ...]:
        """The lines for `doctor --verbose`."""
        return tuple(line for reason in self.reasons for line in _shortened(reason))


def _try(mode: Mode, ahead: VerifiedAhead) -> ProbeCost | _Failure:
    """The cost of a probe in this mode, or why the mode does not work."""
    try:
        loaded = load(_LIMITS, (mode,), ahead.verified)
    except Unavailable as problem:
        return _Failure(str(problem), problem.details)
    except OSError as problem:
        return _Failure(str(problem).partition("\n")[0], [str(problem)])
    loaded.close()
    return loaded.cost


def _shortened(reason: str) -> list[str]:
    """The trial, and the end of its log, where the verifier names the instruction that it refuses."""
    first, *log = reason.splitlines()
    return [first, *log[-_LOG_LINES:]]


def _modes(trials: Mapping[Mode, ProbeCost | _Failure]) -> Iterator[Finding]:
    """A finding for each mode that was tried. If no mode works, one finding."""
    failures = [trial for trial in trials.values() if isinstance(trial, _Failure)]
    if len(failures) == len(trials):
        yield _nothing_works(failures)
        return
    for mode, trial in trials.items():
        if isinstance(trial, ProbeCost):
            text = (
                f"works; a probe adds {trial.call_ns:,.0f} ns to a call, {trial.floor_ns:,} ns of it to its latency, "
                f"and {trial.at(0).call_ns:,.0f} ns if other work is between the calls"
            )
            yield Finding(f"by {mode}", text, ok=True)
        else:
            yield Finding(f"by {mode}", too_old_for(mode) or trial.sentence, details=trial.details)


def _nothing_works(failures: Sequence[_Failure]) -> Finding:
    """The sentence that the receiver logs too."""
    sentences = {failure.sentence for failure in failures}
    every = [reason for failure in failures for reason in failure.reasons]
    sentence = sentences.pop() if len(sentences) == 1 else explain(every)
    return Finding(
        "attaching", sentence, ok=False, details=tuple(line for failure in failures for line in failure.details)
    )


def _uses(scan: Scan, cost: ProbeCost | None, config: EbpfConfig) -> Iterator[Finding]:
    """A finding for each file that would be probed, with the processes that use it."""
    users: dict[FileIdentity, tuple[UsedFile, list[ScannedProcess]]] = {}
    for process in scan.processes:
        for used in process.files:
            if used.library in PROBES:
                users.setdefault(used.identity, (used, []))[1].append(process)
    frameworks = list(_frameworks(scan.processes))
    if not users and not frameworks:
        which = "running process" if config.processes == ProcessesConfig() else "process that `processes` selects"
        yield Finding("processes", f"no {which} uses CUDA, NCCL or PyTorch")
    for used, processes in users.values():
        finding = _use(used, processes, cost, config)
        still_runs = any(Path(f"/proc/{process.id.pid}").exists() for process in processes)
        if finding and still_runs:
            yield finding
    yield from frameworks
    for reason, count in scan.skipped.items():
        yield Finding("skipped", skipped_sentence(reason, count, held()))


def _frameworks(processes: Iterable[ScannedProcess]) -> Iterator[Finding]:
    """A finding for each framework other than PyTorch, and for programs without one."""
    users: dict[tuple[Framework, str], list[ScannedProcess]] = {}
    for process in processes:
        text = coverage(process.framework, {used.library for used in process.files})
        users.setdefault((process.framework, text), []).append(process)
    for (framework, text), using in users.items():
        if text:
            yield Finding(framework, f"in {_listed(using)}: {text}")


def _use(
    used: UsedFile, processes: Iterable[ScannedProcess], cost: ProbeCost | None, config: EbpfConfig
) -> Finding | None:
    """None for a file without functions to probe, such as a libtorch_cuda that does not contain NCCL."""
    name, path = as_text(used.mapping.name), as_text(used.mapping.path)
    try:
        with open_located(used.file) as fd:
            places = find_attach_points(fd, PROBES[used.library])
    except (OSError, UnreadableElf) as error:
        return Finding(name, f"cannot be probed: {path}: {error}")
    if places.is_empty:
        return None
    prediction = _prediction(places, cost, config)
    is_whole = not places.single_stepped and not places.missing
    missing_marks = f"; {sentence('it', places.missing, places.is_stripped)}" if places.missing else ""
    return Finding(
        name, f"{prediction}{missing_marks}; {path}, used by {_listed(processes)}", ok=True if is_whole else None
    )


def _prediction(places: AttachPoints, cost: ProbeCost | None, config: EbpfConfig) -> str:
    count = len(places.probed) + len(places.single_stepped) * config.single_stepped
    text = "1 function" if count == 1 else f"{count} functions"
    if cost and places.probed:
        paid_ns = cost.at(_BUSY).call_ns
        text += f", {paid_ns:,.0f} ns a call, {paid_ns * _BUSY / 1e7:.1f} % of a CPU at {_BUSY:,} calls/s"
    if places.single_stepped:
        too_dear = sorted(set(places.single_stepped))
        if config.single_stepped:
            text += f"; {len(too_dear)} of them are single-stepped at 10 us a call"
        else:
            text += f"; {len(too_dear)} more would be single-stepped at 10 us a call, and are not probed unless"
            text += " `single_stepped` is set"
        text += f" ({', '.join(too_dear)})"
    if places.refused:
        text += f"; the kernel refuses the first instruction of {', '.join(sorted(set(places.refused)))}"
    return text


def _listed(processes: Iterable[ScannedProcess]) -> str:
    """`python 17, 18 and 3 more`."""
    by_name: dict[str, list[int]] = {}
    for process in processes:
        by_name.setdefault(process.name, []).append(process.id.pid)
    return ", ".join(f"{name} {_first(pids)}" for name, pids in by_name.items())


def _first(pids: list[int]) -> str:
    more = f" and {len(pids) - _NAMED} more" if len(pids) > _NAMED else ""
    return ", ".join(map(str, pids[:_NAMED])) + more
