"""Programs that train alone, through the phases processor as `otel-zernel live` configures it."""

from collections.abc import Iterator
from typing import Any

from otel_zernel.batch import Batch
from otel_zernel.otlp.points import key_values
from otel_zernel.registry import Registry
from otel_zernel.testing import make_context
from otel_zernel_commands.live.configuration import live_settings
from otel_zernel_libraries.job_choice import JobChoice
from tests.processors.phases.training import MS, START, Loop, batch_of, resource_of

SECOND_MS = 1000.0


def training_alone(
    rate: float,
    seconds: int,
    end_ns: int,
    *,
    pid: int = 42,
    program: str = "train.py",
    loads: float = 0.2,
    stall: int = -1,
) -> list[Iterator[Batch]]:
    """The batches of each second of a program of `rate` steps a second. `loads` is the share of a step that loads data.

    It does nothing in the second `stall`.
    """
    phases: Any = live_settings(9095, Registry.installed(), JobChoice()).processors["phases"]
    processor = phases.cls(phases.config, make_context("processors", "phases"))
    resource = resource_of(pid)
    resource.attributes.extend(key_values({"process.executable.name": "python3.11", "zernel.program": program}))
    loop, each, done = Loop(), SECOND_MS / rate, 0
    made: list[Iterator[Batch]] = []
    for second in range(seconds):
        while loop.now < (second + 1) * SECOND_MS:
            if second == stall and loop.now >= second * SECOND_MS:
                loop.now = (second + 1) * SECOND_MS
                break
            loop.do("data_loading", loads * each).wait((0.8 - loads) / 2 * each)
            loop.do("backward", (0.8 - loads) / 2 * each).do("optimizer", 0.2 * each)
        spans, done = loop.spans[done:], len(loop.spans)
        for span in spans:
            span.start_time_unix_nano += end_ns - START - round(seconds * SECOND_MS * MS)
            span.end_time_unix_nano += end_ns - START - round(seconds * SECOND_MS * MS)
        made.append(iter(list(processor.process(batch_of(spans, resource)))))
    return made


def together(*jobs: list[Iterator[Batch]]) -> list[list[Batch]]:
    """The batches of several programs, second by second."""
    return [[batch for job in second for batch in job] for second in zip(*jobs, strict=True)]
