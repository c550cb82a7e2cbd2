"""Runs tasks as batch jobs of Slurm."""

from otel_zernel_extensions.tasks.engines.slurm.config import SlurmConfig as SlurmConfig
from otel_zernel_extensions.tasks.engines.slurm.engine import SlurmEngine as SlurmEngine
