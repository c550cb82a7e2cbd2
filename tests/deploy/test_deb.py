"""The package for Debian: dpkg installs it into a folder of its own, where the command works, and removes it."""

import shutil
import subprocess
from pathlib import Path

import pytest

from deploy.deb.__main__ import build
from tests.interop.installed import miss

pytestmark = pytest.mark.soak
PYTHON = Path("/usr/bin/python3")


def dpkg(root: Path, *arguments: str | Path) -> None:
    """Runs dpkg on a system in a folder. The packages that ours needs are not in it."""
    options = ("--force-depends", "--force-script-chrootless", "--force-not-root", "--force-bad-path")
    subprocess.run(["dpkg", f"--root={root}", *options, *arguments], check=True)


def test_the_package_installs_works_and_leaves_nothing(tmp_path: Path) -> None:
    if not shutil.which("dpkg-deb") or not PYTHON.exists():
        miss("dpkg-deb or /usr/bin/python3 is missing: this test needs Debian or Ubuntu")
    code = "import sys; print('%d.%d' % sys.version_info[:2])"
    python = subprocess.run([PYTHON, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
    architecture = subprocess.run(["dpkg", "--print-architecture"], capture_output=True, text=True, check=True).stdout
    package = build(tmp_path / "dist", architecture.strip(), python)
    fields = subprocess.run(["dpkg-deb", "--field", package], capture_output=True, text=True, check=True).stdout
    assert f"Depends: python3 (>= {python}), python3 (<< 3.{int(python[2:]) + 1}), libbpf1\n" in fields
    root = tmp_path / "root"
    for folder in ("info", "updates"):
        (root / "var/lib/dpkg" / folder).mkdir(parents=True)
    (root / "var/lib/dpkg/status").touch()
    dpkg(root, "--install", package)
    command = root / "usr/bin/otel-zernel"
    shown = subprocess.run([command, "demo"], capture_output=True, text=True, check=True).stdout
    assert "Where a step's time goes" in shown
    subprocess.run([command, "validate", root / "etc/otel-zernel/config.yaml"], check=True)
    assert any((root / "opt/otel-zernel/lib/otel_zernel/__pycache__").iterdir())
    assert (root / "usr/lib/systemd/system/otel-zernel.service").is_file()
    dpkg(root, "--purge", "otel-zernel")
    assert not (root / "opt/otel-zernel").exists()
    assert not (root / "etc/otel-zernel").exists()
