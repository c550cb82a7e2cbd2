"""Replays the recorded spans of a training process and prints the time of each phase. It needs neither root nor a job.

`python examples/replay.py [FILE]`: a file of OTLP in JSON lines; the default is examples/training_spans.jsonl.
"""

import sys
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

from opentelemetry.proto.trace.v1.trace_pb2 import TracesData

from otel_zernel.batch import Batch
from otel_zernel.otlp.json import parse_json
from otel_zernel.testing import make_context
from otel_zernel_processors.phases import PhasesProcessor

RECORDING = Path(__file__).parent / "training_spans.jsonl"


def replayed(path: Path) -> Iterator[Batch]:
    """The output of the phases processor for a recording; the same bytes every time."""
    processor = PhasesProcessor(PhasesProcessor.Config(), make_context("processors", "phases"))
    with path.open("rb") as lines:
        made = chain.from_iterable(processor.process(Batch(spans=parse_json(TracesData, line))) for line in lines)
        yield from (batch for batch in chain(made, processor.flush()) if batch.item_count)


def main(path: Path) -> None:
    """Prints the time of each phase, the number of steps and the number of epochs."""
    for name, unit in (("zernel.phase.time", "s"), ("zernel.steps", ""), ("zernel.epochs", "")):
        last: dict[str, float] = {}
        for batch in replayed(path):
            for resource in batch.metrics.resource_metrics:
                for metric in (
                    metric for scope in resource.scope_metrics for metric in scope.metrics if metric.name == name
                ):
                    for point in metric.sum.data_points:
                        texts = (pair.value.string_value or str(pair.value.int_value) for pair in point.attributes)
                        last[" ".join(texts)] = point.as_double or point.as_int
        for labels, value in last.items():
            print(f"{name:<20} {labels:<40} {value:10.3f} {unit}".rstrip())


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else RECORDING)
