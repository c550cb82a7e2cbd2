"""Finds out where the collector runs, as attributes of the semantic conventions."""

import os
import platform
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote

from otel_zernel.component import Logger

Attributes = dict[str, str | int]

# host.arch of the semantic conventions, by the machine's own name where that differs.
_ARCHITECTURES = {
    "x86_64": "amd64",
    "aarch64": "arm64",
    "i386": "x86",
    "i686": "x86",
    "armv7l": "arm32",
    "ppc64le": "ppc64",
}


@dataclass(frozen=True, slots=True)
class World:
    """What detection looks at."""

    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    uname: Callable[[], platform.uname_result] = platform.uname
    machine_id: Path = Path("/etc/machine-id")
    pid: Callable[[], int] = os.getpid
    executable: str = sys.executable


def detect_env(world: World, logger: Logger) -> Attributes:
    """`OTEL_RESOURCE_ATTRIBUTES` (`key=value,...`, percent-encoded) and `OTEL_SERVICE_NAME`."""
    found: Attributes = {}
    for pair in filter(str.strip, world.environ.get("OTEL_RESOURCE_ATTRIBUTES", "").split(",")):
        key, equals, value = pair.partition("=")
        if key.strip() and equals:
            found[unquote(key.strip())] = unquote(value.strip())
        else:
            logger.warning("OTEL_RESOURCE_ATTRIBUTES has a part that is no key=value, which is left out: %s", pair)
    if service := world.environ.get("OTEL_SERVICE_NAME"):
        found["service.name"] = service
    return found


def detect_host(world: World, logger: Logger) -> Attributes:
    """The machine's name, architecture and operating system, and its id where it has one that can be read."""
    uname = world.uname()
    found: Attributes = {
        "host.name": uname.node,
        "host.arch": _ARCHITECTURES.get(uname.machine.lower(), uname.machine.lower()),
        "os.type": uname.system.lower(),
    }
    try:
        found["host.id"] = world.machine_id.read_text().strip()
    except OSError:
        logger.debug("no host.id: %s cannot be read", world.machine_id)
    return {key: value for key, value in found.items() if value}


def detect_process(world: World, logger: Logger) -> Attributes:
    """The collector's own process."""
    return {
        "process.pid": world.pid(),
        "process.executable.name": Path(world.executable).name,
        "process.executable.path": world.executable,
        "process.runtime.name": sys.implementation.name,
        "process.runtime.version": platform.python_version(),
    }


DETECTORS: Mapping[str, Callable[[World, Logger], Attributes]] = {
    "env": detect_env,
    "host": detect_host,
    "process": detect_process,
}
