"""What to try against a cause. Each advice has a condition on facts, so that following it can help."""

from collections.abc import Callable
from typing import Final, NamedTuple

from otel_zernel_libraries.training.causes.cause import CauseName
from otel_zernel_libraries.training.causes.facts import BUSY, TORCH_OPTIMIZERS, Facts
from otel_zernel_libraries.training.ledger import Activity, Position


class Case(NamedTuple):
    """A cause and the facts about the ranks that have it."""

    cause: CauseName
    position: Position | None
    activity: Activity | None
    facts: Facts


class Advice(NamedTuple):
    """A sentence, and when it can help."""

    text: str
    fits: Callable[[Case], bool]


_COMPUTES: Final = frozenset({Activity.PYTHON, Activity.NATIVE, Activity.OPERATOR})
_STORAGE: Final = frozenset({Activity.FILE, Activity.FAULT})
_QUEUES: Final = frozenset({Activity.LOCK, Activity.PIPE})
_PASSES: Final = frozenset({Position.FORWARD, Position.BACKWARD})
_AFTER: Final = frozenset({Position.CLIP, Position.AFTER_STEP, Position.BETWEEN, Position.UNKNOWN})
_LATE: Final = frozenset({CauseName.SEGMENT, CauseName.PERIODIC, CauseName.SLOW_STEPS})
"""Causes whose position and activity say what to change."""


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


def _is(*causes: CauseName) -> Callable[[Case], bool]:
    return lambda case: case.cause in causes


def _loads_itself(case: Case) -> bool:
    facts = case.facts
    return _at(Position.LOAD)(case) and facts.has_loader and facts.workers == 0 and (facts.cpus or 0.0) > 1


def _workers_compute(case: Case) -> bool:
    facts = case.facts
    busy = facts.worker_cpu is not None and facts.worker_cpu >= BUSY * (facts.workers or 1)
    return case.cause is CauseName.WORKERS_SLOW and busy


def _workers_idle(case: Case) -> bool:
    facts = case.facts
    idle = facts.worker_cpu is not None and facts.worker_cpu < BUSY * (facts.workers or 1)
    return case.cause in (CauseName.WORKERS_SLOW, CauseName.WORKERS_TOO_FEW) and idle and not _workers_wait(case)


def _workers_wait(case: Case) -> bool:
    facts = case.facts
    is_of_workers = case.cause in (CauseName.WORKERS_SLOW, CauseName.WORKERS_TOO_FEW)
    return is_of_workers and bool(facts.worker_io) and (facts.worker_io or 0.0) > (facts.worker_cpu or 0.0)


_OWN: Final = frozenset({CauseName.SEGMENT})
_ADVICE: Final = (
    # loading
    Advice(
        "Load batches in worker processes: `DataLoader(..., num_workers=2, persistent_workers=True)`.", _loads_itself
    ),
    Advice(
        "Or do this work once, before training, and store its result.",
        lambda case: _loads_itself(case) and _at(Position.LOAD, doing=_COMPUTES)(case),
    ),
    Advice(
        "Do this work once, before training, and store its result; or do it in worker processes.",
        lambda case: _at(Position.LOAD, doing=_COMPUTES)(case) and not _loads_itself(case),
    ),
    Advice(
        "Let workers return one tensor for a whole batch: the main process unpacks each tensor that they return.",
        lambda case: _at(Position.LOAD, doing=_COMPUTES)(case) and bool(case.facts.workers),
    ),
    Advice(
        "Keep the data in memory or on faster storage, or store many samples in one file.",
        _at(Position.LOAD, doing=_STORAGE),
    ),
    Advice(
        "Fetch data ahead of the step that needs it: in worker processes, or in a thread that fills a queue.",
        lambda case: (
            _at(Position.LOAD, doing=frozenset({Activity.SOCKET, Activity.TIMER, *_QUEUES}))(case)
            and not case.facts.workers
        ),
    ),
    Advice("Use more workers: CPUs are free, and the workers cannot keep up.", _is(CauseName.WORKERS_TOO_FEW)),
    Advice("Do less for each sample in the workers: they compute all the time, and no CPU is free.", _workers_compute),
    Advice(
        "Find what the workers wait for: they use little CPU time and hardly read. A lock or a network may hold them.",
        _workers_idle,
    ),
    Advice("Use faster storage or larger files: the workers wait for their reads.", _workers_wait),
    Advice(
        "Keep the workers between epochs: `DataLoader(..., persistent_workers=True)`.", _is(CauseName.WORKERS_RESTART)
    ),
    Advice(
        "Prepare the order of the samples once, not in each epoch: look at the sampler of the loader.",
        _is(CauseName.FIRST_OF_EPOCH),
    ),
    Advice(
        "Make the iterator once, before the loop: `batches = iter(loader)`, and call `next(batches)` in each step.",
        _is(CauseName.ITERATOR_PER_STEP),
    ),
    # the step
    Advice(
        "Move this Python code out of the pass, or do it in worker processes or for fewer steps.",
        _at(*_PASSES, doing=frozenset({Activity.PYTHON, Activity.NATIVE}), causes=_OWN),
    ),
    Advice("Remove the sleep, or wait in another thread.", _at(doing=frozenset({Activity.TIMER}), causes=_OWN)),
    Advice(
        "Take the step in an optimizer of PyTorch with `foreach=True`: this one runs Python for each parameter.",
        lambda case: (
            _at(Position.OPTIMIZER, doing=frozenset({Activity.PYTHON}), causes=_OWN)(case)
            and case.facts.optimizer not in TORCH_OPTIMIZERS
        ),
    ),
    Advice(
        "Update the average with `torch._foreach_lerp_`, or every few steps only.",
        _at(Position.AVERAGE, causes=_OWN),
    ),
    Advice(
        "Do it every few steps: metrics and logging need not follow every step.",
        _at(*_AFTER, doing=_COMPUTES, causes=_OWN),
    ),
    Advice(
        "Send or write it in another thread, or every few steps only.",
        _at(*_AFTER, doing=frozenset({Activity.SOCKET, Activity.FILE, Activity.PIPE}), causes=_OWN),
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
        "Do this work less often, or in another thread or process.",
        lambda case: case.cause is CauseName.PERIODIC and case.position is not Position.LOAD,
    ),
    Advice(
        "If it is the garbage collector: `gc.freeze()` after the start, and `gc.collect()` at a time of your choice.",
        lambda case: case.cause in (CauseName.PERIODIC, CauseName.SLOW_STEPS) and case.activity is Activity.PYTHON,
    ),
    Advice(
        "Look for a list that keeps results of every step: keep numbers (`loss.item()`), not tensors with their graph.",
        lambda case: (
            case.cause is CauseName.MEMORY_GROWTH or (case.cause is CauseName.GROWTH and case.activity in _COMPUTES)
        ),
    ),
    # ranks
    Advice(
        "Look at the machine of that rank: other programs on its CPUs, and its affinity.",
        lambda case: case.cause is CauseName.STRAGGLER and case.activity is Activity.CPU_WAIT,
    ),
    Advice(
        "Give all ranks the same work: only this rank does something more here.",
        lambda case: (
            case.cause is CauseName.STRAGGLER
            and case.activity not in (Activity.CPU_WAIT, Activity.THROTTLED, Activity.OPERATOR)
        ),
    ),
    Advice(
        "Give all ranks batches of the same size, and compare the speed of their machines.",
        lambda case: case.cause is CauseName.STRAGGLER and case.activity is Activity.OPERATOR,
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
    # CPUs
    Advice(
        "Raise the CPU limit of the container, or use fewer threads than it allows.",
        lambda case: case.cause is CauseName.CPU_QUOTA or case.activity is Activity.THROTTLED,
    ),
    Advice("Set `OMP_NUM_THREADS`, or the number of workers, to the CPUs that it has.", _is(CauseName.THREADS)),
    Advice("Stop the other programs, or give the job CPUs of its own (`taskset`, a cpuset).", _is(CauseName.CPU_TAKEN)),
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
        'Launch less: `torch.compile(mode="reduce-overhead")` or CUDA graphs, or larger batches.',
        _is(CauseName.SMALL_LAUNCHES),
    ),
)


def advice_on(case: Case) -> tuple[str, ...]:
    """The sentences that fit, in the order in which to try them."""
    return tuple(advice.text for advice in _ADVICE if advice.fits(case))
