"""The page that describes the routes, in a browser: it is whole without another server."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.commands.why.chromium import browsing, require_chromium
from tests.extensions.query.gateway import PATIENCE, gateway

PATHS = "[...document.querySelectorAll('.opblock-summary-path')].map((one) => one.dataset.path)"
BLOCK = "[id$=get_api_v1_telemetry_hosts]"


def waited_for(condition: Callable[[], Any]) -> Any:
    """The first value of the condition that is true."""
    until = time.monotonic() + PATIENCE
    while not (found := condition()):
        assert time.monotonic() < until
        time.sleep(0.05)
    return found


@pytest.mark.timeout(600)
def test_the_page_shows_all_routes_tries_one_and_asks_no_other_server(tmp_path: Path) -> None:
    require_chromium()
    with gateway(tmp_path) as base, browsing(tmp_path) as tab:

        def press(button: str) -> None:
            found = f"document.querySelector('{BLOCK} {button}')"
            waited_for(lambda: tab.evaluate(f"!!{found}"))
            tab.evaluate(f"{found}.click()")

        tab.open(f"{base}/swagger/index.html", 1280, 900, "light")
        shown = waited_for(lambda: tab.evaluate(PATHS))
        assert {"/api/v1/telemetry", "/api/v1/telemetry/aggregations", "/api/v1/stats/summary"} <= {*shown}
        for button in (".opblock-summary-control", ".try-out__btn", ".execute"):
            press(button)
        answer = f"document.querySelector('{BLOCK} .live-responses-table')?.textContent"
        assert "n1" in waited_for(lambda: tab.evaluate(answer))
        assert tab.complaints == []
        assert {url.split("/", 3)[2] for url in tab.requests} == {base.partition("//")[2]}
