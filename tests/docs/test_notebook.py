"""The cells of docs/notebook.md work in a process that trains between them: it needs root, eBPF and PyTorch."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from docs.catalogue import ROOT
from tests.commands.why.test_live import require_torch

PAGE = (ROOT / "docs" / "notebook.md").read_text("utf-8")
CELLS = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
TRAINING = """
import time, torch
model = torch.nn.Linear(64, 64)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
until = time.monotonic() + 600
while watching.poll() is None and time.monotonic() < until:
    time.sleep(0.02)
    loss = model(torch.randn(32, 64)).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def test_its_cells_are_python() -> None:
    for cell in CELLS:
        compile(cell, "cell", "exec")


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_the_cells_give_an_answer_and_a_page(tmp_path: Path) -> None:
    require_torch()
    start, answer, shown = CELLS
    start = start.replace('"sudo", "otel-zernel"', f'"{sys.executable}", "-m", "otel_zernel"').replace("30s", "8s")
    assert "IFrame" in shown
    done = subprocess.run(
        [sys.executable, "-c", start + TRAINING + answer], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 1
    assert (tmp_path / "why.html").stat().st_size > 10_000
