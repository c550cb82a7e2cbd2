"""A receiver that crashes and a scraper that fails, in a package that only the path of a collector has."""

from pathlib import Path

_SOURCE = """
from otel_zernel.component import Receiver, Scraper

class CrashingReceiver(Receiver):
    "Crashes."

    async def run(self, emit):
        raise RuntimeError("a crash")

class FailingReceiver(Scraper):
    "Reads nothing."

    def scrape(self):
        raise OSError("nothing to read")
"""
_METADATA = "Metadata-Version: 2.1\nName: faulty\nVersion: 1\n"
_ENTRY = "[otel_zernel.receivers]\ncrashing = faulty:CrashingReceiver\nfailing = faulty:FailingReceiver\n"


def write_package(folder: Path) -> None:
    """Writes the package and its entry points into a folder for PYTHONPATH."""
    (folder / "faulty-1.dist-info").mkdir(parents=True)
    (folder / "faulty.py").write_text(_SOURCE)
    (folder / "faulty-1.dist-info" / "METADATA").write_text(_METADATA)
    (folder / "faulty-1.dist-info" / "entry_points.txt").write_text(_ENTRY)
