"""The files of the machine, under its root. In a container, the host's root is mounted elsewhere."""

from abc import ABC
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Generic, TypeVar

from otel_zernel_receivers.host.config import OneScraperConfig
from otel_zernel_receivers.host.reading import Limit, Reader

ConfigT = TypeVar("ConfigT", bound=OneScraperConfig)


class HostFiles:
    """Reads files under the root of a machine."""

    def __init__(self, root_path: str) -> None:
        """`root_path` is where the root of another machine is mounted; empty for the own root."""
        self.is_mounted = bool(root_path)
        self.root = Path(root_path or "/")
        self.proc = self.root / "proc"
        self.sys = self.root / "sys"

    @cached_property
    def host_name(self) -> str:
        """The name of the machine. Raises OSError if there is no /proc."""
        return self.text("sys/kernel/hostname").strip()

    def text(self, name: str) -> str:
        """The content of a file under /proc. Raises OSError."""
        return (self.proc / name).read_text("utf-8", "replace")

    def of_machine(self, name: str) -> str:
        """The content of `net/dev` or `mounts`, which depend on the namespaces of the process.

        Those of a mounted root are the ones of its first process. Its files are denied without the capability
        SYS_PTRACE; then the namespaces of the collector have to do.
        """
        if self.is_mounted:
            try:
                return self.text(f"1/{name}")
            except OSError:
                pass
        return self.text(name)

    def lines(self, name: str) -> Iterator[list[str]]:
        """The words of each line of a file under /proc."""
        return (line.split() for line in self.text(name).splitlines())

    def boot_time_ns(self) -> int:
        """The start of the machine in ns since 1970; 0 if the kernel does not say it."""
        lines = (words for words in self.lines("stat") if words[:1] == ["btime"])
        return next((int(words[1]) for words in lines), 0) * 1_000_000_000


class FileReader(Reader, ABC, Generic[ConfigT]):
    """Reads one scraper from files."""

    def __init__(self, config: ConfigT, files: HostFiles) -> None:
        super().__init__(config.enabled())
        self._config = config
        self._files = files
        self._limit = Limit()
