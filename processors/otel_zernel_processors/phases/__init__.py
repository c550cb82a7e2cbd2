"""Training phases: where every second of a step went."""

from otel_zernel_processors.phases.processor import PhasesProcessor as PhasesProcessor
