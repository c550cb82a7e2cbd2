"""What is left out is told with what to do about it."""

import logging

import pytest

from otel_zernel.testing import make_context
from otel_zernel_receivers.ebpf.emit import skipped
from otel_zernel_receivers.ebpf.emit.skipped import LeftOut
from otel_zernel_receivers.ebpf.kernel.capabilities import Capability
from otel_zernel_receivers.ebpf.processes.scanner import Reason


def test_every_reason_has_advice() -> None:
    assert all(skipped.advice(reason, set()) for reason in Reason)


def test_who_has_the_capability_is_not_told_to_get_it() -> None:
    assert "take CAP_SYS_PTRACE" in skipped.advice(Reason.PERMISSION, set())
    assert "CAP_SYS_PTRACE" not in skipped.advice(Reason.PERMISSION, {Capability.CAP_SYS_PTRACE})


@pytest.mark.parametrize(("held", "level"), [(set(), logging.WARNING), ({Capability.CAP_SYS_PTRACE}, logging.INFO)])
def test_what_cannot_be_helped_is_no_warning(
    held: set[Capability], level: int, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(skipped, "held", lambda: held)
    with caplog.at_level(logging.INFO):
        LeftOut(make_context().logger).take({Reason.PERMISSION: 3})
    [record] = caplog.records
    assert (record.levelno, record.getMessage()[:21]) == (level, "Left out (3): process")
