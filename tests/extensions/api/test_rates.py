"""Each client has a bucket of its own, and the table of buckets has a bound."""

from otel_zernel.testing import FakeClock
from otel_zernel_extensions.api.rates import Rates


def test_a_rested_address_may_burst_and_then_keeps_its_rate() -> None:
    clock = FakeClock()
    rates = Rates(10, 5, clock.monotonic)
    assert [rates.wait("192.0.2.1") for _ in range(7)] == [0] * 5 + [1] * 2
    allowed = 0
    for _ in range(1000):
        clock.advance(0.01)
        allowed += rates.wait("192.0.2.1") == 0
    assert 99 <= allowed <= 101
    clock.advance(3600)
    assert [rates.wait("192.0.2.1") for _ in range(6)] == [0] * 5 + [1]


def test_addresses_do_not_share_but_an_ipv6_network_does() -> None:
    rates = Rates(1, 1, FakeClock().monotonic)
    first = [rates.wait(one) for one in ("192.0.2.1", "192.0.2.2", "2001:db8::1", "fe80::1%eth0", "")]
    second = [rates.wait(one) for one in ("::ffff:192.0.2.1", "2001:db8::2", "2001:db8:0:1::1", "fe80::2%eth1")]
    assert first == [0, 0, 0, 0, 0]
    assert second == [1, 1, 0, 1]


def test_a_flood_of_addresses_takes_bounded_memory() -> None:
    rates = Rates(1, 1, FakeClock().monotonic)
    for number in range(20_000):
        rates.wait(f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}")
    assert len(rates._buckets) == 10_000
    assert rates.wait("10.0.78.31") == 1
    assert rates.wait("10.0.0.0") == 0
