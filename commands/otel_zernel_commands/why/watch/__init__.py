"""Watches this machine with the real components, in this process and without a file of configuration."""

from otel_zernel_commands.why.watch.configuration import (
    collecting,
    is_reading,
    replay_settings,
    watch_settings,
    watched_state,
)
from otel_zernel_commands.why.watch.host_processes import (
    command_of,
    count_processes,
    family_of,
    is_running,
    programs,
    runs_mps,
    shows_steps,
    uses_rocm,
)
from otel_zernel_commands.why.watch.nccl_ras import nccl_notes
from otel_zernel_commands.why.watch.py_spy import py_spy_code, py_spy_note
from otel_zernel_commands.why.watch.slices import MOST_SLICES, Slice, Slices
from otel_zernel_commands.why.watch.step_blocks import StepBlock, StepBlocks
from otel_zernel_commands.why.watch.thread_activities import SampledProgram, SampledThread, ThreadSampler, sampling
from otel_zernel_commands.why.watch.watching import WatchFollower, Watching, replay, watch

__all__ = [
    "MOST_SLICES",
    "SampledProgram",
    "SampledThread",
    "Slice",
    "Slices",
    "StepBlock",
    "StepBlocks",
    "ThreadSampler",
    "WatchFollower",
    "Watching",
    "collecting",
    "command_of",
    "count_processes",
    "family_of",
    "is_reading",
    "is_running",
    "nccl_notes",
    "programs",
    "py_spy_code",
    "py_spy_note",
    "replay",
    "replay_settings",
    "runs_mps",
    "sampling",
    "shows_steps",
    "uses_rocm",
    "watch",
    "watch_settings",
    "watched_state",
]
