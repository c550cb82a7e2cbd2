"""What to try against a cause. Each advice has a condition on facts, so that following it can help."""

import math
from collections.abc import Callable
from typing import Final, NamedTuple

from otel_zernel_libraries.training.causes.cause import CauseName
from otel_zernel_libraries.training.causes.facts import TORCH_OPTIMIZERS, UNPACKING, Facts
from otel_zernel_libraries.training.causes.library_calls import LibraryCall
from otel_zernel_libraries.training.cpu_takers import OF_JOB, TakerKind
from otel_zernel_libraries.training.ledger import Activity, Position


class Case(NamedTuple):
    """A cause and the facts about the ranks that have it."""

    cause: CauseName
    position: Position | None
    activity: Activity | None
    facts: Facts
    gain: float
    """Seconds of a step."""
    step: float
    """Its seconds."""
    load: float
    """Seconds of a step in which the thread loads data, for any cause, without waits for a CPU. Workers wait, too."""
    call: LibraryCall | None = None
    """The library in whose calls most of the time is, if it is a known one."""


class Advice(NamedTuple):
    """A sentence, and when it can help."""

    text: str | Callable[[Case], str]
    fits: Callable[[Case], bool]


_COMPUTES: Final = frozenset({Activity.PYTHON, Activity.NATIVE, Activity.OPERATOR})
_OF_PROGRAM: Final = frozenset({Activity.PYTHON, Activity.NATIVE})
_WORKS: Final = _COMPUTES | {Activity.UNKNOWN}
_TRANSFERS: Final = frozenset({Activity.SOCKET, Activity.FILE, Activity.PIPE})
_WAITS_OF_WORKERS: Final = frozenset({Activity.FILE, Activity.SOCKET, Activity.TIMER})
"""Waits that workers have in place of the training thread, without CPUs of their own."""
_PASSES: Final = frozenset({Position.FORWARD, Position.BACKWARD, Position.INFERENCE})
_AFTER: Final = frozenset({Position.CLIP, Position.AFTER_STEP, Position.BETWEEN, Position.UNKNOWN})
_BESIDE: Final = frozenset({Position.AFTER_STEP, Position.BETWEEN, Position.UNKNOWN})
"""Where a program without a DataLoader of PyTorch may also make its next batch."""
_OWN: Final = frozenset({CauseName.SEGMENT})
_LATE: Final = frozenset({CauseName.SEGMENT, CauseName.PERIODIC, CauseName.SLOW_STEPS})
"""Causes whose position and activity say what to change."""
_NOT_EVERY: Final = frozenset({CauseName.SEGMENT, CauseName.SLOW_STEPS})
_WORKERS: Final = frozenset({CauseName.WORKERS_SLOW, CauseName.WORKERS_TOO_FEW})
_WITH_CALLS: Final = _LATE | _WORKERS | {CauseName.STRAGGLER}
"""Causes of calls of the program."""
_MOST_WAITING: Final = 16
"""Workers that wait need no CPUs of their own, but memory."""
_HEAT: Final = frozenset({"sw_thermal_slowdown", "hw_thermal_slowdown", "hw_slowdown"})
_BRAKE: Final = frozenset({"hw_power_brake"})
_OF_TRANSFERS: Final = 0.9
"""Threads that want to run beside those that compute: those of gloo."""
_LARGE: Final = 0.25
"""The part of the waits for a CPU from which on its taker is worth a change."""


def _at(
    *positions: Position, doing: frozenset[Activity] | None = None, causes: frozenset[CauseName] = _LATE
) -> Callable[[Case], bool]:
    def fits(case: Case) -> bool:
        return (
            case.cause in causes
            and (not positions or case.position in positions)
            and (doing is None or case.activity in doing)
        )

    return fits


def _elsewhere(
    *positions: Position, doing: frozenset[Activity], causes: frozenset[CauseName] = _LATE
) -> Callable[[Case], bool]:
    """In any position but these."""
    return lambda case: _at(doing=doing, causes=causes)(case) and case.position not in positions


def _is(*causes: CauseName) -> Callable[[Case], bool]:
    return lambda case: case.cause in causes


# calls of libraries


def _on_call(case: Case) -> str:
    """The advice on the library in whose calls the time is; empty if there is no better one than on the activity."""
    if case.call is None:
        return ""
    if case.cause is CauseName.GROWTH:
        return case.call.growing
    is_loading = case.position is Position.LOAD or case.cause in _WORKERS
    return case.call.loading if is_loading else case.call.beside


def _comes_first(case: Case) -> bool:
    """Whether the library decides what to change. Else the cause, or the environment, does."""
    is_own = case.cause in (CauseName.SEGMENT, CauseName.SLOW_STEPS) and case.position is not Position.ENVIRONMENT
    return is_own or case.cause is CauseName.GROWTH or _workers_compute(case)


# workers


def _loads_itself(case: Case) -> bool:
    facts = case.facts
    can_help = case.activity in _WAITS_OF_WORKERS or (case.activity in _COMPUTES and (facts.cpus or 0.0) > 1)
    is_worth_it = min(case.gain, case.load) > UNPACKING
    return _at(Position.LOAD)(case) and facts.has_loader and facts.workers == 0 and can_help and is_worth_it


def _with_workers(case: Case) -> str:
    """Enough workers that a batch is there for each step, and one more. Those that compute need CPUs of their own."""
    needed = math.ceil(case.load / max(case.step - case.load, 1e-9)) + 1
    most = max(int(case.facts.cpus or 0.0) - 1, 1) if case.activity in _COMPUTES else _MOST_WAITING
    number = min(needed, most)
    return f"Load batches in worker processes: `DataLoader(..., num_workers={number}, persistent_workers=True)`."


def _more_workers(case: Case) -> str:
    now = case.facts.workers or 1
    most = now + max(int((case.facts.cpus or 0.0) - 1 - (case.facts.worker_cpu or 0.0)), 1)
    number = min(max(math.ceil(now * case.step / max(case.step - case.gain, 1e-9)), now + 1), most)
    return f"Use more workers: CPUs are free, and the workers cannot keep up. Try `num_workers={number}`."


def _workers_compute(case: Case) -> bool:
    return case.cause is CauseName.WORKERS_SLOW and case.facts.are_workers_busy is True


def _workers_read(case: Case) -> bool:
    facts = case.facts
    return case.cause in _WORKERS and bool(facts.worker_io) and (facts.worker_io or 0.0) > (facts.worker_cpu or 0.0)


def _waits_for_workers(case: Case) -> bool:
    return bool(case.facts.workers) and case.activity not in _COMPUTES


def _workers_idle(case: Case) -> bool:
    return case.cause in _WORKERS and case.facts.are_workers_busy is False and not _workers_read(case)


# CPUs


def _has_taken(kind: TakerKind) -> Callable[[Case], bool]:
    """A large part of the waits for a CPU is for takers of this kind."""

    def fits(case: Case) -> bool:
        is_late = case.cause is CauseName.STRAGGLER and case.activity is Activity.CPU_WAIT
        if case.cause is CauseName.CPU_TAKEN or not (is_late or case.cause is CauseName.THREADS):
            return case.cause is CauseName.CPU_TAKEN and kind is TakerKind.OTHER
        kinds = frozenset(TakerKind) - {TakerKind.COLLECTOR} if is_late else OF_JOB
        takers = [(taker.kind, seconds) for taker, seconds in case.facts.takers.items() if taker.kind in kinds]
        total = sum(seconds for _, seconds in takers)
        if not total:
            return kind is (TakerKind.OTHER if is_late else TakerKind.SELF)
        return sum(seconds for of_kind, seconds in takers if of_kind is kind) >= _LARGE * total

    return fits


def _shares_cpus(case: Case) -> bool:
    """Whether other ranks want to run on its CPUs, too."""
    return any(taker.kind is TakerKind.RANK for taker in case.facts.takers)


def _own_cpus(case: Case) -> int:
    """The CPUs that the rank has for itself, if all ranks beside it have as many."""
    return max(int(case.facts.cpus or 1.0) // (max(case.facts.ranks_here, 2) if _shares_cpus(case) else 1), 1)


def _has_too_many_threads(case: Case) -> bool:
    return _has_taken(TakerKind.SELF)(case) and (case.facts.runnable or 0.0) > _own_cpus(case) + _OF_TRANSFERS


def _fewer_threads(case: Case) -> str:
    cpus = _own_cpus(case)
    return f"Compute with fewer threads: `torch.set_num_threads({cpus})`, or `OMP_NUM_THREADS={cpus}` at the start."


def _grows_in_workers(case: Case) -> bool:
    """Whether most of the memory that grows is that of workers."""
    return (case.facts.worker_growth or 0.0) > (case.facts.memory_growth or 0.0)


def _grows_in_lists(case: Case) -> bool:
    is_elsewhere = case.position is Position.LOAD or case.activity in _TRANSFERS or _updates_on_cpu(case)
    return case.cause is CauseName.GROWTH and not is_elsewhere


def _updates_on_cpu(case: Case) -> bool:
    """An optimizer of PyTorch keeps nothing of each step, but its operators may become slower."""
    is_of_optimizer = case.position is Position.OPTIMIZER and case.activity is Activity.OPERATOR
    return is_of_optimizer and not case.facts.has_device


def _is_lowered_by(case: Case, reasons: frozenset[str]) -> bool:
    """Whether one of these reasons lowers the clocks of the GPU, and so takes the time."""
    computes_late = case.cause is CauseName.STRAGGLER and case.activity is Activity.OPERATOR
    takes = case.cause is CauseName.DEVICE_CLOCKS or computes_late
    return takes and case.facts.gpu is not None and not reasons.isdisjoint(case.facts.gpu.lowered)


_ADVICE: Final = (
    # loading
    Advice(_with_workers, _loads_itself),
    Advice(_on_call, lambda case: _comes_first(case) and _on_call(case) != ""),
    Advice(
        "Do this work once, before training, and store its result.",
        lambda case: _at(Position.LOAD, doing=_WORKS)(case) and not case.facts.workers,
    ),
    Advice(
        "Do this work in the workers: in the dataset, or in `collate_fn`.",
        lambda case: _at(Position.LOAD, doing=_WORKS | _WAITS_OF_WORKERS)(case) and bool(case.facts.workers),
    ),
    Advice(
        "Let workers return one tensor for a whole batch: the main process unpacks each tensor that they return.",
        lambda case: _at(Position.LOAD, doing=_COMPUTES)(case) and bool(case.facts.workers),
    ),
    Advice(
        "Keep the data in memory or on faster storage, or store many samples in one file.",
        _at(Position.LOAD, doing=frozenset({Activity.FILE})),
    ),
    Advice(
        "Fetch data ahead of the step that needs it: in worker processes, or in a thread that fills a queue.",
        lambda case: (
            _at(Position.LOAD, doing=frozenset({Activity.SOCKET, Activity.TIMER}))(case) and not case.facts.workers
        ),
    ),
    Advice(
        "Make batches in several threads, or in worker processes: the thread that makes the batches is slower than "
        "training.",
        _at(Position.LOAD, doing=frozenset({Activity.LOCK})),
    ),
    Advice("`py-spy dump` shows what the other thread does.", _at(Position.LOAD, doing=frozenset({Activity.LOCK}))),
    Advice(
        "Make batches in several programs: the one at the other end of the pipe is slower than training.",
        _at(Position.LOAD, doing=frozenset({Activity.PIPE})),
    ),
    Advice(_more_workers, _is(CauseName.WORKERS_TOO_FEW)),
    Advice("Do less for each sample in the workers: they compute all the time, and no CPU is free.", _workers_compute),
    Advice("Use faster storage or larger files: the workers wait for their reads.", _workers_read),
    Advice(
        "Try more workers: these wait, and use little CPU. If a step gets no shorter, they wait for each other.",
        _workers_idle,
    ),
    Advice(
        "Do less for each sample in the workers, or use more of them if CPUs are free.",
        lambda case: case.cause is CauseName.WORKERS_SLOW and case.facts.are_workers_busy is None,
    ),
    Advice(
        "Find what the workers wait for: `py-spy dump --pid PID`, with the pid of a worker, shows it.",
        _workers_idle,
    ),
    Advice(
        "Keep the workers between epochs: `DataLoader(..., persistent_workers=True)`.", _is(CauseName.WORKERS_RESTART)
    ),
    Advice(
        "Prepare the order of the samples once, not in each epoch: look at the sampler of the loader.",
        lambda case: case.cause is CauseName.FIRST_OF_EPOCH and not _waits_for_workers(case),
    ),
    Advice(
        "Look at what the dataset does in each worker when an epoch begins: a smaller shuffle buffer fills sooner.",
        lambda case: case.cause is CauseName.FIRST_OF_EPOCH and _waits_for_workers(case),
    ),
    Advice(
        "Make the iterator once, before the loop: `batches = iter(loader)`, and call `next(batches)` in each step.",
        _is(CauseName.ITERATOR_PER_STEP),
    ),
    # the step
    Advice(
        "Do this work less often, or in another thread or process.",
        lambda case: case.cause is CauseName.PERIODIC and case.position is not Position.LOAD,
    ),
    Advice(
        "Move this Python code out of the pass, or do it in worker processes or for fewer steps.",
        _at(*_PASSES, doing=_OF_PROGRAM, causes=_OWN),
    ),
    Advice("Remove the sleep, or wait in another thread.", _at(doing=frozenset({Activity.TIMER}), causes=_NOT_EVERY)),
    Advice(
        "Do not wait for the other thread in each step: take its result some steps later, or give it less to do.",
        _elsewhere(Position.LOAD, doing=frozenset({Activity.LOCK})),
    ),
    Advice(
        "Find the thread that holds the lock for so long: `py-spy dump` shows what each thread does.",
        _elsewhere(Position.LOAD, doing=frozenset({Activity.LOCK})),
    ),
    Advice(
        "Start this program less often, or go on while it runs (`subprocess.Popen`).",
        lambda case: _at(doing=frozenset({Activity.CHILD}))(case) and case.call is None,
    ),
    Advice(
        "Give the job more memory, or read less through memory maps: pages that it needs are not in memory.",
        _at(doing=frozenset({Activity.FAULT})),
    ),
    Advice(
        "Give the job more memory: the machine has moved a part of it to swap space.",
        _at(doing=frozenset({Activity.SWAP})),
    ),
    Advice(
        "Take the step in an optimizer of PyTorch with `foreach=True`: this one runs Python for each parameter.",
        lambda case: (
            _at(Position.OPTIMIZER, doing=_OF_PROGRAM, causes=_OWN)(case)
            and case.facts.optimizer not in TORCH_OPTIMIZERS
        ),
    ),
    Advice(
        "Look for hooks and callbacks in the optimizer's step: PyTorch's own code does not take so long.",
        lambda case: (
            _at(Position.OPTIMIZER, doing=_OF_PROGRAM, causes=_OWN)(case) and case.facts.optimizer in TORCH_OPTIMIZERS
        ),
    ),
    Advice(
        "Give the optimizer `fused=True`: it then calls one operator for all parameters, which are many and small.",
        _at(Position.OPTIMIZER, doing=frozenset({Activity.OPERATOR}), causes=_OWN),
    ),
    Advice(
        "Clear gradients with `optimizer.zero_grad(set_to_none=True)`, without a loop or hooks of your own.",
        _at(Position.ZERO_GRAD, doing=_COMPUTES, causes=_OWN),
    ),
    Advice(
        "Update the average with `torch._foreach_lerp_`, or every few steps only.",
        _at(Position.AVERAGE, causes=_OWN),
    ),
    Advice(
        "If this makes batches, make them in worker processes (`DataLoader`) or in another thread. If not, do it every "
        "few steps: metrics, logging and `gc.collect()` need not follow every step.",
        lambda case: _at(*_BESIDE, doing=_WORKS, causes=_OWN)(case) and not case.facts.has_loader,
    ),
    Advice(
        "Look at gradients (norms, checks for NaN) every few steps only. To clip them, "
        "`torch.nn.utils.clip_grad_norm_` runs a few operators for all of them.",
        _at(Position.CLIP, doing=frozenset({Activity.OPERATOR}), causes=_OWN),
    ),
    Advice(
        "Do it every few steps: metrics, logging and `gc.collect()` need not follow every step.",
        lambda case: (
            _at(*_AFTER, doing=_WORKS, causes=_OWN)(case) and (case.facts.has_loader or case.position not in _BESIDE)
        ),
    ),
    Advice(
        "Read, write or send it in another thread, or every few steps only.",
        _elsewhere(*(Position.LOAD, Position.ENVIRONMENT), doing=_TRANSFERS, causes=_NOT_EVERY),
    ),
    Advice(
        "Write many values, then wait for the disk once: each `fsync` and each commit of a database waits for it.",
        _elsewhere(*(Position.LOAD, Position.ENVIRONMENT), doing=frozenset({Activity.FILE})),
    ),
    Advice(
        "Run several environments at once, in processes of their own (vectorized environments).",
        _at(Position.ENVIRONMENT),
    ),
    # other work
    Advice("Evaluate less often, on fewer samples, or in another process.", _is(CauseName.EVALUATION)),
    Advice(
        "Write checkpoints in the background (`torch.distributed.checkpoint.async_save`), or less often.",
        _is(CauseName.CHECKPOINT),
    ),
    Advice(
        "Find what changes between compilations: `TORCH_LOGS=recompiles`. Mark sizes that change as dynamic.",
        _is(CauseName.COMPILE),
    ),
    Advice(
        "If it is the garbage collector: `gc.freeze()` and `gc.disable()` after the start, and `gc.collect()` every "
        "few hundred steps.",
        lambda case: (
            case.cause in (CauseName.PERIODIC, CauseName.SLOW_STEPS)
            and case.activity is Activity.PYTHON
            and case.call is None
        ),
    ),
    Advice(
        "Do this work less often, or in another thread or process.",
        lambda case: case.cause is CauseName.SLOW_STEPS and case.position is not Position.LOAD,
    ),
    Advice(
        "Look for a list that keeps results of every step: keep numbers (`loss.item()`), not tensors with their graph.",
        lambda case: (case.cause is CauseName.MEMORY_GROWTH and not _grows_in_workers(case)) or _grows_in_lists(case),
    ),
    Advice(
        "Look for a list, a file or a table that the program searches from its beginning for each batch.",
        lambda case: case.cause is CauseName.GROWTH and case.position is Position.LOAD,
    ),
    Advice(
        "Write or send only what is new: to write all old results again takes longer in each step.",
        lambda case: (
            case.cause is CauseName.GROWTH and case.position is not Position.LOAD and case.activity in _TRANSFERS
        ),
    ),
    Advice(
        "Look at what the dataset keeps: its copy in each worker grows with each sample that the worker loads.",
        lambda case: case.cause is CauseName.MEMORY_GROWTH and _grows_in_workers(case),
    ),
    Advice(
        "Call `torch.set_flush_denormal(True)` before training: averages of an optimizer that become almost 0 "
        "(denormal numbers) make its operators several times slower.",
        lambda case: case.cause is CauseName.GROWTH and _updates_on_cpu(case),
    ),
    # ranks
    Advice(
        "Give all ranks the same work: only this rank does something more here.",
        lambda case: (
            case.cause is CauseName.STRAGGLER
            and case.activity not in (Activity.CPU_WAIT, Activity.THROTTLED, Activity.OPERATOR)
        ),
    ),
    Advice(
        "Give all ranks batches of the same size, and compare the speed of their machines.",
        lambda case: (
            case.cause is CauseName.STRAGGLER
            and case.activity is Activity.OPERATOR
            and not _is_lowered_by(case, _HEAT | _BRAKE)
        ),
    ),
    Advice(
        "Give all ranks samples of similar length in each step: sort them into buckets, or pack them.",
        _is(CauseName.IMBALANCE),
    ),
    Advice(
        "Accumulate gradients under `model.no_sync()` in all backward passes but the last before an optimizer step.",
        _is(CauseName.EXTRA_COLLECTIVES),
    ),
    Advice(
        "Join them: gather metrics once, in one tensor, or every few steps. Their latency counts, not their size.",
        _is(CauseName.SMALL_COLLECTIVES),
    ),
    Advice(
        "Look at the network: `NCCL_DEBUG=INFO` shows whether NCCL uses NVLink, InfiniBand or plain TCP.",
        lambda case: case.cause is CauseName.SLOW_LINK and case.facts.uses_nccl,
    ),
    Advice(
        "Exchange less: larger batches, gradients in bfloat16, or gradient accumulation under `no_sync()`.",
        lambda case: case.cause is CauseName.SLOW_LINK and case.position in (None, Position.BACKWARD),
    ),
    Advice(
        "Exchange fewer bytes, or less often: even the last rank waits until they have arrived.",
        lambda case: case.cause is CauseName.SLOW_LINK and case.position not in (None, Position.BACKWARD),
    ),
    # CPUs
    Advice(
        "Raise the CPU limit of the container, or use fewer threads than it allows.",
        lambda case: case.cause is CauseName.CPU_QUOTA or case.activity is Activity.THROTTLED,
    ),
    Advice(_fewer_threads, _has_too_many_threads),
    Advice(
        "Give the job more CPUs, or let fewer of its threads run at the same time: loaders, loggers, watchers.",
        lambda case: (
            case.cause is CauseName.THREADS and _has_taken(TakerKind.SELF)(case) and not _has_too_many_threads(case)
        ),
    ),
    Advice(
        "Start fewer workers or other processes beside training: they take the CPUs that it needs.",
        _has_taken(TakerKind.CHILD),
    ),
    Advice(
        "Give each rank CPUs of its own (`taskset`, `numactl`), or start fewer ranks on this machine.",
        _has_taken(TakerKind.RANK),
    ),
    Advice(
        "Stop the other programs, or give the job CPUs of its own (`taskset`, a cpuset).", _has_taken(TakerKind.OTHER)
    ),
    Advice(
        "Move the other Python thread into a process of its own: only one thread runs Python at a time.",
        _is(CauseName.GIL),
    ),
    # the GPU
    Advice(
        "Copy from pinned memory while the device computes: `pin_memory=True` and `.to(device, non_blocking=True)`.",
        lambda case: case.cause is CauseName.COPIES and case.facts.has_device,
    ),
    Advice(
        "Cool the GPU: look at its fans, the air that it gets, and `nvidia-smi -q -d TEMPERATURE,PERFORMANCE`.",
        lambda case: _is_lowered_by(case, _HEAT),
    ),
    Advice(
        "Look at the power supply of the machine: it makes the GPU lower its clocks.",
        lambda case: _is_lowered_by(case, _BRAKE),
    ),
    Advice(
        "Stop the other programs on this GPU (`nvidia-smi` lists them), or give the job a GPU of its own.",
        _is(CauseName.DEVICE_SHARED),
    ),
    Advice(
        'Launch less: `torch.compile(mode="reduce-overhead")` or CUDA graphs, or larger batches.',
        _is(CauseName.SMALL_LAUNCHES),
    ),
    Advice(_on_call, lambda case: case.cause in _WITH_CALLS and not _comes_first(case) and _on_call(case) != ""),
)


def advice_on(case: Case) -> tuple[str, ...]:
    """The sentences that fit, in the order in which to try them."""
    fitting = [advice.text for advice in _ADVICE if advice.fits(case)]
    return tuple(dict.fromkeys(text if isinstance(text, str) else text(case) for text in fitting))
