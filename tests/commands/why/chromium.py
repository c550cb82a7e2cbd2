"""Debian's Chromium without a window, driven by the DevTools protocol over a pair of pipes.

https://chromedevtools.github.io/devtools-protocol: messages are JSON, each followed by a zero byte. Chromium reads
from its file descriptor 3 and writes to 4.
"""

import json
import os
import select
import shutil
import subprocess
import time
from base64 import b64decode
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

_PATIENCE = 60.0
"""Seconds for an answer: the machine may be busy."""
Message = dict[str, Any]


def require_chromium() -> str:
    """The path of Chromium. Skips the test if it is not installed."""
    path = shutil.which("chromium")
    if path is None:
        missing = "chromium is not installed: make peers"
        (pytest.fail if os.environ.get("REQUIRE_PEERS") == "1" else pytest.skip)(missing)
    return path


class Tab:
    """A page in the browser. It keeps every event that the page causes."""

    def __init__(self, reading: int, writing: int) -> None:
        self._reading = reading
        self._writing = writing
        self._rest = b""
        self._last_id = 0
        self._session = ""
        self.events: list[Message] = []

    def open(self, url: str, width: int, height: int, theme: str, script: str = "") -> None:
        """Opens the page, and returns when it has loaded. `theme` is `light` or `dark`. `script` runs first."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")
        phone = width < 600
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=phone)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": theme}])
        self.call("Page.addScriptToEvaluateOnNewDocument", source=script)
        self.call("Page.navigate", url=url)
        self.wait_for("Page.loadEventFired")
        self.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def leave(self) -> None:
        """Closes the page, if one is open, and forgets its events."""
        if self._session:
            self.call("Page.close")
        self._session = ""
        self.events.clear()

    def call(self, method: str, **parameters: Any) -> Message:
        """Calls a method, and returns its result. Raises RuntimeError if the browser refuses."""
        self._send(method, parameters)
        while True:
            answer = self._next()
            if answer.get("id") == self._last_id:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']['message']}")
                result: Message = answer["result"]
                return result
            self.events.append(answer)

    def _send(self, method: str, parameters: Message) -> None:
        self._last_id += 1
        message = {"id": self._last_id, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._writing, json.dumps(message).encode() + b"\0")

    def wait_for(self, method: str) -> None:
        """Returns when the event has come."""
        while not any(event.get("method") == method for event in self.events):
            self.events.append(self._next())

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression, as JSON."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(answer["exceptionDetails"]["exception"].get("description", "an exception"))
        return answer["result"].get("value")

    def mouse(self, kind: str, x: float, y: float, **more: Any) -> None:
        """An event of the mouse: `mouseMoved`, `mousePressed` or `mouseReleased`."""
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)
        self.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def touch(self, kind: str, *points: tuple[float, float]) -> None:
        """An event of fingers on the screen: `touchStart`, `touchMove`, or `touchEnd` without points."""
        fingers = [{"x": x, "y": y, "id": number} for number, (x, y) in enumerate(points)]
        self.call("Input.dispatchTouchEvent", type=kind, touchPoints=fingers)
        self.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def tap(self, x: float, y: float) -> None:
        """A finger that is lifted at once, however slow the page is: a longer touch is no tap."""
        self._send("Input.dispatchTouchEvent", {"type": "touchStart", "touchPoints": [{"x": x, "y": y}]})
        self.touch("touchEnd")

    def screenshot(self, path: Path) -> None:
        """Writes the whole page as a PNG."""
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        shot = self.call("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)
        path.write_bytes(b64decode(shot["data"]))

    @property
    def complaints(self) -> list[str]:
        """Errors and warnings of the console, and exceptions."""
        logged = [event["params"] for event in self.events if event.get("method") == "Runtime.consoleAPICalled"]
        entries = [event["params"]["entry"] for event in self.events if event.get("method") == "Log.entryAdded"]
        thrown = [event["params"] for event in self.events if event.get("method") == "Runtime.exceptionThrown"]
        return [
            *(str(one["args"]) for one in logged if one["type"] in ("error", "warning", "assert")),
            *(entry["text"] for entry in entries if entry["level"] in ("error", "warning")),
            *(str(one["exceptionDetails"]) for one in thrown),
        ]

    @property
    def requests(self) -> list[str]:
        """The URLs that the page has asked for, without its own and without those that contain their data."""
        sent = [event["params"] for event in self.events if event.get("method") == "Network.requestWillBeSent"]
        urls = [one["request"]["url"] for one in sent if one.get("type") != "Document"]
        return [url for url in urls if not url.startswith("data:")]

    def _next(self) -> Message:
        until = time.monotonic() + _PATIENCE
        while b"\0" not in self._rest:
            if not select.select([self._reading], [], [], max(0.0, until - time.monotonic()))[0]:
                raise TimeoutError("chromium does not answer")
            part = os.read(self._reading, 1 << 20)
            if not part:
                raise RuntimeError("chromium has ended")
            self._rest += part
        message, _, self._rest = self._rest.partition(b"\0")
        answer: Message = json.loads(message)
        return answer


@contextmanager
def browsing(folder: Path) -> Iterator[Tab]:
    """A browser with one tab. Its profile is in the folder."""
    to_browser, own_writing = os.pipe()
    own_reading, from_browser = os.pipe()
    with (folder / "chromium.log").open("wb") as log:
        browser = subprocess.Popen(
            # Bash gives the pipes their numbers; dash knows numbers up to 9 only. The sandbox does not work for root.
            [
                *("bash", "-c", f'exec "$@" 3<&{to_browser} 4>&{from_browser}', "bash", require_chromium()),
                *("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--disable-dev-shm-usage"),
                *("--remote-debugging-pipe", "--no-first-run", "--disable-background-networking"),
                f"--user-data-dir={folder / 'profile'}",
            ],
            pass_fds=(to_browser, from_browser),
            stdout=log,
            stderr=log,
        )
    os.close(to_browser)
    os.close(from_browser)
    try:
        yield Tab(own_reading, own_writing)
    finally:
        browser.kill()
        browser.wait()
        os.close(own_reading)
        os.close(own_writing)
