"""The collector's configurations, made in memory: a source, phases, the live exporter and its API."""

import glob
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from otel_zernel.config.schema import Settings, read_settings
from otel_zernel.registry import Registry

_MOST_STEPS = 1000
"""Steps of a process in an interval that have traces. More are merged with their neighbours."""
_ROWS = 600
"""Of steps of a process in the time line."""


def live_settings(port: int, installed: Registry) -> Settings:
    """The settings to watch this machine."""
    receivers = {
        "ebpf": {"interval": "500ms", "rescan_interval": "2s"},
        "nvml": {"collection_interval": "1s", "initial_delay": "0s"},
    }
    return _settings(receivers, {}, {}, port, installed)


def replay_settings(path: Path, port: int, installed: Registry, *, speed: float, loop: bool) -> Settings:
    """The settings to replay a recording, whose durations and rates stay those of the job at any speed."""
    include = glob.escape(str(path.absolute())).replace("$", "$$")
    receivers = {
        "otlp_json_file": {"include": [include], "speed": speed, "timestamps": "moved", "loop": loop},
    }
    return _settings(receivers, {"pace": speed}, {"replay": True}, port, installed)


def _settings(
    receivers: Mapping[str, Any], phases: Mapping[str, Any], live: Mapping[str, Any], port: int, installed: Registry
) -> Settings:
    tree = {
        "receivers": receivers,
        "processors": {
            "phases": {
                "interval": "1s",
                "window": "30s",
                "traces": {"sample": 1, "slowest": 0, "max_steps": _MOST_STEPS, "merge_rest": True},
                **phases,
            }
        },
        "exporters": {"live": {"push_interval": "500ms", "history": _ROWS, **live}},
        "extensions": {"api": {"endpoint": f"localhost:{port}"}},
        "service": {
            "extensions": ["api"],
            "telemetry": {"metrics": {"level": "none"}, "logs": {"level": "warn"}},
            "pipelines": {
                "training": {"receivers": [*receivers], "processors": ["phases"], "exporters": ["live"]},
            },
        },
    }
    return read_settings([f"yaml:{json.dumps(tree)}"], [], {}, installed)
