"""The collector's configuration, made in memory: ebpf and nvml or a recording, phases, and an exporter that keeps what
it gets."""

import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from otel_zernel.batch import Batch
from otel_zernel.component import Exporter
from otel_zernel.config.schema import Settings, read_settings
from otel_zernel.registry import ComponentClass, Registry
from otel_zernel_commands.why.beginning import ebpf_settings
from otel_zernel_libraries.recordings import has_results, replay_receiver
from otel_zernel_libraries.training import semconv
from otel_zernel_libraries.training.state import SeenProcess, TrainingState

_COLLECTOR = "why"
"""The type of the exporter. It exists in this process only."""
_PACES = (5.0, "500ms", "500ms"), (20.0, "1s", "1s"), (math.inf, "2s", "1s")
"""The interval and the lateness of a watch that is shorter than so many seconds: its first steps are known soon."""
_TRACED = 300
"""Steps of a process in an interval that the time line shows in detail. More are merged with their neighbours."""
_PHASES = {
    "lateness": "1s",
    "code": True,
    "traces": {"sample": 1, "slowest": 0, "max_steps": _TRACED, "merge_rest": True, "long_sync": "1h"},
}
_LONGEST_RECORDING = "24h"
"""Causes are those of so much of a recording, at most: the longest time that the command watches, too."""


def watched_state(
    read_command: Callable[[int], tuple[str, ...]] = lambda _: (),
    read_ancestors: Callable[[int], tuple[int, ...]] = lambda _: (),
) -> TrainingState:
    """A state that keeps all steps and forgets nothing: a watch is short. The functions read the command line and the
    ancestors of a pid. They are called once for each process."""

    def describe(process: SeenProcess) -> None:
        process.command, process.ancestors = read_command(process.pid), read_ancestors(process.pid)

    return TrainingState(keeps_all_steps=True, appeared=describe)


def collecting(state: TrainingState, arrived: Callable[[Batch], None] = lambda _: None) -> ComponentClass:
    """An exporter that adds each batch to `state`, and then calls `arrived` with it."""

    class _Collector(Exporter):
        async def export(self, batch: Batch) -> None:
            now = self.context.clock.monotonic()
            state.add(batch, now)
            state.settle(now)
            arrived(batch)
            for reason, count in state.take_dropped().items():
                self.context.drop(count, reason)

    return _Collector


def is_reading(batch: Batch) -> bool:
    """Whether it has a reading of the ebpf receiver: then the probes are on the libraries of running processes."""
    scopes = (scope for resource_metric in batch.metrics.resource_metrics for scope in resource_metric.scope_metrics)
    return any(metric.name == semconv.READING_SEQUENCE for scope in scopes for metric in scope.metrics)


def watch_settings(
    seconds: float, collector: ComponentClass, installed: Registry, *, starts_program: bool = False
) -> Settings:
    """The settings to watch for `seconds`: the causes are those of the whole time. `starts_program` as in
    `ebpf_settings`."""
    receivers = {
        "ebpf": ebpf_settings(starts_program=starts_program),
        "nvml": {"collection_interval": "1s", "initial_delay": "0s", "earlier_xids": "1h"},
    }
    interval, lateness = next(pace for limit, *pace in _PACES if seconds < limit)
    phases = {"interval": interval, "lateness": lateness, "window": f"{seconds + 60:g}s"}
    return _settings(receivers, {"phases": {**_PHASES, **phases}}, collector, installed)


def replay_settings(path: Path, collector: ComponentClass, installed: Registry) -> Settings:
    """The settings to replay a recording, as fast as it can be read."""
    phases = {"interval": "1s", "window": _LONGEST_RECORDING, "pace": 0}
    processors = {} if has_results(path) else {"phases": {**_PHASES, **phases}}
    return _settings(replay_receiver(path), processors, collector, installed)


def _settings(
    receivers: Mapping[str, Any], processors: Mapping[str, Any], collector: ComponentClass, installed: Registry
) -> Settings:
    pipeline = {"receivers": [*receivers], "processors": [*processors], "exporters": [_COLLECTOR]}
    tree = {
        "receivers": receivers,
        "processors": processors,
        "exporters": {_COLLECTOR: {}},
        "service": {"telemetry": {"metrics": {"level": "none"}}, "pipelines": {"training": pipeline}},
    }
    return read_settings([f"yaml:{json.dumps(tree)}"], [], {}, installed.including("exporters", _COLLECTOR, collector))
