"""A fake /proc made of files. Each of its processes has its own root folder."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path


class FakeProc:
    """Builds the folder `root` for a scanner. `add` adds processes; `self` is process 1."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "proc"
        self._folder = folder
        self.add(1)
        (self.root / "self").symlink_to("1")

    def add(
        self,
        pid: int,
        libraries: Sequence[str] = (),
        *,
        name: str = "python3",
        executable: str = "/usr/bin/python3.11",
        command_line: bytes = b"python3\0train.py\0",
        cgroup: str = "/",
        environment: Mapping[str, str] | None = None,
        start_time: int = 100,
        pids: Sequence[int] | None = None,
    ) -> Path:
        """Adds a process that has mapped files at these paths, and creates the files in its root folder.

        Returns that folder.
        """
        process, container = self.root / str(pid), self._folder / f"root-{pid}"
        (process / "map_files").mkdir(parents=True)
        container.mkdir()
        (process / "root").symlink_to(container)
        (process / "exe").symlink_to(executable)
        (process / "comm").write_bytes(os.fsencode(name) + b"\n")
        (process / "cmdline").write_bytes(command_line)
        (process / "cgroup").write_text(f"0::{cgroup}\n")
        (process / "status").write_text("Name:\tx\nNSpid:\t" + "\t".join(map(str, pids or [pid])) + "\n")
        (process / "stat").write_text(f"{pid} (a) b c) S {' '.join(map(str, range(4, 22)))} {start_time} 23\n")
        variables = (environment or {}).items()
        (process / "environ").write_bytes(b"".join(f"{key}={value}\0".encode() for key, value in variables))
        (process / "maps").write_text("".join(map(_lines, self._created(container, libraries), libraries)))
        return container

    def delete(self, pid: int, path: str, keep: Path | None = None) -> None:
        """Marks a mapped file as deleted, and puts its content (`keep`) into map_files, like a real /proc."""
        maps = self.root / str(pid) / "maps"
        maps.write_text(maps.read_text().replace(path + "\n", path + " (deleted)\n"))
        if keep:
            (self.root / str(pid) / "map_files/7000-8000").symlink_to(keep)

    def _created(self, container: Path, libraries: Sequence[str]) -> list[Path]:
        paths = [container / library.lstrip("/") for library in libraries]
        for path in paths:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{path.name} of {container.name}")
        return paths


def _lines(file: Path, path: str) -> str:
    inode = file.stat().st_ino
    return (
        f"6000-7000 r--p 00000000 fd:00 {inode} {path}\n"
        f"7000-8000 r-xp 00001000 fd:00 {inode}    {path}\n"
        f"8000-9000 rw-p 00000000 00:00 0 [heap]\n"
    )
