"""What to try, by verdict and evidence."""

from collections.abc import Iterator

from otel_zernel_commands.why.findings.facts import Facts
from otel_zernel_commands.why.findings.labels import phase_label
from otel_zernel_commands.why.findings.shares import slowest_phase
from otel_zernel_commands.why.findings.stragglers import excess_of, straggler_and_others

_MOST_WORKERS = 8
"""Workers to suggest for each process at most."""

_ADVICE = {
    "communication_bound": (
        "Exchange less often: larger batches, or gradient accumulation under `no_sync()`.",
        "Overlap: larger DDP buckets (`bucket_cap_mb`), or `static_graph=True`.",
        "Exchange less: gradients in bfloat16 (a DDP communication hook).",
    ),
    "slow_link": (
        "Look at the network: `NCCL_DEBUG=INFO` shows whether NCCL uses NVLink, InfiniBand or plain TCP.",
        "Exchange less often: larger batches, or gradient accumulation under `no_sync()`.",
    ),
    "optimizer_bound": (
        "Use `fused=True` (or `foreach=True`) in the optimizer.",
        "Take fewer optimizer steps: larger batches or gradient accumulation.",
    ),
    "host_bound": (
        "In reinforcement learning, step several environments at once (vectorized), in processes of their own.",
        "Do the rest less often or elsewhere: logging, checkpoints, metrics, and batches that are made by computing.",
    ),
    "compute_bound": (
        "Compute less: `torch.autocast` with bfloat16, or `torch.compile`.",
        "Use the device better: larger batches.",
    ),
    "no_scopes": ("Look at the largest part. Training loops in PyTorch show exact steps and phases.",),
    "marks_missing": ("`otel-zernel doctor` names the missing functions. Official wheels of PyTorch have them.",),
    "lost_events": ("Watch again while the machine has more CPU time left, or watch longer with `--for`.",),
    "none": ("A profile of one step (`torch.profiler`) shows the next candidate.",),
}


def advice_on(facts: Facts, verdict: str) -> Iterator[str]:
    """Sentences in the order in which to try them."""
    if verdict == "input_bound":
        yield from _on_input(facts)
    elif verdict == "straggler":
        yield from _on_straggler(facts)
    elif verdict == "unstable":
        yield from _on_unstable(facts)
    else:
        yield from _ADVICE.get(verdict, ())


def _on_input(facts: Facts) -> Iterator[str]:
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
    yield "Do less for each sample: decode and resize in advance, and drop transforms that are not needed."
    if workers:
        yield "Let workers run ahead: a larger `prefetch_factor`, and `pin_memory=True` with a GPU."


def _are_idle(facts: Facts) -> bool:
    """Whether workers wait for I/O longer than they compute."""
    processes = facts.group.processes
    return sum(one.worker_io_wait_s for one in processes) > sum(one.worker_cpu_s for one in processes)


def _on_straggler(facts: Facts) -> Iterator[str]:
    found = excess_of(*straggler_and_others(facts))
    phase = found[0][0] if found else ""
    if phase == "data_loading":
        yield "Look at the data of that rank: its storage, the size of its samples, the CPUs that its workers get."
    elif phase == "gpu_compute":
        yield "Look at the device of that rank: its clocks and temperature, and other programs that use it."
    else:
        yield "Look at the machine of that rank: its device's clocks and temperature, other programs on its CPUs."
    yield "Give all ranks equal work: batches of one size, and samples of similar length."


def _on_unstable(facts: Facts) -> Iterator[str]:
    slow = slowest_phase(bar for one in facts.group.processes for bar in one.bars.bars)
    where = f" in {phase_label(slow[0])}" if slow else ""
    yield f"Find what the slow steps do{where}: the time line of `--html report.html` shows each of them."
    yield "Usual causes: a cold cache, checkpoints, evaluation, garbage collection, other programs on the machine."
