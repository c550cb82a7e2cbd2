"""Downloads Debian packages of other releases and architectures, without changing the machine's own apt."""

import os
import re
import subprocess
from functools import cache
from pathlib import Path

CACHE = Path(os.environ.get("ZERNEL_KERNELS", Path.home() / ".cache" / "otel-zernel" / "kernels"))
KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"


class CannotDownload(Exception):
    """A package cannot be downloaded; the message gives the reason."""


def download(pattern: str, release: str, architecture: str) -> Path:
    """The file of the package whose whole name matches the regular expression, in its highest version.

    Raises CannotDownload.
    """
    apt = _apt(release, architecture)
    names = [name for name in _names(apt) if re.fullmatch(pattern, name)]
    if not names:
        raise CannotDownload(f"Debian {release} for {architecture} has no package {pattern}")
    newest = max(names, key=_numbers)
    folder = CACHE / "packages" / architecture
    folder.mkdir(parents=True, exist_ok=True)
    if not (file := _file(folder, newest)):
        run([*apt, "download", "-qq", f"{newest}:{architecture}"], folder)
        file = _file(folder, newest)
    if not file:
        raise CannotDownload(f"apt-get download {newest} left no file")
    return file


def unpacked_kernel(pattern: str, release: str, architecture: str) -> Path:
    """The folder with a kernel's files: its image and its modules. Raises CannotDownload."""
    package = download(pattern, release, architecture)
    folder = package.with_name(package.stem)
    if not folder.is_dir():
        partial = package.with_name(f"{package.stem}.partial")
        for part in (package, *_parts(package, release, architecture)):
            run(["dpkg-deb", "-x", str(part), str(partial)], package.parent)
        partial.rename(folder)
    return folder


def _parts(package: Path, release: str, architecture: str) -> list[Path]:
    """The packages that hold the kernel's files. From Linux 7.2 on, the kernel's own package only depends on them."""
    version = package.name.partition("_")[0].removeprefix("linux-image-")
    names = [f"{part}-{version}" for part in ("linux-binary", "linux-modules")]
    depends = run(["dpkg-deb", "-f", str(package), "Depends"], package.parent)
    return [download(re.escape(name), release, architecture) for name in names if name in depends]


@cache
def mirror() -> str:
    """The URL from which this machine downloads Debian's packages."""
    lines = run(["apt-get", "indextargets", "--format", "$(ORIGIN) $(REPO_URI)"], Path("/")).splitlines()
    found = [line.removeprefix("Debian ") for line in lines if line.startswith("Debian ") and "security" not in line]
    if not found:
        raise CannotDownload(
            "no source of Debian packages is configured: add one to sources.list and run apt-get update"
        )
    return found[0]


@cache
def _apt(release: str, architecture: str) -> list[str]:
    """An apt-get command with its own package lists, which are updated first."""
    state = CACHE / "apt" / f"{release}-{architecture}"
    for folder in ("lists/partial", "archives/partial"):
        (state / folder).mkdir(parents=True, exist_ok=True)
    sources = state / "sources.list"
    sources.write_text(f"deb [signed-by={KEYRING} arch={architecture}] {mirror()} {release} main\n")
    options = {
        "Dir::Etc::sourcelist": sources,
        "Dir::Etc::sourceparts": "/dev/null",
        "Dir::State::lists": state / "lists",
        "Dir::State::status": "/dev/null",
        "Dir::Cache": state,
        "APT::Architecture": architecture,
        "APT::Architectures": architecture,
        "APT::Sandbox::User": "root",
    }
    command = ["apt-get", *(word for name, value in options.items() for word in ("-o", f"{name}={value}"))]
    run([*command, "update", "-qq"], state)
    return command


def _names(apt: list[str]) -> list[str]:
    return run(["apt-cache", *apt[1:], "pkgnames", "linux-"], CACHE).split()


def _numbers(name: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", name)))


def _file(folder: Path, package: str) -> Path | None:
    return next(folder.glob(f"{package}_*.deb"), None)


def run(command: list[str], folder: Path | None = None) -> str:
    """The output of a command. Raises `CannotDownload` if it fails."""
    try:
        done = subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True)
    except FileNotFoundError as missing:
        raise CannotDownload(f"{command[0]} is not installed") from missing
    except subprocess.CalledProcessError as failed:
        raise CannotDownload(f"{command[0]} failed: {failed.stderr.strip()[-500:]}") from failed
    return done.stdout
