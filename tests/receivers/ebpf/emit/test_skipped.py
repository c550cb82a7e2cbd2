"""Each reason to skip a process or file is logged with what to do."""

import logging

import pytest

from otel_zernel.testing import make_context
from otel_zernel_receivers.ebpf.emit import skipped
from otel_zernel_receivers.ebpf.emit.skipped import SkippedLog, skipped_sentence
from otel_zernel_receivers.ebpf.kernel.capabilities import Capability
from otel_zernel_receivers.ebpf.processes.scanner import Reason


def test_every_reason_has_a_sentence_with_the_number_of_items() -> None:
    assert all(skipped_sentence(reason, 3, set()).startswith("Cannot ") for reason in Reason)
    of_files = {Reason.UNREACHABLE_FILE, Reason.TOO_MANY_FILES, Reason.REPLACED_CODE}
    assert all("3 processes" in skipped_sentence(reason, 3, set()) for reason in set(Reason) - of_files)
    assert all("3 mapped files," in skipped_sentence(reason, 3, set()) for reason in of_files)
    assert "1 mapped file," in skipped_sentence(Reason.UNREACHABLE_FILE, 1, set())


def test_a_held_capability_is_not_advised() -> None:
    assert "give the collector CAP_SYS_PTRACE" in skipped_sentence(Reason.PERMISSION, 1, set())
    assert "give the collector" not in skipped_sentence(Reason.PERMISSION, 1, {Capability.CAP_SYS_PTRACE})


@pytest.mark.parametrize(("held", "level"), [(set(), logging.WARNING), ({Capability.CAP_SYS_PTRACE}, logging.INFO)])
def test_processes_that_no_capability_opens_are_logged_as_info(
    held: set[Capability], level: int, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(skipped, "held", lambda: held)
    with caplog.at_level(logging.INFO):
        SkippedLog(make_context().logger).update({Reason.PERMISSION: 3})
    [record] = caplog.records
    assert (record.levelno, record.getMessage()[:26]) == (level, "Cannot inspect 3 processes")
