"""The SBOM of an image or a release: its packages with versions and licenses, as CycloneDX in JSON."""

import os
import subprocess
from pathlib import Path

from deploy.image.python_packages import version


def sbom_path(image: Path) -> Path:
    """`otel-zernel.cdx.json` beside `otel-zernel.tar`."""
    return image.with_suffix(".cdx.json")


def write_sbom(syft: str, source: str, sbom: Path) -> None:
    """Lists the packages of a source as syft names it, such as `oci-archive:FILE`. `syft` is the path of the program.

    Raises CalledProcessError if the source cannot be read.
    """
    named = ["--source-name=otel-zernel", f"--source-version={version()}"]
    written = f"--output=cyclonedx-json={sbom}"
    command = [syft, "scan", source, "--quiet", *named, written]
    offline = {**os.environ, "SYFT_CHECK_FOR_APP_UPDATE": "false"}
    subprocess.run(command, check=True, env=offline)
