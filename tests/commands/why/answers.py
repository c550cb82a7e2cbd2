"""Answers on jobs, and the reports on recorded runs that have them."""

from otel_zernel_commands.why.findings import WhyReport, report_on
from otel_zernel_libraries.job_choice import JobChoice
from otel_zernel_libraries.training.causes import Cause, CauseName, Evidence, Hidden, JobAnswer
from otel_zernel_libraries.training.ledger import Activity, Position
from tests.commands.why.recorded_runs import circumstances, first_process, seen

TOKENIZES = Cause(
    cause=CauseName.SEGMENT,
    phase="data_loading",
    position=Position.LOAD,
    activity=Activity.PYTHON,
    gain=0.0124,
    gain_low=0.0119,
    gain_high=0.0129,
    share=0.0124 / 0.0410,
    evidence=(Evidence("The training thread runs Python for 12.4 ms of each 41.0 ms (30 %).", 0.0124, "s"),),
    advice=("Load batches in worker processes: `DataLoader(..., num_workers=2)`.", "Tokenize once, before training."),
)
LATE = Cause(
    cause=CauseName.STRAGGLER,
    phase="gpu_compute",
    position=Position.FORWARD,
    activity=Activity.CPU_WAIT,
    rank=1,
    gain=0.0034,
    gain_low=0.0021,
    gain_high=0.0047,
    share=0.0034 / 0.0410,
    evidence=(Evidence("Rank 1 waits for a CPU 4.1 ms longer than the median rank.", 0.0041, "s"),),
    advice=("Stop the other program on the CPUs of rank 1.",),
)
SLOW = JobAnswer(
    step=0.0410,
    steps=50,
    ranks_seen=2,
    ranks_expected=4,
    causes=(TOKENIZES, LATE),
    hidden=(Hidden(position=Position.AFTER_STEP, activity=Activity.SOCKET, rank=0, time=0.0021),),
    best=0.0252,
    looked_at=(CauseName.SEGMENT, CauseName.STRAGGLER),
)
HEALTHY = JobAnswer(step=0.0410, steps=50, best=0.0402, looked_at=(CauseName.SEGMENT, CauseName.CHECKPOINT))


def slow_report() -> WhyReport:
    """A job of two ranks with two causes, for the layout: its table is that of another run."""
    state = seen("gloo, DDP, a late rank", is_job=True)
    [job] = state.jobs
    job.answer = SLOW
    return report_on(state, JobChoice(), circumstances())


def healthy_report() -> WhyReport:
    """A process without a cause, for the layout."""
    state = seen("stalls of 150 ms")
    first_process(state).answer = HEALTHY
    return report_on(state, JobChoice(), circumstances())
