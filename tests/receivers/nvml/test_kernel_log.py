"""XIDs from before the receiver's start are those of the kernel's log."""

import os
from pathlib import Path

import pytest

from otel_zernel_receivers.nvml.driver.kernel_log import LoggedXid, bus_id, kernel_log, logged_xids
from tests.receivers.nvml.reading import values
from tests.receivers.nvml.running import Boot, Host

RECORDS = (
    b"6,339,5140900,-;NVRM: loading NVIDIA UNIX x86_64 Kernel Module  580.159.04\n SUBSYSTEM=pci\n",
    b"4,1201,900000000,-;NVRM: Xid (PCI:0000:1b:00): 79, pid='<unknown>', GPU has fallen off the bus.\n",
    b"4,1202,910000000,c,caller=T4711;NVRM: Xid (PCI:0000:1b:00): 31, pid=4711, name=python, Ch 00000010, intr 1000\n",
    b"4,1203,920000000,-;NVRM: Xid (PCI:0000:3B:00.0): 48, DBE (double bit error)\n",
    b"4,1204,930000000,-;NVRM: Xid (PCI:odd): 13\n",
    b"6,1205,940000000,-;usb: Xid (PCI:0000:1b:00): 7\n",
    b"no record",
)
SECOND = 1_000_000_000
BOOTED = 1_700_000_000 * SECOND


def test_the_errors_of_each_gpu_have_their_times() -> None:
    found = logged_xids(RECORDS, BOOTED, BOOTED)
    assert found == {
        (0, 0x1B, 0): [LoggedXid(79, BOOTED + 900 * SECOND), LoggedXid(31, BOOTED + 910 * SECOND)],
        (0, 0x3B, 0): [LoggedXid(48, BOOTED + 920 * SECOND)],
    }


def test_older_errors_are_left_out() -> None:
    found = logged_xids(RECORDS, BOOTED, BOOTED + 905 * SECOND)
    assert [xid.code for xids in found.values() for xid in xids] == [31, 48]


@pytest.mark.parametrize(
    ("text", "number"),
    [("00000000:1B:00.0", (0, 27, 0)), ("0000:1b:00", (0, 27, 0)), ("0001:00:1e.0", (1, 0, 30)), ("", None)],
)
def test_a_device_has_one_number_in_the_log_and_in_nvml(text: str, number: tuple[int, int, int] | None) -> None:
    assert bus_id(text) == number


def test_a_machine_without_a_log_has_no_records(tmp_path: Path) -> None:
    assert list(kernel_log(tmp_path / "kmsg")) == []


def test_the_log_is_read_to_its_end_without_waiting_for_more(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "kmsg")
    with (tmp_path / "kmsg").open("r+b", buffering=0) as log:
        log.write(RECORDS[1])
        assert list(kernel_log(tmp_path / "kmsg")) == [RECORDS[1]]


def test_errors_from_before_the_start_count_for_their_gpu_and_are_no_failure_of_it(driver: Boot) -> None:
    driver("h100x8")
    host = Host()
    host._registry.logged_xids.update(logged_xids(RECORDS, BOOTED, BOOTED))
    with host.gpus() as gpus:
        batch = gpus[1].scrape()
        assert values(batch, "zernel.gpu.xid.errors") == {"zernel.gpu.xid.code=79": 1.0, "zernel.gpu.xid.code=31": 1.0}
        assert values(batch, "zernel.gpu.xid.last_time")["zernel.gpu.xid.code=79"] == BOOTED / 1e9 + 900
        assert values(batch, "hw.status")["hw.state=failed"] == 0
        assert values(gpus[0].scrape(), "zernel.gpu.xid.errors") == {}
