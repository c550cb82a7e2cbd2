"""Begins what takes longest, before the command imports the rest of itself."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol, runtime_checkable

from otel_zernel.registry import ComponentClass, Registry

_MAX_OVERHEAD = 0.1
"""The ratio of a CPU that probes may take: a watch is short, and sampled operators would cost the answer."""
_SAMPLES = 49
"""A second: a watch lasts some seconds only."""


@runtime_checkable
class _Preparable(Protocol):
    """A receiver that gets ready before it runs, as that of `ebpf`."""

    def prepared(self, config: Any) -> AbstractContextManager[ComponentClass]:
        """A class that starts sooner with this configuration."""


@contextmanager
def begun(*, starts_program: bool) -> Iterator[Registry]:
    """The installed components. The receiver of the probes gets ready meanwhile."""
    installed = Registry.installed()
    ebpf = installed.load("receivers", "ebpf")
    if not isinstance(ebpf, _Preparable):
        yield installed
        return
    config = ebpf.Config.model_validate(ebpf_settings(starts_program=starts_program))
    with ebpf.prepared(config) as prepared:
        yield installed.including("receivers", "ebpf", prepared)


def ebpf_settings(*, starts_program: bool) -> dict[str, Any]:
    """The configuration of the receiver. `starts_program`: the libraries of a program must be found before its first
    step."""
    return {
        "interval": "500ms",
        "rescan_interval": "500ms" if starts_program else "2s",
        "sampler_frequency": _SAMPLES,
        "stacks": True,
        "max_overhead": _MAX_OVERHEAD,
    }
