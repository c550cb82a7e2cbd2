"""The collector's own metrics outlive a change of their readers."""

import asyncio
import socket
from collections.abc import Callable
from urllib.request import urlopen

import pytest

from otel_zernel.clock import SystemClock
from otel_zernel.config.telemetry import PrometheusPull, TelemetrySettings
from otel_zernel.errors import CannotStart
from otel_zernel.telemetry.metering import RETRY, Metering, meters_of
from tests.core.engine.delivery.simulated import SimulatedClock
from tests.free_ports import free_port


def settings(*ports: int, **more: object) -> TelemetrySettings:
    readers = [{"pull": {"exporter": {"prometheus": {"host": "127.0.0.1", "port": port}}}} for port in ports]
    return TelemetrySettings.model_validate({"metrics": {"readers": readers}, **more})


async def page(port: int) -> str:
    def get() -> str:
        with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
            return str(answer.read(), "utf-8")

    return await asyncio.to_thread(get)


async def change(metering: Metering, wanted: TelemetrySettings) -> None:
    await metering.stop(wanted)
    await metering.start(wanted)


async def test_a_counter_goes_on_when_its_page_moves_to_another_port() -> None:
    one, other = free_port(), free_port()
    async with Metering(SystemClock()) as metering:
        await metering.start(settings(one))
        metering.measuring(settings(one)).instruments.restarted("csv")
        await change(metering, settings(other))
        assert metering.measuring(settings(other)) is metering.measuring(settings(one))
        metering.measuring(settings(other)).instruments.restarted("csv")
        assert 'zernel_receiver_restarts{receiver="csv"} 2' in await page(other)
        with pytest.raises(OSError, match="refused"):
            await page(one)


async def test_two_pages_swap_their_ports_and_one_that_stays_is_not_touched() -> None:
    one, other, third = free_port(), free_port(), free_port()
    async with Metering(SystemClock()) as metering:
        await metering.start(settings(one, other))
        await change(metering, settings(other, third))
        assert "otelcol_process_uptime" in await page(other)
        assert "otelcol_process_uptime" in await page(third)


async def test_a_taken_port_is_a_warning_and_its_page_is_served_when_the_port_is_free(
    caplog: pytest.LogCaptureFixture,
) -> None:
    one, clock = free_port(), SimulatedClock()
    async with Metering(clock) as metering:
        await metering.start(settings(one))
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            await change(metering, settings(one, port))
            assert "otelcol_process_uptime" in await page(one)
            await clock.run_until(RETRY + 1)
        (warning,) = caplog.messages
        assert f"cannot listen on 127.0.0.1:{port}: another program has this port" in warning
        assert "set pull::exporter::prometheus::port to another port" in warning
        await clock.run_until(2 * RETRY + 2)
        assert "otelcol_process_uptime" in await page(port)
        await change(metering, settings(one))
        with pytest.raises(OSError, match="refused"):
            await page(port)


async def test_an_address_that_cannot_be_resolved_is_an_error() -> None:
    readers = [{"pull": {"exporter": {"prometheus": {"host": "no-such-host.invalid", "port": 0}}}}]
    wanted = TelemetrySettings.model_validate({"metrics": {"readers": readers}})
    async with Metering(SystemClock()) as metering:
        with pytest.raises(CannotStart, match="cannot resolve"):
            await metering.start(wanted)


async def test_the_items_of_a_pipeline_of_one_signal_say_which_one() -> None:
    port = free_port()
    async with Metering(SystemClock()) as metering:
        await metering.start(settings(port))
        instruments = metering.measuring(settings(port)).instruments
        instruments.processor("batch", "traces/steps").incoming(3)
        instruments.processor("batch", "gpu").incoming(2)
        text = await page(port)
    assert sorted(line for line in text.splitlines() if line.startswith("otelcol_processor_incoming_items")) == [
        'otelcol_processor_incoming_items{otel_signal="traces",pipeline="traces/steps",processor="batch"} 3',
        'otelcol_processor_incoming_items{pipeline="gpu",processor="batch"} 2',
    ]


async def test_the_queue_of_a_removed_exporter_vanishes_from_the_page() -> None:
    class Queue:
        size, capacity, bytes, oldest_age = 3, 10, 0, 0.0

    port = free_port()
    async with Metering(SystemClock()) as metering:
        await metering.start(settings(port))
        remove: Callable[[], None] = (
            metering.measuring(settings(port)).instruments.exporter("gone").watch_queue(Queue(), ["request"])
        )
        text = await page(port)
        assert 'otelcol_exporter_queue_size{exporter="gone"} 3' in text
        assert 'otelcol_exporter_in_flight_requests{exporter="gone"} 1' in text
        remove()
        assert "gone" not in await page(port)


@pytest.mark.parametrize(
    ("other", "same"),
    [
        (settings(2), True),
        (settings(1, 2), True),
        (settings(1, logs={"level": "debug"}), True),
        (settings(1, resource={"a": "b"}), False),
        (settings(), False),
    ],
)
def test_only_other_resource_attributes_and_no_metrics_at_all_need_another_provider(
    other: TelemetrySettings, same: bool
) -> None:
    assert (meters_of(settings(1)) == meters_of(other)) is same


async def test_the_page_has_the_suffixes_that_its_reader_asks_for() -> None:
    """The OpenTelemetry Operator sets these keys."""
    plain, suffixed = free_port(), free_port()
    readers = [
        {"without_scope_info": True, "without_units": True, "without_type_suffix": True, "port": plain},
        {"without_scope_info": False, "without_units": False, "without_type_suffix": False, "port": suffixed},
    ]
    wanted = TelemetrySettings.model_validate(
        {
            "metrics": {
                "readers": [
                    {"pull": {"exporter": {"prometheus": reader | {"host": "127.0.0.1"}}}} for reader in readers
                ]
            }
        }
    )
    async with Metering(SystemClock()) as metering:
        await metering.start(wanted)
        assert "\notelcol_process_cpu_seconds " in await page(plain)
        text = await page(suffixed)
    assert "otelcol_process_cpu_seconds_total{" in text
    assert 'otel_scope_name="' in text


def test_one_suffix_without_the_other_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="must be equal"):
        PrometheusPull(without_units=False)
