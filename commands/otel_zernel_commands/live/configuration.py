"""The collector's configurations, made in memory: a source, phases, the live exporter and its API."""

import glob
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from otel_zernel.config.schema import Settings, read_settings
from otel_zernel.registry import Registry

_BRIDGE_MS = 0.5
"""The default of `phases::bridge`."""
_MOST_STEPS = 1000
"""Traced steps of a process in an interval: more than the time line keeps."""


def live_settings(port: int, installed: Registry) -> Settings:
    """The settings to watch this machine."""
    receivers = {
        "ebpf": {"interval": "500ms", "rescan_interval": "2s"},
        "nvml": {"collection_interval": "1s", "initial_delay": "0s"},
    }
    return _settings(receivers, {}, port, installed)


def replay_settings(path: Path, port: int, installed: Registry, *, speed: float, loop: bool) -> Settings:
    """The settings to replay a recording. All its times shrink by `speed`, and so does the gap that `phases` bridges:
    otherwise separate loads would become one."""
    include = glob.escape(str(path.absolute())).replace("$", "$$")
    receivers = {
        "otlp_json_file": {"include": [include], "speed": speed, "timestamps": "now", "loop": loop},
    }
    return _settings(receivers, {"bridge": f"{_BRIDGE_MS / speed:.9f}ms"}, port, installed)


def _settings(receivers: Mapping[str, Any], phases: Mapping[str, Any], port: int, installed: Registry) -> Settings:
    tree = {
        "receivers": receivers,
        "processors": {
            "phases": {
                "interval": "1s",
                "window": "30s",
                "traces": {"sample": 1, "slowest": 0, "max_steps": _MOST_STEPS},
                **phases,
            }
        },
        "exporters": {"live": {"push_interval": "500ms"}},
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
