"""The hardware counters of Hopper: means between two scrapes."""

from otel_zernel.batch import Batch
from tests.receivers.nvml.reading import values
from tests.receivers.nvml.running import Boot, Host

ACTIVE = "zernel.gpu.engine.active"


def second_scrape(host: Host, after: float = 10.0) -> Batch:
    """The points of GPU 0 at the second scrape, `after` s after the first."""
    with host.gpus() as gpus:
        gpus[0].scrape()
        host.clock.advance(after)
        return gpus[0].scrape()


def test_traffic_far_above_32_bits_is_not_cut(driver: Boot) -> None:
    driver("h100x8").apply("gpu 0", "Gpm 20 = 60000")
    sent = values(second_scrape(Host()), "zernel.gpu.pcie.throughput")
    assert sent["zernel.gpu.counter.source=profiler network.io.direction=transmit"] == 60000 * 2**20


def test_a_unit_that_the_board_does_not_have_gives_no_point(driver: Boot) -> None:
    driver("h100x8")
    assert values(second_scrape(Host()), "zernel.gpu.c2c.throughput") == {}


def test_samples_less_than_100_ms_apart_are_not_compared(driver: Boot) -> None:
    driver("h100x8")
    assert values(second_scrape(Host(), after=0.05), ACTIVE) == {}


def test_after_a_failed_sample_the_next_two_are_compared(driver: Boot) -> None:
    controls, host = driver("h100x8"), Host()
    with host.gpus() as gpus:
        gpus[0].scrape()
        controls.apply("gpu 0", "GpmSample = !10")
        host.clock.advance(10)
        assert values(gpus[0].scrape(), ACTIVE) == {}
        controls.apply("gpu 0", "GpmSample -")
        found = []
        for _ in range(2):
            host.clock.advance(10)
            found.append(len(values(gpus[0].scrape(), ACTIVE)))
    assert found == [0, 8]


def test_a_mig_instance_has_its_own_counters(driver: Boot) -> None:
    driver("a100-mig").apply("gpu 0", "GpmSupport = 1", "Gpm 2 2 = 75", "Gpm 2 9 = 25")
    host = Host()
    with host.gpus() as gpus:
        gpus[0].scrape()
        host.clock.advance(10)
        found = [values(device.scrape(), ACTIVE) for device in gpus[0].instances]
    assert found == [{"zernel.gpu.engine=sm": 0.75}, {"zernel.gpu.engine=sm": 0.25}]
