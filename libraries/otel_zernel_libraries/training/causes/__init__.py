"""What a training would gain without each of its causes, from the measured steps of all its ranks."""

from otel_zernel_libraries.training.causes.answer import answer_on
from otel_zernel_libraries.training.causes.cause import (
    Cause,
    CauseName,
    CodeTime,
    DeviceTime,
    Evidence,
    Hidden,
    JobAnswer,
    Unknown,
)
from otel_zernel_libraries.training.causes.facts import Facts, GpuFacts
from otel_zernel_libraries.training.causes.job import Job, RankInput, training_ends
from otel_zernel_libraries.training.causes.lead import label_of, lead_of, ranks_seen
from otel_zernel_libraries.training.causes.measured import MeasuredSteps, StepFlags
from otel_zernel_libraries.training.causes.verdicts import JOB_VERDICTS, VERDICTS, verdict_of, verdict_of_rank

__all__ = [
    "JOB_VERDICTS",
    "VERDICTS",
    "Cause",
    "CauseName",
    "CodeTime",
    "DeviceTime",
    "Evidence",
    "Facts",
    "GpuFacts",
    "Hidden",
    "Job",
    "JobAnswer",
    "MeasuredSteps",
    "RankInput",
    "StepFlags",
    "Unknown",
    "answer_on",
    "label_of",
    "lead_of",
    "ranks_seen",
    "training_ends",
    "verdict_of",
    "verdict_of_rank",
]
