"""The page in one file shows the state as the served page does, and asks for nothing."""

import asyncio
import json
import re
import subprocess
from pathlib import Path

import pytest

from otel_zernel.clock import SystemClock
from otel_zernel.testing import make_context
from otel_zernel_exporters.live import LiveExporter
from otel_zernel_exporters.live.page import saved_page
from tests.commands.why.chromium import browsing, require_chromium
from tests.exporters.live.page.generated_job import GeneratedJob

HOSTILE = "</script><script>alert(1)</script><!--"


async def written(path: Path) -> str:
    """The text of the file that an exporter leaves after five seconds of a job of four ranks."""
    clock = SystemClock()
    config = LiveExporter.Config.model_validate({"api": None, "html": str(path)})
    exporter = LiveExporter(config, make_context("exporters", "live", clock=clock))
    job = GeneratedJob(4, clock.time_ns() - 5 * 1_000_000_000, straggler=3)
    async with exporter:
        for second in job.seconds(5):
            for batch in second:
                await exporter.export(batch)
    return await asyncio.to_thread(path.read_text, "utf-8")


async def test_the_page_has_the_state_and_no_link(tmp_path: Path) -> None:
    page = await written(tmp_path / "page.html")
    state = json.loads(re.findall(r'<script type="application/json" id="state">(.*?)</script>', page)[0])
    assert len(state["ranks"]) == 4
    assert re.findall(r'(?:src|href)="(?!data:)', page) == []
    assert "default-src 'none'" in page
    assert page.count("</script>") == 2


def test_a_text_of_the_state_cannot_end_its_block() -> None:
    assert HOSTILE not in saved_page({"ranks": {HOSTILE: {}}})


def test_the_modules_are_one_valid_script(tmp_path: Path) -> None:
    script = re.findall(r"<script>(.*?)</script>", saved_page({}), re.DOTALL)[0]
    assert re.findall(r"^(?:import|export)\b", script, re.MULTILINE) == []
    path = tmp_path / "page.js"
    path.write_text(script, "utf-8")
    try:
        checked = subprocess.run(["node", "--check", path], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("node is not installed")
    assert checked.returncode == 0, checked.stderr


async def test_a_folder_that_vanishes_is_one_line_of_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    config = LiveExporter.Config.model_validate({"api": None, "html": str(tmp_path / "gone" / "page.html")})
    async with LiveExporter(config, make_context("exporters", "live", clock=SystemClock())):
        pass
    assert "Cannot write the page to" in caplog.text


async def test_a_browser_shows_the_saved_state_without_a_request(tmp_path: Path) -> None:
    require_chromium()
    path = tmp_path / "page.html"
    await written(path)
    with browsing(tmp_path) as tab:
        tab.open(path.as_uri(), 1280, 900, "light")
        ranks = tab.evaluate("document.querySelectorAll('#ranks tbody tr').length")
        headline = tab.evaluate("document.querySelector('#headline').textContent")
        status = tab.evaluate("document.querySelector('#status').textContent")
        assert tab.complaints == []
        assert [url for url in tab.requests if not url.startswith(("file:", "data:"))] == []
    assert ranks == 4
    assert "Rank 3 " in headline
    assert status.startswith("Saved on ")
