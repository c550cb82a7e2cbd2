"""What a training would gain without each of its causes, from the measured steps of all its ranks."""

from otel_zernel_libraries.training.causes.answer import answer_on as answer_on
from otel_zernel_libraries.training.causes.cause import Cause as Cause
from otel_zernel_libraries.training.causes.cause import CauseName as CauseName
from otel_zernel_libraries.training.causes.cause import CodeTime as CodeTime
from otel_zernel_libraries.training.causes.cause import DeviceTime as DeviceTime
from otel_zernel_libraries.training.causes.cause import Evidence as Evidence
from otel_zernel_libraries.training.causes.cause import Hidden as Hidden
from otel_zernel_libraries.training.causes.cause import JobAnswer as JobAnswer
from otel_zernel_libraries.training.causes.cause import Unknown as Unknown
from otel_zernel_libraries.training.causes.facts import Facts as Facts
from otel_zernel_libraries.training.causes.facts import GpuFacts as GpuFacts
from otel_zernel_libraries.training.causes.job import Job as Job
from otel_zernel_libraries.training.causes.job import RankInput as RankInput
from otel_zernel_libraries.training.causes.job import training_ends as training_ends
from otel_zernel_libraries.training.causes.measured import MeasuredSteps as MeasuredSteps
from otel_zernel_libraries.training.causes.measured import StepFlags as StepFlags
from otel_zernel_libraries.training.causes.verdicts import JOB_VERDICTS as JOB_VERDICTS
from otel_zernel_libraries.training.causes.verdicts import VERDICTS as VERDICTS
from otel_zernel_libraries.training.causes.verdicts import label_of as label_of
from otel_zernel_libraries.training.causes.verdicts import lead_of as lead_of
from otel_zernel_libraries.training.causes.verdicts import ranks_seen as ranks_seen
from otel_zernel_libraries.training.causes.verdicts import verdict_of as verdict_of
from otel_zernel_libraries.training.causes.verdicts import verdict_of_rank as verdict_of_rank
