"""Counters of a GPU: they never fall without a new start time, and sums over links are complete."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_zernel_receivers.nvml.gpus.history import DriverCounter, PowerIntegral
from tests.receivers.nvml.reading import metrics, values
from tests.receivers.nvml.running import Boot, Host


def test_a_counter_that_the_driver_reset_gets_a_new_start_time(driver: Boot) -> None:
    controls, host = driver("h100x8"), Host()
    with host.gpus() as gpus:
        gpus[0].scrape()
        last = host.clock.time_ns()
        host.clock.advance(10)
        controls.apply("gpu 0", "Field 83 = 5000")
        (energy,) = metrics(gpus[0].scrape(), "hw.energy")
    point = energy.sum.data_points[0]
    assert (point.as_double, point.start_time_unix_nano) == (5.0, last)


@given(st.lists(st.integers(0, 2**31 - 1), max_size=30), st.integers(0, 2**32 - 1))
def test_a_wrapping_counter_has_the_sum_of_all_increments(increments: list[int], first: int) -> None:
    counter, true = DriverCounter(), first
    counter.update(first, 2.0**32, 0)
    for increment in increments:
        true += increment
        assert counter.update(true % 2**32, 2.0**32, 0) == true


@given(st.lists(st.integers(1, 2**40)))
def test_a_64_bit_counter_never_falls_without_a_new_start_time(raws: list[int]) -> None:
    counter, before, start = DriverCounter(), 0.0, 0
    for now, raw in enumerate(raws, 1):
        value = counter.update(raw, 0.0, now)
        assert value >= before or counter.start_ns > start
        before, start = value, counter.start_ns


def test_nvlink_errors_are_summed_over_links_on_boards_without_a_total(driver: Boot) -> None:
    links = [f"Field 161{(link and f'.{link}') or ''} = {link}" for link in range(18)]
    driver("h200").apply("gpu 0", *links, "Field 221.3 = 7u")
    with Host().gpus() as gpus:
        errors = values(gpus[0].scrape(), "zernel.gpu.nvlink.errors")
    assert errors == {"error.type=replay": sum(range(18)), "error.type=symbol": 7}


def test_energy_is_the_integral_of_power() -> None:
    energy = PowerIntegral()
    energy.add([(0, 100_000), (1_000_000, 100_000)])
    energy.add([(3_000_000, 300_000)])
    assert energy.joules == 100 + 400


def test_without_power_samples_energy_is_the_integral_of_scraped_power(driver: Boot) -> None:
    controls, host = driver("geforce"), Host()
    controls.apply("gpu 0", "Samples 0 -")
    with host.gpus() as gpus:
        gpus[0].scrape()
        host.clock.advance(10)
        found = values(gpus[0].scrape(), "hw.energy")
    assert found == {"zernel.gpu.energy.source=power_readings": pytest.approx(712.34)}


def test_a_sum_over_links_is_not_sent_if_a_link_fails_and_the_failure_is_counted(driver: Boot) -> None:
    controls, host = driver("h200"), Host()
    links = ["", *(f".{link}" for link in range(1, 18))]
    controls.apply("gpu 0", *(f"Field 161{link} = 5" for link in links), *(f"Field 165{link} = 1u" for link in links))
    with host.gpus() as gpus:
        assert values(gpus[0].scrape(), "zernel.gpu.nvlink.errors") == {"error.type=replay": 90}
        controls.apply("gpu 0", "Field 161.3 = !999", "Field 165.4 = !10")
        batch = gpus[0].scrape()
        assert values(batch, "zernel.gpu.nvlink.errors") == {}
        assert values(batch, "zernel.gpu.nvlink.links") == {}
        assert host.failed == [
            ("nvmlDeviceGetNvLinkState", "timeout"),
            ("NVML_FI_DEV_NVLINK_ERROR_DL_REPLAY", "unknown"),
        ]
        controls.apply("gpu 0", "Field 161.3 = 6", "Field 165.4 = 1u")
        (errors,) = metrics(gpus[0].scrape(), "zernel.gpu.nvlink.errors")
    assert [(data_point.as_double, data_point.start_time_unix_nano) for data_point in errors.sum.data_points] == [
        (91, 0)
    ]
