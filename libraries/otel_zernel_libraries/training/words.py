"""The words for phases, details, verdicts, marks and causes. Every view has them from here.

The keys are the values of attributes, such as `zernel.phase` (docs/development/spans.md). They never change; the words
may.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple


class PhaseWords(NamedTuple):
    """A phase as people see it."""

    name: str
    short: str
    """For narrow columns: at most 7 letters."""
    letter: str
    """In bars. It repeats the colour for people who do not see it."""
    light: str
    """The colour on a light ground (CSS)."""
    dark: str
    """The colour on a dark ground (CSS)."""
    terminal: int
    """The colour of letters in a terminal (SGR, ECMA-48 8.3.117)."""
    ink: int
    """The colour of letters on a ground of that colour (SGR)."""


class VerdictWords(NamedTuple):
    """A verdict on a process or a job as people see it."""

    name: str
    """For columns."""
    sentence: str
    """The result, without a full stop. Views add the numbers."""
    advice: tuple[str, ...] = ()
    """Sentences in the order in which to try them, with code in backquotes. A view with little room shows the first
    one. A view that knows more replaces it by a more exact one."""
    is_fault: bool = True
    """Whether there is something to mend."""


class PositionWords(NamedTuple):
    """A position in a loop as people see it."""

    name: str
    """For columns."""
    where: str
    """The rest of a sentence about a thread."""


class CauseWords(NamedTuple):
    """A cause of longer steps as people see it."""

    name: str
    """For columns."""
    sentence: str
    """Without a full stop, with places for the thread or its rank (`who`), its process and its GPU, the activity
    (`what`, `longer`) and the position (`where`)."""


PHASE_WORDS: Final = {
    "data_loading": PhaseWords("data loading", "data", "D", "#e69f00", "#f0b429", 33, 30),
    "gpu_compute": PhaseWords("compute", "compute", "C", "#009e73", "#22b98b", 32, 30),
    "nccl_collective": PhaseWords("communication", "comm", "N", "#c0609a", "#d988b8", 35, 97),
    "optimizer_step": PhaseWords("optimizer", "optim", "O", "#0072b2", "#56b4e9", 34, 97),
    "unknown": PhaseWords("other", "other", ".", "#9a9da1", "#7d8187", 90, 97),
}
"""By `zernel.phase`, in the order of a step."""

DETAIL_NAMES: Final = {
    "loader": "DataLoader",
    "queue_wait": "waiting for a queue",
    "io": "reading files",
    "copy": "copies to the device",
    "forward": "forward pass",
    "backward": "backward pass",
    "inference": "passes without gradients",
    "gpu_wait": "waiting for the GPU",
    "clip": "after backward",
    "collective_wait": "waiting for other ranks",
    "enqueue": "issuing collectives",
    "compile": "compiling",
    "step": "optimizer step",
    "zero_grad": "zero_grad",
    "average": "averaging weights",
    "host": "other code",
    "launch": "issuing work to the GPU",
    "lock": "waiting for a lock",
    "sleep": "sleeping",
    "descheduled": "waiting for a CPU",
    "sampled": "not seen: calls were sampled",
    "lost": "not seen",
}
"""By `zernel.phase.detail`."""

DELAYS: Final = ("{} delays the others", "{} delay the others")
"""The sentence on one straggler, and that on several."""

_LARGER_BATCHES: Final = "Exchange less often: larger batches, or gradient accumulation under `no_sync()`."

VERDICT_WORDS: Final = {
    "straggler": VerdictWords(
        "straggler",
        DELAYS[0].format("A rank"),
        (
            "Look at the machine of that rank: its device's clocks and temperature, other programs on its CPUs.",
            "Give all ranks equal work: batches of one size, and samples of similar length.",
        ),
    ),
    "slow_link": VerdictWords(
        "slow link",
        "All ranks wait for the network",
        (
            "Look at the network: `NCCL_DEBUG=INFO` shows whether NCCL uses NVLink, InfiniBand or plain TCP.",
            _LARGER_BATCHES,
        ),
    ),
    "input_bound": VerdictWords(
        "input bound",
        "Training waits for data",
        (
            "Load it in more worker processes, or use faster storage.",
            "Do less for each sample: decode and resize in advance, and drop transforms that are not needed.",
        ),
    ),
    "communication_bound": VerdictWords(
        "communication bound",
        "Training waits for communication",
        (
            _LARGER_BATCHES,
            "Overlap: larger DDP buckets (`bucket_cap_mb`), or `static_graph=True`.",
            "Exchange less: gradients in bfloat16 (a DDP communication hook).",
        ),
    ),
    "host_bound": VerdictWords(
        "host bound",
        "The program's own code takes long",
        (
            "Do it less often or in other processes: logging, checkpoints, metrics, and batches made by computing.",
            "In reinforcement learning, step several environments at once (vectorized), in processes of their own.",
        ),
    ),
    "optimizer_bound": VerdictWords(
        "optimizer bound",
        "The optimizer takes long",
        (
            "Use `fused=True` (or `foreach=True`) in the optimizer.",
            "Take fewer optimizer steps: larger batches or gradient accumulation.",
        ),
    ),
    "unstable": VerdictWords(
        "unstable",
        "The durations of steps vary",
        (
            "Look at the slowest steps: their traces and the time lines show the phase that takes longer.",
            "Usual causes: a cold cache, checkpoints, evaluation, garbage collection, other programs on the machine.",
        ),
    ),
    "lost_events": VerdictWords(
        "lost events",
        "Events were lost in too many steps",
        ("Watch again while the machine has more CPU time left, or watch longer with `--for`.",),
    ),
    "marks_missing": VerdictWords(
        "marks missing",
        "The time of the steps is unknown",
        ("`otel-zernel doctor` names the missing functions. Official wheels of PyTorch have them.",),
    ),
    "no_scopes": VerdictWords(
        "no scopes",
        "This program has no PyTorch scopes, so its steps are unknown",
        ("Look at the largest part. Training loops in PyTorch show exact steps and phases.",),
        is_fault=False,
    ),
    "no_pytorch": VerdictWords(
        "no PyTorch",
        "This program has not loaded PyTorch, so its training steps are unknown",
        is_fault=False,
    ),
    "no_steps": VerdictWords(
        "no steps",
        "This program has loaded PyTorch, but took no training step",
        ("Watch for longer, for example with `--for 60s`: a first step may compile, or wait for its data.",),
    ),
    "too_few_steps": VerdictWords("too few steps", "There are too few steps for a verdict", is_fault=False),
    "compute_bound": VerdictWords(
        "compute bound",
        "Training computes",
        (
            "Compute less: `torch.autocast` with bfloat16, or `torch.compile`.",
            "Use the device better: larger batches.",
        ),
        is_fault=False,
    ),
    "none": VerdictWords(
        "no verdict", "There is no verdict yet", ("Let it take a few more training steps.",), is_fault=False
    ),
}
"""By `zernel.verdict` and `zernel.job.verdict`, the worst first, with those that only `why` gives. The first advice
fits every program and every view."""

ACTIVITY_WORDS: Final = {
    "operator": "runs operators",
    "python": "runs Python",
    "native": "runs native code",
    "cpu_wait": "waits for a CPU",
    "throttled": "is throttled by its CPU quota",
    "gil": "waits for Python's lock (GIL)",
    "file": "waits for files",
    "socket": "waits for the network (sockets)",
    "pipe": "waits for a pipe",
    "lock": "waits for another thread (a lock)",
    "child": "waits for a child process",
    "timer": "sleeps",
    "fault": "waits for memory (page faults)",
    "swap": "waits for memory (swap)",
    "gpu_wait": "waits for the GPU",
    "launch_blocked": "waits for the GPU's queue",
    "copy": "copies to or from the GPU",
    "collective": "waits for other ranks",
    "probe": "runs probes of the collector",
    "unknown": "does something unknown",
}
"""By `zernel.activity`: what a thread does, as the rest of a sentence."""

POSITION_WORDS: Final = {
    "load": PositionWords("data loading", "while it loads data"),
    "forward": PositionWords("forward pass", "in the forward pass"),
    "backward": PositionWords("backward pass", "in the backward pass"),
    "clip": PositionWords("before the optimizer", "between the backward pass and the optimizer"),
    "optimizer": PositionWords("optimizer", "in the optimizer"),
    "zero_grad": PositionWords("zero_grad", "while it clears gradients"),
    "average": PositionWords("averaging weights", "while it averages weights"),
    "after_step": PositionWords("after the step", "after the step"),
    "evaluation": PositionWords("evaluation", "in the evaluation"),
    "inference": PositionWords("passes without gradients", "in passes without gradients"),
    "environment": PositionWords("environment", "in its environment"),
    "checkpoint": PositionWords("checkpoint", "in a checkpoint"),
    "compile": PositionWords("compiling", "while it compiles"),
    "between": PositionWords("between loops", "between two loops"),
    "unknown": PositionWords("unknown place", "in an unknown part of the step"),
}
"""By `zernel.position`."""

CAUSE_WORDS: Final = {
    "segment": CauseWords("own code and waits", "{who} {what} {where}"),
    "straggler": CauseWords("straggler", "The other ranks wait for {who}, which {longer}"),
    "imbalance": CauseWords(
        "uneven batches", "The ranks wait for each other in turns: their batches take different times"
    ),
    "slow_link": CauseWords("slow link", "All ranks wait for data that travels between them"),
    "small_collectives": CauseWords(
        "small collectives", "All ranks wait for several small exchanges between them (collectives) {where}"
    ),
    "extra_collectives": CauseWords("extra collectives", "The ranks exchange gradients more often than they use them"),
    "slow_steps": CauseWords("slow steps", "Some steps take much longer than the others"),
    "growth": CauseWords("growing steps", "Each step takes longer than the one before"),
    "memory_growth": CauseWords("growing memory", "The memory of {process} grows"),
    "first_of_epoch": CauseWords("first step of an epoch", "The first step of each epoch waits for its data"),
    "iterator_per_step": CauseWords("iterator per step", "{who} makes a new iterator of its DataLoader in each step"),
    "workers_too_few": CauseWords("too few workers", "Training waits for batches from too few DataLoader workers"),
    "workers_slow": CauseWords("slow workers", "Training waits for batches from slow DataLoader workers"),
    "workers_restart": CauseWords("workers that restart", "The DataLoader starts its workers anew in each epoch"),
    "evaluation": CauseWords("evaluation", "Training stops for evaluations"),
    "checkpoint": CauseWords("checkpoint", "Training stops for checkpoints"),
    "periodic": CauseWords("periodic work", "Every few steps, {who} {what} {where}"),
    "compile": CauseWords("compiling", "{who} stops to compile the model"),
    "cpu_taken": CauseWords("CPU taken", "{who} waits for a CPU that other programs use"),
    "cpu_quota": CauseWords("CPU quota", "A CPU quota stops {who}"),
    "gil": CauseWords("interpreter's lock", "{who} waits for Python's lock (GIL), which another of its threads holds"),
    "threads": CauseWords(
        "CPU taken by the job", "{who} waits for a CPU that other threads, workers or ranks of its job use"
    ),
    "device_clocks": CauseWords("low clocks", "{gpu} runs at lower clocks"),
    "device_shared": CauseWords("shared device", "Another program uses {gpu}"),
    "small_launches": CauseWords("small launches", "{gpu} waits, because it gets its work in small parts"),
    "copies": CauseWords("copies", "{who} copies to or from the GPU {where}"),
}
"""By `zernel.cause`."""

MARK_NAMES: Final = {
    "scopes": "scopes",
    "backward": "backward passes",
    "collective_wait": "waits for collectives",
    "ddp_wait": "waits of DDP",
    "operators": "operators",
    "grad_mode": "whether gradients are on",
}
"""By `zernel.mark`: the part of a step that PyTorch's functions show."""

THROTTLE_NAMES: Final = {
    "sw_power_cap": "power limit",
    "hw_slowdown": "heat or power",
    "sw_thermal_slowdown": "heat",
    "hw_thermal_slowdown": "heat",
    "hw_power_brake": "power supply",
}
"""By `zernel.gpu.throttle.reason`, without the harmless ones: the cause of lower clocks."""


def phase_name(phase: str) -> str:
    """A value of `zernel.phase` in words. An unknown value stays as it is, here and below."""
    return PHASE_WORDS[phase].name if phase in PHASE_WORDS else phase


def detail_name(detail: str) -> str:
    """A value of `zernel.phase.detail` in words."""
    return DETAIL_NAMES.get(detail, detail)


def activity_words(activity: str) -> str:
    """A value of `zernel.activity` as the rest of a sentence: `waits for files`."""
    return ACTIVITY_WORDS.get(activity, activity)


def activity_clause(activity: str | None) -> str:
    """The rest of a sentence about a thread, also if its activity is not known: `loses time`."""
    return activity_words(activity) if activity and activity != "unknown" else "loses time"


def activity_for(activity: str, time: str) -> str:
    """The same with its time: `waits for files for 3 ms`, `loses 3 ms`."""
    return f"loses {time}" if activity == "unknown" else f"{activity_words(activity)} for {time}"


def position_name(position: str) -> str:
    """A value of `zernel.position` in words."""
    return POSITION_WORDS[position].name if position in POSITION_WORDS else position


def moment_name(position: str, activity: str) -> str:
    """A position and an activity in words: `data loading: runs Python`."""
    name = position_name(position)
    return name if activity == "unknown" else f"{name}: {activity_words(activity)}"


def cause_name(cause: str) -> str:
    """A value of `zernel.cause` in words."""
    return CAUSE_WORDS[cause].name if cause in CAUSE_WORDS else cause.replace("_", " ")


def cause_sentence(cause: str, *, rank: int | None, activity: str | None, position: str | None) -> str:
    """A cause as a sentence, without a full stop. None: all ranks, or no single activity or position."""
    named = "" if rank is None else f"rank {rank}"
    where = POSITION_WORDS[position].where if position in POSITION_WORDS and position != "unknown" else ""
    is_known = activity and activity != "unknown"
    words = CAUSE_WORDS.get(cause, CauseWords(cause, cause_name(cause)))
    longer = f"{activity_clause(activity)} for longer" if is_known else "needs more time"
    sentence = words.sentence.format(
        who=named or ("one rank" if cause == "straggler" else "the training thread"),
        process=named or "the process",
        gpu=f"the GPU of {named}" if named else "the GPU",
        what=activity_clause(activity),
        where=where,
        longer=f"{longer} than they do {where}",
    )
    sentence = " ".join(sentence.split())
    return sentence[0].upper() + sentence[1:]


def verdict_words(verdict: str) -> VerdictWords:
    """The words for a verdict. An unknown one is a sentence of its own."""
    name = verdict.replace("_", " ")
    return VERDICT_WORDS.get(verdict) or VerdictWords(name, name.capitalize())


def mark_names(marks: Iterable[str]) -> str:
    """Values of `zernel.mark` in words, sorted."""
    return ", ".join(sorted(MARK_NAMES.get(mark, mark) for mark in marks))


def throttle_name(reason: str) -> str:
    """A value of `zernel.gpu.throttle.reason` in words."""
    return THROTTLE_NAMES.get(reason, reason.replace("_", " "))


def phases_css() -> str:
    """The colours of the phases as variables, for the theme of the system or of `data-theme`, and a class for each."""
    light = " ".join(f"--{phase}: {words.light};" for phase, words in PHASE_WORDS.items())
    dark = " ".join(f"--{phase}: {words.dark};" for phase, words in PHASE_WORDS.items())
    classes = "\n".join(f".{phase} {{ fill: var(--{phase}); background: var(--{phase}); }}" for phase in PHASE_WORDS)
    return (
        f":root {{ {light} }}\n"
        f':root[data-theme="dark"] {{ {dark} }}\n'
        f"@media (prefers-color-scheme: dark) {{ :root:not([data-theme]) {{ {dark} }} }}\n"
        f"{classes}\n"
    )
