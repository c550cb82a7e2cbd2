"""The metrics of the processor. Their descriptions are sent with them."""

from otel_zernel.component.declaration import DeclaredMetric, by_name, own
from otel_zernel_libraries.training import semconv

_PHASE = semconv.PHASE
_SOURCE = semconv.PHASE_SOURCE
_STEP = (semconv.STEP_KIND, semconv.STEP_BOUNDARY, _SOURCE)
_SCOPES = "for processes with PyTorch's scopes"
_GPU = "for processes on a GPU whose metrics arrive"
_LAUNCHES = "for processes whose training thread launches kernels, with snapshots of the ebpf receiver"
_JOB = "for jobs of several ranks"
_HOST = "always"


def _sum(name: str, unit: str, description: str, when: str, *attributes: str) -> DeclaredMetric:
    return DeclaredMetric(name, unit, "sum", description, attributes, when)


def _gauge(name: str, unit: str, description: str, when: str, *attributes: str) -> DeclaredMetric:
    return DeclaredMetric(name, unit, "gauge", description, attributes, when)


_DETAILS = (_PHASE, semconv.PHASE_DETAIL, _SOURCE)

STACKS_WITHOUT_STEP = own(
    "zernel.phases.stacks.without_step",
    "{stack}",
    "Python stacks from before the first step of their process, so their position is not known.",
    when="with stacks of the ebpf receiver",
)
METRICS = by_name(
    STACKS_WITHOUT_STEP,
    _sum(semconv.PHASE_TIME, "s", "Time in the phase, since the first data of the process.", "always", _PHASE, _SOURCE),
    _sum(semconv.PHASE_DETAIL_TIME, "s", "The same time by the evidence for the phase.", _SCOPES, *_DETAILS),
    _sum(
        semconv.LEDGER_TIME,
        "s",
        "Time of training threads, by the position in the loop and by what the thread did.",
        _SCOPES,
        semconv.POSITION,
        semconv.ACTIVITY,
        _SOURCE,
    ),
    _gauge(semconv.PHASE_FRACTION, "1", "Share of the phase in the time of the window.", "always", _PHASE, _SOURCE),
    _sum(semconv.PHASE_TRANSITIONS, "{transition}", "Changes from one phase to another.", "always", _SOURCE),
    _sum(semconv.PHASE_ENERGY, "J", "The process's share of its GPU's energy in the phase.", _GPU, _PHASE, _SOURCE),
    _sum(
        semconv.GPU_STARVED_TIME,
        "s",
        "Time in which the GPU certainly had nothing to do, by what the training thread did meanwhile.",
        _LAUNCHES,
        semconv.POSITION,
        semconv.ACTIVITY,
        _SOURCE,
    ),
    _sum(semconv.GPU_BUSY_TIME, "s", "Time in which the GPU certainly worked for the process.", _LAUNCHES, _SOURCE),
    _sum(
        semconv.GPU_UNDETERMINED_TIME, "s", "Time in which it is not known whether the GPU worked.", _LAUNCHES, _SOURCE
    ),
    _sum(semconv.PHASE_LOSSY_TIME, "s", "The part of it in steps in which events were lost.", _SCOPES, *_DETAILS),
    _sum(semconv.PHASE_DOUBTFUL, "s", "Time of steps closed before a loss of events was known.", _SCOPES, _SOURCE),
    _sum(semconv.COLLECTIVE_OVERLAP, "s", "Time of collectives in flight beside other work.", _SCOPES, _SOURCE),
    DeclaredMetric(
        semconv.STEP_DURATION,
        "s",
        "histogram",
        "Duration of steps.",
        (_STEP[0], semconv.STEP_LOSSY, _SOURCE),
        _SCOPES,
    ),
    _gauge(semconv.STEP_RATE, "{step}/s", "Training steps and accumulations per second.", _SCOPES, _SOURCE),
    _gauge(semconv.STEP_JITTER, "1", "Standard deviation of step durations, by their mean.", _SCOPES, _SOURCE),
    _sum(semconv.STEPS, "{step}", "Steps, by what they do and where they end.", _SCOPES, *_STEP),
    _sum(
        semconv.STEP_EVENTS,
        "{event}",
        "What happens in steps: batches, passes, updates, and collectives by operation, size and position.",
        _SCOPES,
        semconv.STEP_EVENT,
        semconv.POSITION,
        semconv.NCCL_OPERATION,
        semconv.COLLECTIVE_SIZE,
        _SOURCE,
    ),
    _sum(semconv.STEPS_LOSSY, "{step}", "Steps in which events were lost.", _SCOPES, semconv.STEP_KIND, _SOURCE),
    _sum(
        semconv.STEPS_SKIPPED,
        "{step}",
        "The part of the steps that were not read one by one: they count like those that were.",
        "for processes with PyTorch's scopes that take too many short steps",
        semconv.STEP_KIND,
        _SOURCE,
    ),
    _sum(semconv.EPOCHS, "{epoch}", "Times that the training loader reached the end of its data.", _SCOPES, _SOURCE),
    _gauge(
        semconv.CAUSE_GAIN,
        "s",
        "The time that a step would save without the cause. See docs/causes.md.",
        "while a process that trains alone, or a job, has causes worth at least 3 % of a step; at most 16",
        semconv.CAUSE,
        semconv.POSITION,
        semconv.ACTIVITY,
        semconv.RANK,
        _SOURCE,
    ),
    _gauge(semconv.VERDICT, "", "1 for the current verdict, 0 for the others.", "always", semconv.VERDICT, _SOURCE),
    _gauge(
        semconv.JOB_HUNG,
        "",
        "1 while the job hangs, else 0. The log record zernel.job.hung says which rank is guilty.",
        "for jobs of several ranks, and for processes that train alone",
        _SOURCE,
    ),
    _gauge(semconv.JOB_VERDICT, "", "1 for the job's current verdict, 0 for the others.", _JOB, semconv.JOB_VERDICT),
    _gauge(
        semconv.JOB_RANKS,
        "{rank}",
        "Ranks whose data is in the report, and missing ones.",
        _JOB,
        semconv.JOB_RANK_STATE,
    ),
    _gauge(
        semconv.JOB_RANK_LATENESS,
        "s",
        "Longest wait of any rank for collectives minus the rank's own, in a mean step.",
        _JOB,
        semconv.RANK,
    ),
    _gauge(semconv.JOB_COLLECTIVE_TRANSFER, "s", "Shortest wait of any rank for collectives, in a mean step.", _JOB),
    _gauge(semconv.JOB_STEP_DURATION, "s", "Time of the job from one training step to the next, on average.", _JOB),
    _sum(
        semconv.STEP_CRITICAL_PATH_TIME,
        "s",
        "Time of critical paths through the rank and its phase.",
        "for jobs whose ranks all report to this collector",
        semconv.RANK,
        _PHASE,
    ),
    _gauge(semconv.SCHEDULER_TASKS, "", "Processes: all, and those that use PyTorch, CUDA or NCCL.", _HOST, "type"),
    _sum(semconv.SCHEDULER_PHASE_TRANSITIONS, "", "Changes of phase of all processes.", _HOST),
    _gauge(semconv.SCHEDULER_PHASE_TASKS, "", "Processes in the phase.", _HOST, "phase"),
    _gauge(semconv.SCHEDULER_PHASE_TIME_PCT, "", "Share of the phase in the time of all, in per cent.", _HOST, "phase"),
)
