"""The training processes and GPUs of this machine, without any configuration."""

import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from otel_zernel.component import Finding
from otel_zernel.errors import CannotStart
from otel_zernel.registry import Registry
from otel_zernel_commands.watch.sources.in_process import InProcessSource, live_tree

_NEEDED = ("attaching", "kernel", "libbpf", "BTF")
"""The findings of ebpf without which no process can be watched."""


class ThisMachineSource(InProcessSource):
    """Runs `ebpf`, `nvml`, `phases` and `live` as examples/live.yaml does."""

    def __init__(self, interval: float) -> None:
        """`interval`: seconds between two updates of the screen."""
        super().__init__("this machine", _tree(interval), ends=False)
        self._interval = interval

    async def run(self, *, once: bool = False) -> None:
        installed = Registry.installed()
        require_probes(installed.load("receivers", "ebpf").examine(), os.geteuid())
        missing = [one.text for one in installed.load("receivers", "nvml").examine() if one.ok is False]
        if missing:
            self._tree = _tree(self._interval, with_gpus=False)
            self.notes = tuple(f"No data of GPUs: {text}" for text in missing)
        await super().run(once=once)


def require_probes(findings: Iterable[Finding], user: int) -> None:
    """Raises `CannotStart` with one sentence if processes cannot be watched. `user` is the effective user id."""
    missing = next((one for one in findings if one.ok is False and one.topic in _NEEDED), None)
    if missing is None:
        return
    if user != 0:
        program = Path(sys.argv[0]).absolute()
        raise CannotStart(
            f"watching this machine's processes needs root: run `sudo {program} watch`, "
            "or name the address of a collector, such as http://localhost:9095"
        )
    raise CannotStart(f"the processes of this machine cannot be watched: {missing.text}")


def _tree(interval: float, *, with_gpus: bool = True) -> dict[str, Any]:
    receivers = {"ebpf": {"interval": f"{max(min(interval, 0.5), 0.25):g}s", "rescan_interval": "2s"}}
    if with_gpus:
        receivers["nvml"] = {"collection_interval": "1s", "initial_delay": "0s"}
    phases = {
        "interval": "1s",
        "window": "30s",
        "traces": {"sample": 1, "slowest": 0, "max_steps": 200, "merge_rest": True, "long_sync": "1h"},
    }
    return live_tree(receivers, {"phases": phases})
