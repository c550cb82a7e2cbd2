"""Collectors of this version and of the last release, each as a process of its own."""

import asyncio
import io
import os
import subprocess
import sys
import tarfile
import tomllib
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from docs.catalogue import ROOT
from otel_zernel.testing import until

LAST_RELEASE: Final = "19fa23aa2fa066560395e853cf264a72e8c6a0b9"
"""The commit of the last release. No version is tagged yet: this is the one before `libraries/` was made."""
_ROOTS: Final = ("", "libraries", "receivers", "processors", "exporters", "extensions", "commands")
"""The folders with packages, relative to the checkout."""


@dataclass(frozen=True)
class Release:
    """A version of the collector."""

    name: str
    sources: Path
    """A checkout, in which it is installed or which PYTHONPATH names."""

    @property
    def environ(self) -> dict[str, str]:
        """The variables with which Python imports this version."""
        roots = [self.sources / root for root in _ROOTS]
        return {**os.environ, "PYTHONPATH": os.pathsep.join(str(root) for root in roots if root.exists())}

    @asynccontextmanager
    async def running(self, folder: Path, name: str, settings: Mapping[str, Any], *options: str) -> AsyncIterator[None]:
        """A collector that is ready. Without an error, it must end by itself with `--exit-when-done`, or by SIGTERM."""
        path, log = folder / f"{name}.yaml", folder / f"{name}.log"
        path.write_text(yaml.safe_dump(dict(settings)))
        command = (sys.executable, "-m", "otel_zernel", "run", "--config", str(path), *options)
        with log.open("w") as output:
            process = await asyncio.create_subprocess_exec(*command, stderr=output, env=self.environ, cwd=folder)
        try:
            await until(lambda: process.returncode is not None or "Everything is ready" in log.read_text())
            yield
            if not options:
                process.terminate()
            async with asyncio.timeout(40):
                status = await process.wait()
            assert status == 0, log.read_text()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()

    async def run(self, folder: Path, name: str, settings: Mapping[str, Any]) -> None:
        """Runs a collector until its receivers have finished and everything is delivered."""
        async with self.running(folder, name, settings, "--exit-when-done"):
            pass


THIS: Final = Release("this", ROOT)


def last_release(folder: Path) -> Release:
    """The last release, from the history of this repository. Skips the test if the history does not have it."""
    command = ("git", "-C", str(ROOT), "archive", LAST_RELEASE, "otel_zernel", *_ROOTS[2:], "docs", "pyproject.toml")
    try:
        archive = subprocess.run(command, capture_output=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"the commit {LAST_RELEASE[:8]} is missing ({error}): `git fetch --unshallow` gets it")
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        tar.extractall(folder, filter="data")
    _describe(folder)
    release = Release("last", folder)
    where = (sys.executable, "-c", "import otel_zernel_exporters.file as package; print(package.__file__)")
    found = subprocess.run(where, env=release.environ, cwd=folder, capture_output=True, text=True, check=True).stdout
    assert found.startswith(str(folder)), found
    return release


def _describe(folder: Path) -> None:
    """Writes the metadata of the package, in which the collector finds its components."""
    project = tomllib.loads((folder / "pyproject.toml").read_text("utf-8"))["project"]
    metadata = folder / f"otel_zernel-{project['version']}.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    )
    groups = {group: dict(names) for group, names in project["entry-points"].items()}
    lines = [
        line for group, names in groups.items() for line in (f"[{group}]", *(f"{k} = {v}" for k, v in names.items()))
    ]
    (metadata / "entry_points.txt").write_text("\n".join(lines) + "\n")
