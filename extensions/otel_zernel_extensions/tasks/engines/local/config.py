"""The configuration of the local engine."""

from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field

from otel_zernel.types import Duration, Section


def _gpu(id_: str) -> str:
    if not id_ or "," in id_ or not id_.isprintable():
        raise ValueError(f"{id_!r} is not the id of a GPU; write an index or a UUID, as in CUDA_VISIBLE_DEVICES")
    return id_


def _unique(ids: tuple[str, ...]) -> tuple[str, ...]:
    if len({*ids}) != len(ids):
        raise ValueError("a GPU is listed twice")
    return ids


class LocalConfig(Section):
    """How tasks run on this machine."""

    gpus: Annotated[tuple[Annotated[str, AfterValidator(_gpu)], ...], AfterValidator(_unique)] = ()
    """The GPUs that tasks may ask for. The engine gives each to one task at a time."""
    grace: Duration = 10.0
    """Seconds between SIGTERM and SIGKILL, for a task that is cancelled or takes too long."""
    max_log_size: Annotated[int, Field(ge=1 << 16)] = 64 << 20
    """Bytes of output that are kept of each task. Beyond, the older half is deleted."""
    pass_environment: tuple[str, ...] = ("PATH", "HOME", "USER", "LANG", "TZ", "LD_LIBRARY_PATH")
    """Variables of the collector that tasks inherit."""
    cgroup: Path | None = None
    """A control group (v2) that the collector may write, with the controllers cpu and memory."""
