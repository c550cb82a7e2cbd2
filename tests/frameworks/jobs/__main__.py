"""`python -m tests.frameworks.jobs NAME FOLDER` runs a program of PROGRAMS once the file FOLDER/go exists.

Each rank and training thread writes its truth to FOLDER/truth.RANK.THREAD.json.
"""

import importlib
import os
import sys
from importlib.metadata import version
from pathlib import Path

from tests.frameworks.jobs.recording.run import Run
from tests.frameworks.jobs.recording.truth import Recorder
from tests.frameworks.programs import PROGRAMS


def main(name: str, folder: Path) -> None:
    """Runs the program, and writes its truth."""
    program = PROGRAMS[name]
    module, function = program.job.split(":")
    truth = Recorder(folder, int(os.environ.get("RANK", "0")))
    truth.versions[program.package] = version(program.package)
    run = _run(truth, os.environ.get("SLOW", ""), on_torch=program.scopes)
    getattr(importlib.import_module(f"tests.frameworks.jobs.{module}"), function)(run)
    truth.write()


def _run(truth: Recorder, slow: str, *, on_torch: bool) -> Run:
    """A run. A program without PyTorch does not load it."""
    if not on_torch:
        return Run(truth, slow)
    import torch

    from tests.frameworks.jobs.recording.pytorch import TorchRun

    torch.manual_seed(truth.rank)
    torch.set_num_threads(1)
    run = TorchRun(truth, slow)
    run.watch_torch()
    return run


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
