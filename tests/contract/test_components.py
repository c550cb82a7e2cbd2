"""The promises that every installed component keeps."""

import asyncio
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from otel_zernel.batch import Batch, Signal
from otel_zernel.component import Component, Exporter, Extension, Kind, Processor, Receiver, Scraper
from otel_zernel.config.load import load
from otel_zernel.config.schema import validate
from otel_zernel.delivery_config import RemoteExporterConfig
from otel_zernel.engine.scraping import ScrapeLoop
from otel_zernel.errors import ConfigError, Permanent
from otel_zernel.otlp.json import to_json
from otel_zernel.registry import KINDS, Registry
from otel_zernel.telemetry import ScraperMetrics
from otel_zernel.testing import Downstream, make_context
from tests.api_server import FakeApiServer
from tests.core.parts import batch_of, every_signal
from tests.exporters.otlp.certificates import Authority

REGISTRY = Registry.installed()
COMPONENTS: list[tuple[Kind, str]] = [(kind, type_) for kind in KINDS for type_ in REGISTRY.aliases(kind)]
EVERY = pytest.mark.parametrize(("kind", "type_"), COMPONENTS, ids=[type_ for _, type_ in COMPONENTS])
_UNCOUNTED = ScraperMetrics(lambda points: None, lambda points: None)
BUSY_ROWS = "timestamp,gpu_id,hostname,gpu_utilization\n" + "2026-01-01T00:00:00Z,0,node,50\n" * 1000


def sample_of(kind: Kind, type_: str) -> dict[str, Any]:
    sample: dict[str, Any] = yaml.safe_load(REGISTRY.sample(kind, type_))[type_] or {}
    return sample


def build(kind: Kind, type_: str, **changes: Any) -> Component:
    cls = REGISTRY.load(kind, type_)
    config = cls.Config.model_validate({**sample_of(kind, type_), **changes}, context={"environ": {}})
    return cls(config, make_context(kind, type_, extensions={"api": FakeApiServer()}))


def working(kind: Kind, type_: str, folder: Path) -> Component:
    """The component with the settings of its sample. Paths and addresses are replaced by ones that work here."""
    busy = folder / "busy.csv"
    busy.write_text(BUSY_ROWS)
    recorded = folder / "recorded.jsonl"
    silent = folder / "silent"
    silent.write_text("#!/bin/sh\nexec sleep 1\n")
    silent.chmod(0o755)
    recorded.write_bytes(to_json(every_signal().spans) + b"\n")
    if (kind, type_) == ("exporters", "csv"):
        return build(kind, type_, path=str(folder / "out.csv"))
    if (kind, type_) == ("exporters", "live"):
        return build(kind, type_, api=None)
    if (kind, type_) == ("exporters", "heartbeat"):
        return build(kind, type_, endpoint="localhost:1")
    if (kind, type_) == ("receivers", "otlp"):
        return build(kind, type_, protocols={name: {"endpoint": "localhost:0"} for name in ("grpc", "http")})
    if (kind, type_) == ("receivers", "prometheus"):
        return build(kind, type_)
    if (kind, type_) == ("extensions", "sidecar_injector"):
        return build(kind, type_, endpoint="localhost:0", **injector_files(folder))
    changes: dict[str, dict[str, Any]] = {
        "bcc": {"python": str(silent)},
        "csv": {"files": [str(busy)], "layout": "wide", "loop": True, "interval": 0, "follow": False, "rejects": None},
        "file": {"path": str(folder / "out.jsonl")},
        "otlp_json_file": {"include": [str(recorded)], "loop": True},
        "prometheus": {"endpoint": "localhost:0"},
        "websocket": {"endpoint": "localhost:0"},
        "health_check": {"endpoint": "localhost:0"},
        "api": {"endpoint": "localhost:0"},
        "file_storage": {"directory": str(folder)},
        "tasks": {"directory": str(folder / "tasks")},
        "otlp_grpc": {"endpoint": "localhost:1", "tls": {"insecure": True}},
        "heartbeat": {"endpoint": "localhost:0"},
        "kafka": {"brokers": ["localhost:1"], **({"timeout": "1s"} if kind == "exporters" else {})},
        "otlp_http": {"endpoint": "http://localhost:1", "tls": {}},
        "sql": {"url": f"sqlite://{folder}/metrics.db"},
        "prometheus_remote_write": {"endpoint": "http://localhost:1/api/v1/write", "tls": {}},
    }
    return build(kind, type_, **changes.get(type_, {}))


def injector_files(folder: Path) -> dict[str, Any]:
    sidecar = folder / "sidecar.yaml"
    sidecar.write_text("initContainers: [{name: collector}]\n")
    issued = Authority(folder).issue("localhost")
    return {"sidecar": str(sidecar), "tls": {"cert_file": issued.cert_file, "key_file": issued.key_file}}


_recorded: list[str] | None = None


def _record(event: str, arguments: tuple[Any, ...]) -> None:
    if _recorded is not None and event.startswith(("open", "socket.", "subprocess.", "os.listdir", "os.mkdir")):
        _recorded.append(f"{event} {arguments}")


sys.addaudithook(_record)


@contextmanager
def recorded_io() -> Iterator[list[str]]:
    """The audit events of the code inside for files, sockets and subprocesses."""
    global _recorded
    events: list[str] = []
    _recorded = events
    try:
        yield events
    finally:
        _recorded = None


@EVERY
def test_its_sample_is_a_valid_configuration(kind: Kind, type_: str) -> None:
    assert isinstance(build(kind, type_).config, REGISTRY.load(kind, type_).Config)


@EVERY
def test_an_unknown_key_is_refused_with_its_path(kind: Kind, type_: str) -> None:
    sample = {**sample_of(kind, type_), "no_such_key": 1}
    text = yaml.safe_dump({kind: {type_: sample}})
    with pytest.raises(ConfigError) as refused:
        validate(load([f"yaml:{text}"], [], {}), REGISTRY, {})
    strs = [str(problem) for problem in refused.value.problems if "no_such_key" in str(problem)]
    assert len(strs) == 1
    assert strs[0].startswith(f"{kind}::{type_}")


@EVERY
def test_its_constructor_does_no_io(kind: Kind, type_: str) -> None:
    config = build(kind, type_).config  # imports happen here
    cls, context = REGISTRY.load(kind, type_), make_context(kind, type_)
    with recorded_io() as events:
        cls(config, context)
    assert events == []


@EVERY
def test_its_readme_leads_to_its_sample(kind: Kind, type_: str) -> None:
    assert "](sample.yaml)" in REGISTRY.readme(kind, type_)
    assert "`otel-zernel components --sample " in REGISTRY.readme(kind, type_)


@EVERY
def test_its_sample_names_every_option(kind: Kind, type_: str) -> None:
    sample = REGISTRY.sample(kind, type_)
    missing = [name for name in REGISTRY.load(kind, type_).Config.model_fields if f"{name}:" not in sample]
    assert missing == []


@EVERY
def test_its_configuration_is_frozen_and_documented(kind: Kind, type_: str) -> None:
    cls = REGISTRY.load(kind, type_)
    config = build(kind, type_).config
    name = next(iter(cls.Config.model_fields))
    with pytest.raises(ValidationError):
        setattr(config, name, None)
    assert cls.__doc__
    assert cls.Config.__doc__
    assert cls.stability != "development"


@pytest.mark.parametrize("type_", REGISTRY.aliases("receivers"))
async def test_a_receiver_returns_promptly_when_cancelled(type_: str, tmp_path: Path) -> None:
    component = working("receivers", type_, tmp_path)
    receiver = ScrapeLoop(component, _UNCOUNTED) if isinstance(component, Scraper) else component
    assert isinstance(receiver, Receiver | ScrapeLoop)
    downstream = Downstream()
    running = asyncio.create_task(receiver.run(downstream))
    await asyncio.sleep(0.05)
    assert not running.done(), running.exception()
    running.cancel()
    async with asyncio.timeout(60):
        with pytest.raises(asyncio.CancelledError):
            await running


@pytest.mark.parametrize("type_", REGISTRY.aliases("processors"))
def test_a_processor_may_be_flushed_twice(type_: str) -> None:
    processor = build("processors", type_)
    assert isinstance(processor, Processor)
    list(processor.process(batch_of(1.0, 2.0)))
    list(processor.flush())
    assert [batch.item_count for batch in processor.flush()] == []


@pytest.mark.parametrize("type_", REGISTRY.aliases("processors"))
def test_a_processor_accepts_an_empty_batch(type_: str) -> None:
    processor = build("processors", type_)
    assert isinstance(processor, Processor)
    assert sum(batch.item_count for batch in processor.process(Batch())) == 0


def accepting(kind: Kind, signal: Signal) -> list[str]:
    return [type_ for type_ in REGISTRY.aliases(kind) if signal in REGISTRY.load(kind, type_).signals]


@pytest.mark.parametrize("type_", accepting("processors", "logs"))
def test_a_processor_that_accepts_logs_handles_them_and_makes_none_up(type_: str) -> None:
    processor = build("processors", type_)
    assert isinstance(processor, Processor)
    for given in (every_signal().only({"logs"}), every_signal()):
        came = [*processor.process(given), *processor.flush()]
        assert sum(batch.count_of("logs") for batch in came) <= 1


@pytest.mark.parametrize("type_", accepting("exporters", "logs"))
async def test_an_exporter_that_accepts_logs_handles_them_and_never_changes_them(type_: str, tmp_path: Path) -> None:
    exporter = working("exporters", type_, tmp_path)
    assert isinstance(exporter, Exporter)
    for batch in (every_signal().only({"logs"}), every_signal()):
        before = batch.bytes_of("logs")
        async with exporter:
            try:
                await exporter.export(batch)
            except Exception as error:  # noqa: BLE001  # no server listens for exporters that send
                assert type(error).__name__ == "Retryable"  # noqa: PT017
        assert batch.bytes_of("logs") == before


@pytest.mark.parametrize("type_", ["debug", "file", "csv"])
@pytest.mark.parametrize("verbosity", ["basic", "detailed"])
async def test_damaged_data_cost_a_batch_and_one_sentence(type_: str, verbosity: str, tmp_path: Path) -> None:
    changes = {"debug": {"verbosity": verbosity}}.get(type_, {"path": str(tmp_path / "out")})
    exporter = build("exporters", type_, **changes)
    assert isinstance(exporter, Exporter)
    batch = Batch.encoded("metrics", b"\x0a\x05damage", 1)
    async with exporter:
        with pytest.raises(Permanent, match="the batch is not valid OTLP"):
            await exporter.export(batch)


@pytest.mark.parametrize("type_", REGISTRY.aliases("exporters"))
async def test_an_exporter_may_be_left_without_being_entered_entered_again_and_left_twice(
    type_: str, tmp_path: Path
) -> None:
    exporter = working("exporters", type_, tmp_path)
    assert isinstance(exporter, Exporter)
    await exporter.__aexit__(None, None, None)
    for _ in range(2):
        async with exporter:
            pass
    await exporter.__aexit__(None, None, None)


@pytest.mark.parametrize("type_", REGISTRY.aliases("exporters"))
async def test_an_exporter_never_changes_a_batch(type_: str, tmp_path: Path) -> None:
    exporter = working("exporters", type_, tmp_path)
    assert isinstance(exporter, Exporter)
    batch = batch_of(1.0, 2.0)
    before = batch.bytes_of("metrics")
    async with exporter:
        try:
            await exporter.export(batch)
        except Exception as error:  # noqa: BLE001  # no server listens for exporters that send
            assert type(error).__name__ == "Retryable"  # noqa: PT017
    assert batch.bytes_of("metrics") == before
    assert batch.metrics == Batch.from_bytes(metrics=before).metrics


@pytest.mark.parametrize("type_", REGISTRY.aliases("exporters"))
def test_an_exporter_has_settings_for_delivery_if_it_declares_remote_delivery(type_: str) -> None:
    cls = REGISTRY.load("exporters", type_)
    assert issubclass(cls, Exporter)
    assert (cls.delivery == "remote") == issubclass(cls.Config, RemoteExporterConfig)


@pytest.mark.parametrize("type_", REGISTRY.aliases("extensions"))
async def test_an_extension_may_be_left_without_being_entered_and_entered_twice(type_: str, tmp_path: Path) -> None:
    extension = working("extensions", type_, tmp_path)
    assert isinstance(extension, Extension)
    await extension.__aexit__(None, None, None)
    for _ in range(2):
        async with extension:
            pass
