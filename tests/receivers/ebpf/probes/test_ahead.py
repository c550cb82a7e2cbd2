"""Programs that were verified before they are needed are used once, and only for what they were made for."""

from contextlib import closing

from otel_zernel.clock import SystemClock
from otel_zernel.testing import make_context
from otel_zernel_receivers.ebpf.config import EbpfConfig
from otel_zernel_receivers.ebpf.opening import SessionAhead, VerifiedAhead
from otel_zernel_receivers.ebpf.probes.loading import load
from otel_zernel_receivers.ebpf.receiver import EbpfReceiver
from otel_zernel_receivers.ebpf.tables.tables import Limits


def test_the_programs_are_used_once(loadable: None) -> None:
    limits = Limits(max_processes=8)
    with VerifiedAhead(limits) as ahead:
        for _ in range(2):
            with closing(load(limits, verify=ahead.verified)) as loaded:
                assert loaded.cost.call_ns > 0


def test_other_limits_need_other_programs(loadable: None) -> None:
    other = Limits(max_processes=16)
    with VerifiedAhead(Limits(max_processes=8)) as ahead, closing(load(other, verify=ahead.verified)) as loaded:
        assert loaded.bpf.maps["processes"].max_entries == 16


def test_a_session_that_is_never_opened_leaves_nothing(loadable: None) -> None:
    with SessionAhead(EbpfConfig()):
        pass


async def test_a_prepared_receiver_opens_its_session_again_and_again(loadable: None) -> None:
    config = EbpfConfig()
    with EbpfReceiver.prepared(config) as prepared:
        receiver = prepared(config, make_context(clock=SystemClock()))
        for number in (1, 1):
            with receiver._open_session(config, receiver.context) as session:
                session.attach()
                assert session.read().number == number
