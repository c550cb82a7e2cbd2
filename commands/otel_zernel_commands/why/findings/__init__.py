"""Turns what was seen into findings: the jobs, where their time goes, and why they are slow. No I/O."""

from otel_zernel_commands.why.findings.diagnosis import answer_of as answer_of
from otel_zernel_commands.why.findings.groups import JobGroup as JobGroup
from otel_zernel_commands.why.findings.groups import groups_of as groups_of
from otel_zernel_commands.why.findings.programs import Program as Program
from otel_zernel_commands.why.findings.programs import programs_of as programs_of
from otel_zernel_commands.why.findings.report import DeviceTime as DeviceTime
from otel_zernel_commands.why.findings.report import Diagnosis as Diagnosis
from otel_zernel_commands.why.findings.report import GpuRow as GpuRow
from otel_zernel_commands.why.findings.report import JobFindings as JobFindings
from otel_zernel_commands.why.findings.report import JobStart as JobStart
from otel_zernel_commands.why.findings.report import PositionTime as PositionTime
from otel_zernel_commands.why.findings.report import RankRow as RankRow
from otel_zernel_commands.why.findings.report import StepSummary as StepSummary
from otel_zernel_commands.why.findings.report import ThreadRow as ThreadRow
from otel_zernel_commands.why.findings.report import TimeShare as TimeShare
from otel_zernel_commands.why.findings.report import WhyReport as WhyReport
from otel_zernel_commands.why.findings.reporting import Circumstances as Circumstances
from otel_zernel_commands.why.findings.reporting import report_on as report_on
