"""The sources of targets: fixed ones, files and DNS."""

import asyncio
import json
import socket
from abc import ABC, abstractmethod
from collections.abc import Sequence
from glob import iglob
from itertools import islice
from pathlib import Path
from typing import Any

import yaml

from otel_zernel.text import one_line, quoted
from otel_zernel_receivers.prometheus.config.scrape import (
    DnsDiscoveryConfig,
    FileDiscoveryConfig,
    ScrapeJobConfig,
    StaticTargets,
)
from otel_zernel_receivers.prometheus.pages.page import Labels

_LARGEST_FILE = 16 * 2**20
"""Bytes."""
_MOST_FILES = 1000
"""Files of one glob."""
_CHECK = 1.0
"""Seconds between looks at the files."""


class TargetSource(ABC):
    """Finds targets. A source that cannot be read keeps the targets of its last reading."""

    interval: float
    """Seconds between two calls of `targets`."""

    def __init__(self) -> None:
        self.problems: list[str] = []
        """Of the last reading: a sentence each."""

    @abstractmethod
    async def targets(self, now: float) -> Sequence[Labels]:
        """The labels of the targets, with `__address__`. `now` is the monotonic time in s."""


def sources_of(job: ScrapeJobConfig) -> list[TargetSource]:
    """The sources of a job."""
    return [
        *([StaticSource(job.static_configs)] if job.static_configs else []),
        *map(FileSource, job.file_sd_configs),
        *map(DnsSource, job.dns_sd_configs),
    ]


class StaticSource(TargetSource):
    """Targets in the configuration."""

    interval = 3600.0

    def __init__(self, groups: Sequence[StaticTargets]) -> None:
        super().__init__()
        self._targets = [{"__address__": target, **group.labels} for group in groups for target in group.targets]

    async def targets(self, now: float) -> Sequence[Labels]:
        return self._targets


class FileSource(TargetSource):
    """Targets in files, which are read when they change, and at an interval."""

    interval = _CHECK

    def __init__(self, config: FileDiscoveryConfig) -> None:
        super().__init__()
        self._config = config
        self._seen: tuple[tuple[str, int, int, int], ...] | None = None
        self._due = 0.0
        self._by_file: dict[str, list[Labels]] = {}

    async def targets(self, now: float) -> Sequence[Labels]:
        seen = await asyncio.to_thread(self._look)
        if seen != self._seen or now >= self._due:
            self._seen = seen
            self._due = now + self._config.refresh_interval
            await asyncio.to_thread(self._read, [name for name, *_ in seen])
        return [labels for targets_ in self._by_file.values() for labels in targets_]

    def _look(self) -> tuple[tuple[str, int, int, int], ...]:
        """The files, with what changes when their content does."""
        files = []
        for pattern in self._config.files:
            for name in islice(iglob(pattern), _MOST_FILES):  # noqa: PTH207  # absolute paths too
                try:
                    status = Path(name).stat()
                except OSError:
                    continue
                files.append((name, status.st_mtime_ns, status.st_size, status.st_ino))
        return tuple(sorted(files))

    def _read(self, names: Sequence[str]) -> None:
        self.problems = [] if names else [f"no file matches {', '.join(self._config.files)}; create it"]
        former, self._by_file = self._by_file, {}
        for name in names:
            try:
                self._by_file[name] = read_groups(name)
            except (OSError, ValueError, RecursionError) as error:
                reason = error.strerror if isinstance(error, OSError) else one_line(error)
                self.problems.append(f"cannot read the targets in {name}, the former ones stay: {reason}")
                self._by_file[name] = former.get(name, [])


def read_groups(name: str) -> list[Labels]:
    """The targets in a file. Raises `OSError`, and `ValueError` with the mistake."""
    with Path(name).open("rb") as file:
        content = file.read(_LARGEST_FILE + 1)
    if len(content) > _LARGEST_FILE:
        raise ValueError(f"the file is larger than {_LARGEST_FILE >> 20} MiB")
    groups = _parsed(name, content.decode())
    if not isinstance(groups, list):
        raise ValueError('not a list; write [{"targets": ["host:port"], "labels": {}}]')
    return [labels for group in groups for labels in _labels(group, name)]


def _parsed(name: str, text: str) -> Any:
    if name.endswith(".json"):
        return json.loads(text or "[]")
    try:
        return yaml.safe_load(text) or []
    except yaml.YAMLError as error:
        raise ValueError(one_line(error)) from error


def _labels(group: Any, name: str) -> list[Labels]:
    targets = group.get("targets") if isinstance(group, dict) else None
    labels = group.get("labels") or {} if isinstance(group, dict) else {}
    if not isinstance(targets, list) or not isinstance(labels, dict):
        raise ValueError(f"not a group of targets: {quoted(str(group))}; it needs targets, and may have labels")
    common = {str(label): str(value) for label, value in labels.items()} | {"__meta_filepath": name}
    return [{"__address__": str(target), **common} for target in targets]


class DnsSource(TargetSource):
    """The addresses of host names."""

    def __init__(self, config: DnsDiscoveryConfig) -> None:
        super().__init__()
        self.interval = config.refresh_interval
        self._config = config
        self._by_name: dict[str, list[Labels]] = {}

    async def targets(self, now: float) -> Sequence[Labels]:
        self.problems = []
        for name in self._config.names:
            try:
                self._by_name[name] = await self._resolve(name)
            except (OSError, UnicodeError) as error:
                reason = getattr(error, "strerror", None) or str(error)
                self.problems.append(f"cannot resolve {name}, its former targets stay: {reason}")
        return [labels for targets_ in self._by_name.values() for labels in targets_]

    async def _resolve(self, name: str) -> list[Labels]:
        family = socket.AF_INET if self._config.type == "A" else socket.AF_INET6
        getaddrinfo = await asyncio.get_running_loop().getaddrinfo(
            name, self._config.port, family=family, type=socket.SOCK_STREAM
        )
        hosts = sorted({str(address[0]) for *_, address in getaddrinfo})
        written = [f"[{host}]" if ":" in host else host for host in hosts]
        return [{"__address__": f"{host}:{self._config.port}", "__meta_dns_name": name} for host in written]
