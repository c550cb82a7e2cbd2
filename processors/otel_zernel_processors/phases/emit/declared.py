"""The metrics of the processor. Their descriptions are sent with them."""

from otel_zernel.component.declaration import DeclaredMetric, by_name

_PHASE = "zernel.phase"
_SOURCE = "zernel.phase.source"
_STEP = ("zernel.step.kind", "zernel.step.boundary", _SOURCE)
_SCOPES = "for processes with PyTorch's scopes"
_GPU = "for processes on a GPU whose metrics arrive"
_JOB = "for jobs of several ranks"
_HOST = "always"


def _sum(name: str, unit: str, description: str, when: str, *attributes: str) -> DeclaredMetric:
    return DeclaredMetric(name, unit, "sum", description, attributes, when)


def _gauge(name: str, unit: str, description: str, when: str, *attributes: str) -> DeclaredMetric:
    return DeclaredMetric(name, unit, "gauge", description, attributes, when)


_DETAILS = (_PHASE, "zernel.phase.detail", _SOURCE)

METRICS = by_name(
    _sum(
        "zernel.phase.time", "s", "Time in the phase, since the first data of the process.", "always", _PHASE, _SOURCE
    ),
    _sum("zernel.phase.detail.time", "s", "The same time by the evidence for the phase.", _SCOPES, *_DETAILS),
    _gauge("zernel.phase.fraction", "1", "Share of the phase in the time of the window.", "always", _PHASE, _SOURCE),
    _sum("zernel.phase.transitions", "{transition}", "Changes from one phase to another.", "always", _SOURCE),
    _sum("zernel.phase.energy", "J", "The process's share of its GPU's energy in the phase.", _GPU, _PHASE, _SOURCE),
    _sum("zernel.phase.gpu.idle", "s", "The process's share of its GPU's idle time.", _GPU, _PHASE, _SOURCE),
    _sum("zernel.phase.lossy.time", "s", "The part of it in steps in which events were lost.", _SCOPES, *_DETAILS),
    _sum("zernel.phase.doubtful", "s", "Time of steps closed before a loss of events was known.", _SCOPES, _SOURCE),
    _sum("zernel.collective.overlap", "s", "Time of collectives in flight beside other work.", _SCOPES, _SOURCE),
    DeclaredMetric(
        "zernel.step.duration",
        "s",
        "histogram",
        "Duration of steps.",
        (_STEP[0], "zernel.step.lossy", _SOURCE),
        _SCOPES,
    ),
    _gauge("zernel.step.rate", "{step}/s", "Training steps and accumulations per second.", _SCOPES, _SOURCE),
    _gauge("zernel.step.jitter", "1", "Standard deviation of step durations, by their mean.", _SCOPES, _SOURCE),
    _sum("zernel.steps", "{step}", "Steps, by what they do and where they end.", _SCOPES, *_STEP),
    _sum("zernel.steps.lossy", "{step}", "Steps in which events were lost.", _SCOPES, "zernel.step.kind", _SOURCE),
    _sum("zernel.epochs", "{epoch}", "Times that the training loader reached the end of its data.", _SCOPES, _SOURCE),
    _gauge("zernel.verdict", "", "1 for the current verdict, 0 for the others.", "always", "zernel.verdict", _SOURCE),
    _gauge("zernel.job.verdict", "", "1 for the job's current verdict, 0 for the others.", _JOB, "zernel.job.verdict"),
    _gauge(
        "zernel.job.ranks",
        "{rank}",
        "Ranks whose data is in the report, and missing ones.",
        _JOB,
        "zernel.job.rank.state",
    ),
    _gauge(
        "zernel.job.rank.lateness",
        "s",
        "Longest wait of any rank for collectives minus the rank's own, in a mean step.",
        _JOB,
        "zernel.rank",
    ),
    _gauge("zernel.job.collective.transfer", "s", "Shortest wait of any rank for collectives, in a mean step.", _JOB),
    _gauge("zernel.job.step.duration", "s", "Time of the job from one training step to the next, on average.", _JOB),
    _sum(
        "zernel.step.critical_path.time",
        "s",
        "Time of critical paths through the rank and its phase.",
        "for jobs whose ranks all report to this collector",
        "zernel.rank",
        _PHASE,
    ),
    _gauge("zernel.scheduler.tasks", "", "Processes: all, and those that use PyTorch, CUDA or NCCL.", _HOST, "type"),
    _sum("zernel.scheduler.phase.transitions", "", "Changes of phase of all processes.", _HOST),
    _gauge("zernel.scheduler.phase.tasks", "", "Processes in the phase.", _HOST, "phase"),
    _gauge(
        "zernel.scheduler.phase.time_pct", "", "Share of the phase in the time of all, in per cent.", _HOST, "phase"
    ),
)
