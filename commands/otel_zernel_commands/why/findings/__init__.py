"""Turns what was seen into findings: the jobs, where their time goes, and why they are slow. No I/O."""

from otel_zernel_commands.why.findings.diagnosis import answer_of
from otel_zernel_commands.why.findings.groups import JobGroup, groups_of
from otel_zernel_commands.why.findings.programs import Program, programs_of
from otel_zernel_commands.why.findings.report import (
    DeviceTime,
    Diagnosis,
    GpuRow,
    JobFindings,
    JobStart,
    PositionTime,
    RankRow,
    StepSummary,
    ThreadRow,
    TimeShare,
    WhyReport,
)
from otel_zernel_commands.why.findings.reporting import Circumstances, report_on

__all__ = [
    "Circumstances",
    "DeviceTime",
    "Diagnosis",
    "GpuRow",
    "JobFindings",
    "JobGroup",
    "JobStart",
    "PositionTime",
    "Program",
    "RankRow",
    "StepSummary",
    "ThreadRow",
    "TimeShare",
    "WhyReport",
    "answer_of",
    "groups_of",
    "programs_of",
    "report_on",
]
