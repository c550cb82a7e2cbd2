from pathlib import Path
from typing import Any

import pytest

from otel_zernel.testing import Downstream, make_context
from tests.receivers.csv.running import Receive, Run, receiver


@pytest.fixture
def receive(tmp_path: Path) -> Receive:
    """Runs the receiver to its end, on a text or on `files`."""

    async def run(content: str | bytes | None = None, **config: Any) -> Run:
        if content is not None:
            path = tmp_path / "input.csv"
            path.write_bytes(content.encode() if isinstance(content, str) else content)
            config["files"] = [str(path)]
        result = Run(Downstream(), make_context(id_="csv"))
        await receiver(result.context, **config).run(result.downstream)
        return result

    return run
