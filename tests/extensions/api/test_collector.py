"""The extension in a running collector: reload, the end, and routes of the prometheus exporter."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import pytest

from otel_zernel.config.load import load
from otel_zernel.config.schema import Settings, validate
from otel_zernel.engine.service import Service
from otel_zernel.errors import CannotStart, ConfigError
from otel_zernel.registry import Registry
from otel_zernel.testing import until
from otel_zernel_extensions.api import ApiExtension

CONFIG = """
receivers: {otlp: {protocols: {http: {endpoint: "localhost:0"}}}}
extensions: {api: {endpoint: "localhost:0"}}
exporters:
  prometheus: {api: api}
service:
  extensions: [api]
  telemetry: {metrics: {level: none}}
  pipelines: {metrics: {receivers: [otlp], exporters: [prometheus]}}
"""


def settings(text: str) -> Settings:
    return validate(load([f"yaml:{text}"], [], {}), Registry.installed(), {})


@asynccontextmanager
async def running(text: str) -> AsyncIterator[Service]:
    service, stop = Service(settings(text)), asyncio.Event()
    task = asyncio.create_task(service.run(stop))
    try:
        await until(lambda: service.graph.health.up_since or task.done())
        yield service
    finally:
        stop.set()
        await task


def client_of(service: Service) -> httpx.AsyncClient:
    api = service.graph.extensions["api"]
    assert isinstance(api, ApiExtension)
    return httpx.AsyncClient(base_url=f"http://{api.address}")


async def test_a_component_that_restarts_leaves_its_routes_and_the_server_stays() -> None:
    async with running(CONFIG) as service, client_of(service) as client:
        api = service.graph.extensions["api"]
        assert (await client.get("/healthz")).json()["status"] == "Server available"
        assert (await client.get("/metrics")).status_code == 200
        assert await service.reload(settings(CONFIG.replace("{api: api}", "{api: api, namespace: other}")))
        assert service.graph.extensions["api"] is api
        assert (await client.get("/metrics")).status_code == 200
        assert await service.reload(settings(CONFIG.replace("{api: api}", "{endpoint: 'localhost:0'}")))
        assert (await client.get("/metrics")).status_code == 503


async def test_a_server_that_restarts_has_the_routes_of_the_components_again() -> None:
    async with running(CONFIG) as service:
        changed = CONFIG.replace('api: {endpoint: "localhost:0"}', 'api: {endpoint: "localhost:0", rate_limit: null}')
        assert await service.reload(settings(changed))
        async with client_of(service) as client:
            assert (await client.get("/metrics")).status_code == 200


async def test_two_components_with_one_path_do_not_start() -> None:
    text = CONFIG.replace("prometheus: {api: api}", "prometheus: {api: api}\n  prometheus/b: {api: api}")
    service = Service(settings(text.replace("exporters: [prometheus]", "exporters: [prometheus, prometheus/b]")))
    with pytest.raises(CannotStart, match="exporters::prometheus/b: exporters::prometheus already serves /metrics"):
        await service.run(asyncio.Event())


def test_an_api_that_is_not_enabled_is_a_mistake_in_the_configuration() -> None:
    with pytest.raises(ConfigError, match=r"exporters::prometheus::api: extension .api. is not in"):
        settings(CONFIG.replace("extensions: [api]", "extensions: []"))
