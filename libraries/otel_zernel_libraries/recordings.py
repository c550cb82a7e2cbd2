"""Recordings of the file exporter that a command replays."""

import glob
import os
from pathlib import Path
from typing import Any

from otel_zernel.errors import CannotStart
from otel_zernel.registry import Registry

_PHASES = b"otel_zernel_processors.phases"
"""The scope of the results of `phases`."""
_LOOKED_AT = 4 << 20
"""Bytes of a recording in which they are looked for."""


def replay_receiver(path: Path, speed: float = 0.0) -> dict[str, Any]:
    """The configuration of the receiver that replays a recording. At a pace, its data arrives as if it happened now.

    `speed`: 1 is the recorded pace; 0 is as fast as possible.
    """
    include = glob.escape(str(path.absolute())).replace("$", "$$")
    pace = {"speed": speed, "timestamps": "moved"} if speed else {}
    return {"otlp_json_file": {"include": [include], **pace}}


def damage_of(path: Path) -> str:
    """Why a file is no recording; empty if it is one."""
    receiver: Any = Registry.installed().load("receivers", "otlp_json_file")
    damage: str = receiver.damage_of(str(path))
    return damage


def require_recording(path: Path) -> None:
    """Raises `CannotStart` if the file is no recording that can be read."""
    if not path.is_file():
        raise CannotStart(f"cannot replay {path}: it is not a file; name a recording of the file exporter")
    if not os.access(path, os.R_OK):
        raise CannotStart(f"cannot replay {path}: permission denied")
    if damage := damage_of(path):
        raise CannotStart(f"cannot replay {path}: it is no recording of the file exporter: {damage}")


def has_results(path: Path) -> bool:
    """Whether it already has the results of `phases`, and needs no other processor."""
    with path.open("rb") as file:
        return _PHASES in file.read(_LOOKED_AT)
