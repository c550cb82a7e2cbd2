"""The collector's configurations, made in memory: a source, phases, the live exporter and its API."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from otel_zernel.config.schema import Settings, read_settings
from otel_zernel.registry import Registry
from otel_zernel_libraries.job_choice import JobChoice
from otel_zernel_libraries.recordings import replay_receiver
from otel_zernel_libraries.training.chosen_jobs import CHOSEN, choosing

_MOST_STEPS = 1000
"""Steps of a process in an interval that have traces. More are merged with their neighbours."""
_INTERVAL = 0.5
"""s between two updates of the page."""
_ROWS = 600
"""Of steps of a process in the time line."""


def live_settings(
    port: int, installed: Registry, choice: JobChoice, *, interval: float = _INTERVAL, html: Path | None = None
) -> Settings:
    """The settings to watch the chosen jobs of this machine. `interval`: s between two updates of the page. `html`: a
    file for the page with the last state."""
    receivers = {
        "ebpf": {"interval": "500ms", "rescan_interval": "2s", "stacks": True},
        "nvml": {"collection_interval": "1s", "initial_delay": "0s"},
    }
    installed = installed.including("processors", CHOSEN, choosing(choice))
    live = {"push_interval": f"{interval}s", **_saved(html)}
    return _settings(receivers, {}, live, port, installed, before=() if choice.is_all else (CHOSEN,))


def replay_settings(
    path: Path,
    port: int,
    installed: Registry,
    *,
    interval: float = _INTERVAL,
    speed: float,
    loop: bool,
    html: Path | None = None,
) -> Settings:
    """The settings to replay a recording, whose durations and rates stay those of the job at any speed."""
    receivers = replay_receiver(path, speed)
    receivers["otlp_json_file"]["loop"] = loop
    live = {"push_interval": f"{interval}s", "replay": True, **_saved(html)}
    return _settings(receivers, {"pace": speed}, live, port, installed)


def _saved(html: Path | None) -> Mapping[str, Any]:
    return {"html": str(html.absolute()).replace("$", "$$")} if html else {}


def _settings(
    receivers: Mapping[str, Any],
    phases: Mapping[str, Any],
    live: Mapping[str, Any],
    port: int,
    installed: Registry,
    before: tuple[str, ...] = (),
) -> Settings:
    """`before` are processors before `phases`."""
    tree = {
        "receivers": receivers,
        "processors": {
            **{name: {} for name in before},
            "phases": {
                "interval": "1s",
                "window": "30s",
                "traces": {"sample": 1, "slowest": 0, "max_steps": _MOST_STEPS, "merge_rest": True},
                **phases,
            },
        },
        "exporters": {"live": {"history": _ROWS, **live}},
        "extensions": {"api": {"endpoint": f"localhost:{port}"}},
        "service": {
            "extensions": ["api"],
            "telemetry": {"metrics": {"level": "none"}, "logs": {"level": "warn"}},
            "pipelines": {
                "training": {"receivers": [*receivers], "processors": [*before, "phases"], "exporters": ["live"]},
            },
        },
    }
    return read_settings([f"yaml:{json.dumps(tree)}"], [], {}, installed)
