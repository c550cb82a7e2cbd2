"""The SBOM of the image: a list of its packages with versions and licenses, as CycloneDX in JSON."""

import os
import subprocess
from pathlib import Path

from deploy.image.python_packages import version


def sbom_path(image: Path) -> Path:
    """`otel-zernel.cdx.json` beside `otel-zernel.tar`."""
    return image.with_suffix(".cdx.json")


def write_sbom(syft: str, image: Path) -> None:
    """Reads the packages from the finished OCI archive. `syft` is the path of the program.

    Raises CalledProcessError if the archive cannot be read.
    """
    named = ["--source-name=otel-zernel", f"--source-version={version()}"]
    written = f"--output=cyclonedx-json={sbom_path(image)}"
    command = [syft, "scan", f"oci-archive:{image}", "--quiet", *named, written]
    offline = {**os.environ, "SYFT_CHECK_FOR_APP_UPDATE": "false"}
    subprocess.run(command, check=True, env=offline)
