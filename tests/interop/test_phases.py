"""rotel forwards the traces of a training process as complete trees."""

import asyncio

from opentelemetry.proto.trace.v1.trace_pb2 import TracesData

from otel_zernel.batch import Batch
from otel_zernel.testing import make_context
from otel_zernel_exporters.otlp import OtlpGrpcExporter
from otel_zernel_exporters.otlp.config import OtlpGrpcConfig
from otel_zernel_processors.phases import PhasesProcessor
from tests.interop.rotel import Rotel
from tests.processors.phases.emit.test_traces import trees
from tests.processors.phases.training import Loop, batch_of, spans_of


def steps() -> Batch:
    config = PhasesProcessor.Config.model_validate({"traces": {"sample": 1}})
    processor = PhasesProcessor(config, make_context("processors", "phases"))
    made = [*processor.process(batch_of(Loop().steps(50).load().spans)), *processor.flush()]
    return Batch.join(batch for batch in made if "traces" in batch.signals)


async def test_steps_arrive_as_complete_trees(rotel: Rotel) -> None:  # a pytest fixture
    sent = steps()
    config = OtlpGrpcConfig.model_validate({"endpoint": f"http://{rotel.grpc}"})
    async with OtlpGrpcExporter(config, make_context("exporters", "otlp_grpc")) as exporter:
        await exporter.export(sent)
    async with asyncio.timeout(60):
        while rotel.spans().total() < sent.count_of("traces"):
            await rotel.sink.next()
    arrived = Batch(spans=TracesData.FromString(b"".join(rotel.sink.of("trace"))))
    assert len(trees(spans_of([arrived]))) == 51
    assert sorted(map(str, spans_of([arrived]))) == sorted(map(str, spans_of([sent])))
