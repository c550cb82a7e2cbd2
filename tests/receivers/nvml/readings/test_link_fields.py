"""Values over all links of a board, NVLink and C2C.

The traffic of NVLink by the driver's counters, and the license of a vGPU.
"""

import pytest

from tests.receivers.nvml.reading import values
from tests.receivers.nvml.running import Boot, Host

NVLINK, C2C = "zernel.gpu.nvlink.errors", "zernel.gpu.c2c.errors"
PACKETS, BIT_ERRORS = "zernel.gpu.nvlink.packet.io", "zernel.gpu.nvlink.bit_error_rate"


def of_links(field: int, links: int, value: str) -> list[str]:
    """Entries of the scenario with the value of a field for each link."""
    return [f"Field {field}{(link and f'.{link}') or ''} = {value}" for link in range(links)]


def test_errors_of_c2c_links_are_summed_over_the_links_of_the_board(driver: Boot) -> None:
    driver("h200").apply(
        "gpu 0", "Field 170 = 2u", "Field 231 = 1", "Field 231.1 = 2", "Field 231.2 = 4", "Field 233 = 7"
    )
    with Host().gpus() as gpus:
        assert values(gpus[0].scrape(), C2C) == {"error.type=crc": 3, "error.type=replay_back_to_back": 7}


@pytest.mark.parametrize("count", ["-", "= 0u", "= !3"])
def test_a_board_without_c2c_links_has_no_errors_of_them_and_no_failure(count: str, driver: Boot) -> None:
    host = Host()
    driver("h200").apply("gpu 0", f"Field 170 {count}", "Field 231 = 1")
    with host.gpus() as gpus:
        assert values(gpus[0].scrape(), C2C) == {}
    assert host.failed == []


def test_errors_of_c2c_links_are_not_sent_while_a_link_fails_and_the_failure_has_their_name(driver: Boot) -> None:
    controls, host = driver("h200"), Host()
    controls.apply("gpu 0", "Field 170 = 2u", "Field 232 = 1", "Field 232.1 = !10", "Field 233 = 2")
    with host.gpus() as gpus:
        assert values(gpus[0].scrape(), C2C) == {"error.type=replay_back_to_back": 2}
        assert host.failed == [("NVML_FI_DEV_C2C_LINK_ERROR_REPLAY", "timeout")]
        controls.apply("gpu 0", "Field 232.1 = 4")
        assert values(gpus[0].scrape(), C2C) == {"error.type=replay": 5, "error.type=replay_back_to_back": 2}


def test_bytes_of_nvlink_5_are_summed_far_above_32_bits(driver: Boot) -> None:
    driver("h200").apply("gpu 0", *of_links(202, 18, "900000000001"), *of_links(204, 18, "5"))
    with Host().gpus() as gpus:
        packets = values(gpus[0].scrape(), PACKETS)
    assert packets == {"network.io.direction=transmit": 18 * 900_000_000_001, "network.io.direction=receive": 90}


def test_the_bit_error_rate_is_that_of_the_worst_link(driver: Boot) -> None:
    links = [*of_links(220, 18, "0xfff"), "Field 220.7 = 0x30e", "Field 220.8 = 0x90f", *of_links(222, 18, "0xfff")]
    driver("h200").apply("gpu 0", *links)
    with Host().gpus() as gpus:
        rates = values(gpus[0].scrape(), BIT_ERRORS)
    assert rates == pytest.approx({"error.type=effective": 3e-14, "error.type=symbol": 15e-255})


def test_links_that_the_board_does_not_have_are_not_asked_again(driver: Boot) -> None:
    controls = driver("h200")
    controls.apply("gpu 0", *of_links(165, 18, "1u"), *of_links(161, 18, "1"))
    with Host().gpus() as gpus:
        assert values(gpus[0].scrape(), NVLINK) == {"error.type=replay": 18}
        controls.apply("gpu 0", "Field 161.18 = 5", *of_links(162, 18, "1"))
        assert values(gpus[0].scrape(), NVLINK) == {"error.type=replay": 18}


def test_an_inactive_link_counts_as_soon_as_it_answers(driver: Boot) -> None:
    controls = driver("h200")
    controls.apply("gpu 0", *of_links(165, 2, "1u"), "Field 165.1 = 0u", "Field 161 = 3", "Field 161.1 = !3")
    with Host().gpus() as gpus:
        assert values(gpus[0].scrape(), NVLINK) == {"error.type=replay": 3}
        controls.apply("gpu 0", "Field 165.1 = 1u", "Field 161.1 = 4")
        assert values(gpus[0].scrape(), NVLINK) == {"error.type=replay": 7}


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


@pytest.mark.parametrize(("features", "licensed"), [("0 0 0", 0), ("1 0 0", 0), ("1 0 1", 1)])
def test_a_vgpu_is_licensed_if_one_of_its_features_is(features: str, licensed: float, driver: Boot) -> None:
    driver("h200").apply("gpu 0", f"GridLicensableFeatures = {features}")
    with Host().gpus() as gpus:
        assert values(gpus[0].scrape(), LICENSED) == {"": licensed}
