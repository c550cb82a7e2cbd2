"""Detects where the collector runs, as attributes of the semantic conventions."""

import os
import platform
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote

from otel_zernel.component import Logger

Attributes = dict[str, str | int]

# host.arch of the semantic conventions, by the kernel's machine name. Other names are the same in both.
_ARCHITECTURES = {
    "x86_64": "amd64",
    "aarch64": "arm64",
    "i386": "x86",
    "i686": "x86",
    "armv7l": "arm32",
    "ppc64le": "ppc64",
}


@dataclass(frozen=True, slots=True)
class DetectionSources:
    """The environment of the collector that the detectors read."""

    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    uname: Callable[[], platform.uname_result] = platform.uname
    machine_id: Path = Path("/etc/machine-id")
    pid: Callable[[], int] = os.getpid
    executable: str = sys.executable
    os_release: Path = Path("/etc/os-release")


def detect_env(sources: DetectionSources, logger: Logger) -> Attributes:
    """`OTEL_RESOURCE_ATTRIBUTES` (`key=value,...`, percent-encoded) and `OTEL_SERVICE_NAME`."""
    found: Attributes = {}
    for pair in filter(str.strip, sources.environ.get("OTEL_RESOURCE_ATTRIBUTES", "").split(",")):
        key, equals, value = pair.partition("=")
        if key.strip() and equals:
            found[unquote(key.strip())] = unquote(value.strip())
        else:
            logger.warning("Ignoring a part of OTEL_RESOURCE_ATTRIBUTES that is not key=value: %s", pair)
    if service := sources.environ.get("OTEL_SERVICE_NAME"):
        found["service.name"] = service
    return found


def detect_host(sources: DetectionSources, logger: Logger) -> Attributes:
    """The name, architecture and operating system of the machine, and its id if that is readable."""
    uname = sources.uname()
    found: Attributes = {
        "host.name": uname.node,
        "host.arch": _ARCHITECTURES.get(uname.machine.lower(), uname.machine.lower()),
        "os.type": uname.system.lower(),
    }
    try:
        found["host.id"] = sources.machine_id.read_text().strip()
    except OSError:
        logger.debug("No host.id: cannot read %s", sources.machine_id)
    return {key: value for key, value in found.items() if value}


def detect_system(sources: DetectionSources, logger: Logger) -> Attributes:
    """The machine, with the attributes of `host` and a description of its operating system."""
    uname, release = sources.uname(), _os_release(sources.os_release)
    found: Attributes = {
        **detect_host(sources, logger),
        "os.name": release.get("NAME", ""),
        "os.version": release.get("VERSION_ID", ""),
        "os.description": f"{release.get('PRETTY_NAME', uname.system)} ({uname.system} {uname.node} {uname.release} "
        f"{uname.version} {uname.machine})",
    }
    return {key: value for key, value in found.items() if value}


def _os_release(path: Path) -> dict[str, str]:
    """The lines `NAME="value"` of os-release(5)."""
    try:
        lines = path.read_text("utf-8", "replace").splitlines()
    except OSError:
        return {}
    return {name: value.strip("\"'") for name, _, value in (line.partition("=") for line in lines)}


def detect_process(sources: DetectionSources, logger: Logger) -> Attributes:
    """The collector's own process."""
    return {
        "process.pid": sources.pid(),
        "process.executable.name": Path(sources.executable).name,
        "process.executable.path": sources.executable,
        "process.runtime.name": sys.implementation.name,
        "process.runtime.version": platform.python_version(),
    }


DETECTORS: Mapping[str, Callable[[DetectionSources, Logger], Attributes]] = {
    "env": detect_env,
    "system": detect_system,
    "host": detect_host,
    "process": detect_process,
}
