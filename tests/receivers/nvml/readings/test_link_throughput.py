"""The traffic of NVLink by the driver's counters, and the license of a vGPU."""

import pytest

from tests.receivers.nvml.reading import values
from tests.receivers.nvml.running import Boot, Host

BOARD, LINK, LICENSED = (
    "zernel.gpu.nvlink.throughput",
    "zernel.gpu.nvlink.link.throughput",
    "zernel.gpu.vgpu.licensed",
)
LINKS = {"metrics": {LINK: {"enabled": True}}}
DRIVER = "zernel.gpu.counter.source=driver network.io.direction="


def test_a_board_without_gpm_has_the_traffic_of_its_counters(driver: Boot) -> None:
    controls, host = driver("v100"), Host()
    controls.apply("gpu 0", "GpmSupport -", "Field 138.all = 1000", "Field 139.all = 0")
    with host.gpus() as gpus:
        assert values(gpus[0].scrape(), BOARD) == {}
        controls.apply("gpu 0", "Field 138.all = 21000", "Field 139.all = 50")
        host.clock.advance(10)
        rates = values(gpus[0].scrape(), BOARD)
    assert rates == {f"{DRIVER}transmit": 2000 * 1024, f"{DRIVER}receive": 5 * 1024}


def test_a_board_with_gpm_has_no_second_traffic(driver: Boot) -> None:
    driver("h100x8")
    host = Host()
    with host.gpus() as gpus:
        for _ in range(2):
            rates = values(gpus[0].scrape(), BOARD)
            host.clock.advance(10)
    assert len(rates) == 2
    assert all("profiler" in series for series in rates)


def test_each_link_has_its_traffic_if_it_is_enabled(driver: Boot) -> None:
    controls, host = driver("h100x8"), Host(LINKS)
    counters = [f"Field {field}{(link and f'.{link}') or ''}" for field in (138, 139) for link in range(18)]
    controls.apply("gpu 0", *(f"{counter} = {place}" for place, counter in enumerate(counters)))
    with host.gpus() as gpus:
        assert values(gpus[0].scrape(), LINK) == {}
        controls.apply("gpu 0", *(f"{counter} = {place + 10 * (place + 1)}" for place, counter in enumerate(counters)))
        host.clock.advance(10)
        rates = values(gpus[0].scrape(), LINK)
    assert len(rates) == 36
    assert rates[f"{DRIVER}transmit zernel.gpu.nvlink.link=0"] == 1024
    assert rates[f"{DRIVER}receive zernel.gpu.nvlink.link=17"] == 36 * 1024


def test_a_counter_that_was_reset_has_no_traffic_until_the_next_scrape(driver: Boot) -> None:
    controls, host = driver("v100"), Host()
    controls.apply("gpu 0", "GpmSupport -", "Field 138.all = 5000", "Field 139.all = 1")
    seen = []
    with host.gpus() as gpus:
        for count in (5000, 10, 110):
            controls.apply("gpu 0", f"Field 138.all = {count}")
            seen.append(values(gpus[0].scrape(), BOARD).get(f"{DRIVER}transmit"))
            host.clock.advance(1)
    assert seen == [None, None, 100 * 1024]


def test_after_failed_reads_the_traffic_is_the_mean_since_the_last_read(driver: Boot) -> None:
    controls, host = driver("v100"), Host()
    controls.apply("gpu 0", "GpmSupport -", "Field 139.all = 0")
    seen = []
    with host.gpus() as gpus:
        for count, answer in ((0, "0"), (1000, "0"), (2000, "!999"), (3000, "!999"), (4000, "0"), (5000, "0")):
            controls.apply("gpu 0", f"Field 138.all = {count}", f"FieldValues = {answer}")
            seen.append(values(gpus[0].scrape(), BOARD).get(f"{DRIVER}transmit"))
            host.clock.advance(1)
    assert seen == [None, 1000 * 1024, None, None, 1000 * 1024, 1000 * 1024]


def test_a_board_without_nvlink_has_no_traffic_and_no_failure(driver: Boot) -> None:
    driver("geforce")
    host = Host(LINKS)
    with host.gpus() as gpus:
        assert [values(gpus[0].scrape(), name) for name in (BOARD, LINK)] == [{}, {}]
    assert host.failed == []


@pytest.mark.parametrize(("features", "licensed"), [("0 0 0", 0), ("1 0 0", 0), ("1 0 1", 1)])
def test_a_vgpu_is_licensed_if_one_of_its_features_is(features: str, licensed: float, driver: Boot) -> None:
    driver("h200").apply("gpu 0", f"GridLicensableFeatures = {features}")
    with Host().gpus() as gpus:
        assert values(gpus[0].scrape(), LICENSED) == {"": licensed}
