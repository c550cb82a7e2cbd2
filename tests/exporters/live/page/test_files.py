"""The files of the page: relative, kept by the browser, and allowed to ask for nothing else."""

import re
from importlib.resources import files

import pytest

from otel_zernel.clock import SystemClock
from otel_zernel.testing import make_context
from otel_zernel_exporters.live import LiveExporter
from tests.api_server import FakeApiServer

PAGE = "otel_zernel_exporters.live.page"
FILES = {one.name for one in files(PAGE).iterdir() if one.name.endswith((".js", ".css"))}
MADE = {"table.js", "phases.css"}
"""Files that are made of the words and colours of every view."""


def api_and_exporter() -> tuple[FakeApiServer, LiveExporter]:
    api = FakeApiServer()
    context = make_context("exporters", "live", clock=SystemClock(), extensions={"api": api})
    return api, LiveExporter(LiveExporter.Config(), context)


async def test_the_page_may_load_only_its_own_files() -> None:
    api, exporter = api_and_exporter()
    async with exporter:
        answer = await api.get("/")
    assert answer.status == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    policy = dict(part.strip().split(" ", 1) for part in answer.headers["content-security-policy"].split(";"))
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
    assert policy["frame-ancestors"] == "'none'"
    assert answer.headers["x-content-type-options"] == "nosniff"


async def test_each_file_that_the_page_names_is_served() -> None:
    api, exporter = api_and_exporter()
    named = {"main.js", *re.findall(r'href="live/([a-z]+\.css)"', (files(PAGE) / "index.html").read_text("utf-8"))}
    found: set[str] = set()
    async with exporter:
        while named - found:
            name = min(named - found)
            found.add(name)
            answer = await api.get(f"/live/{name}")
            assert answer.status == 200, name
            assert answer.headers["content-type"].startswith(("text/javascript", "text/css"))
            named |= set(re.findall(r'from "\./([a-z]+\.js)"', answer.body.decode()))
    assert found == FILES | MADE


async def test_the_browser_keeps_a_file_that_has_not_changed() -> None:
    api, exporter = api_and_exporter()
    async with exporter:
        tag = (await api.get("/live/main.js")).headers["etag"]
        again = await api.get("/live/main.js", {"if-none-match": f'W/"x", {tag}'})
        other = await api.get("/live/main.js", {"if-none-match": '"x"'})
    assert (again.status, again.body) == (304, b"")
    assert other.status == 200


@pytest.mark.parametrize("name", sorted(FILES | {"index.html"}))
def test_no_file_names_another_host_or_an_absolute_path(name: str) -> None:
    text = (files(PAGE) / name).read_text("utf-8")
    assert not re.findall(r"https?://(?!localhost:)", text)
    assert not re.findall(r"""(?:src|href|fetch\()\s*=?\s*["'`]/""", text)
