"""What a GPU did while a training thread ran: busy, starved, or not known. From the thread's calls alone."""

from otel_zernel_libraries.training.device.replay import Replayed, meet, replay
from otel_zernel_libraries.training.device.segments import Launches, Segment, Stream
from otel_zernel_libraries.training.device.use import Bounds, DeviceUse, device_use
from otel_zernel_libraries.training.device.works import SHARE_ERROR

__all__ = [
    "SHARE_ERROR",
    "Bounds",
    "DeviceUse",
    "Launches",
    "Replayed",
    "Segment",
    "Stream",
    "device_use",
    "meet",
    "replay",
]
