"""What a training would gain without each of its causes, from the measured steps of all its ranks."""

from otel_zernel_libraries.training.causes.cause import Cause, CauseName, DeviceTime, Evidence, Hidden, JobAnswer

__all__ = ["Cause", "CauseName", "DeviceTime", "Evidence", "Hidden", "JobAnswer"]
