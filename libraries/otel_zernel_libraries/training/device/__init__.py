"""What a GPU did while a training thread ran: busy, starved, or not known. From the thread's calls alone."""

from otel_zernel_libraries.training.device.replay import Replayed as Replayed
from otel_zernel_libraries.training.device.replay import meet as meet
from otel_zernel_libraries.training.device.replay import replay as replay
from otel_zernel_libraries.training.device.segments import Launches as Launches
from otel_zernel_libraries.training.device.segments import Segment as Segment
from otel_zernel_libraries.training.device.segments import Stream as Stream
from otel_zernel_libraries.training.device.use import Bounds as Bounds
from otel_zernel_libraries.training.device.use import DeviceUse as DeviceUse
from otel_zernel_libraries.training.device.use import device_use as device_use
from otel_zernel_libraries.training.device.works import SHARE_ERROR as SHARE_ERROR
