"""The reports on recorded runs that have made answers."""

from otel_zernel_commands.why.findings import WhyReport, report_on
from otel_zernel_libraries.job_choice import JobChoice
from otel_zernel_libraries.training.causes import JobAnswer
from tests.commands.why.recorded_runs import circumstances, first_process, seen
from tests.libraries.training.causes.made_answers import HEALTHY, SLOW


def slow_report(answer: JobAnswer = SLOW) -> WhyReport:
    """A job of two ranks with two causes, for the layout: its table is that of another run."""
    state = seen("gloo, DDP, a late rank", is_job=True)
    [job] = state.jobs
    job.answer = answer
    return report_on(state, JobChoice(), circumstances())


def healthy_report() -> WhyReport:
    """A process without a cause, for the layout."""
    state = seen("stalls of 150 ms")
    first_process(state).answer = HEALTHY
    return report_on(state, JobChoice(), circumstances())
