"""The binding to libbpf: its errors include the messages of the kernel."""

import errno
import platform
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from otel_zernel_receivers.ebpf.kernel import libbpf, libbpf_calls
from otel_zernel_receivers.ebpf.kernel.kernel_structs import ADDRESS
from otel_zernel_receivers.ebpf.kernel.libbpf import Object
from otel_zernel_receivers.ebpf.kernel.libbpf_calls import BpfError
from otel_zernel_receivers.ebpf.probes.loading import load
from otel_zernel_receivers.ebpf.tables.tables import Limits

OBJECTS = Path(libbpf.__file__).parents[1] / "objects" / platform.machine()


def test_an_error_carries_the_log_of_the_verifier(loadable: None) -> None:
    """A session program calls bpf_session_is_return(), which the kernel allows in sessions only."""
    with closing(Object(OBJECTS / "session.bpf.o")) as bpf:
        Limits(max_processes=8, max_series=8).apply(bpf.maps)
        with pytest.raises(BpfError, match="bpf_session_is_return") as caught:
            bpf.load()
    assert caught.value.errno in (errno.EACCES, errno.EINVAL)
    first, *log = str(caught.value).splitlines()
    assert "loading the BPF programs" in first
    assert any("processed" in line and "insns" in line for line in log), "the error has the end of the log"


def test_a_missing_object_is_named(loadable: None, tmp_path: Path) -> None:
    with pytest.raises(BpfError, match="no-such") as caught:
        Object(tmp_path / "no-such.bpf.o")
    assert caught.value.errno == errno.ENOENT


def test_an_object_may_be_closed_twice(loadable: None) -> None:
    with closing(Object(OBJECTS / "classic.bpf.o")) as bpf:
        bpf.close()


def test_keys_are_read_and_removed_in_bulk(loadable: None) -> None:
    with closing(load(Limits(max_processes=8, max_series=8))) as loaded:
        table = loaded.bpf.maps["allocations"]
        assert not len(table.keys(ADDRESS))
        keys = np.zeros(10_000, ADDRESS)
        keys["value"] = np.arange(len(keys))
        keys["row"] = keys["value"] % 3
        for key in keys:
            table.put(key.tobytes(), bytes(table.value_size))
        found = table.keys(ADDRESS)
        assert sorted(found["value"]) == list(range(len(keys)))
        assert (found["row"] == found["value"] % 3).all()
        for missing in keys[[1, 4, 9_997]]:
            table.delete(missing.tobytes())
        table.delete_all(keys[keys["row"] == 1])
        assert sorted(table.keys(ADDRESS)["value"]) == [value for value in range(len(keys)) if value % 3 != 1]


def test_a_refused_command_raises_the_kernel_s_error(loadable: None) -> None:
    with pytest.raises(BpfError) as caught:
        libbpf_calls.libbpf().bpf(-1, bytes(64), "trying")
    assert caught.value.errno == errno.EINVAL


def test_elements_of_an_array_must_fit_the_type(loadable: None) -> None:
    with closing(Object(OBJECTS / "classic.bpf.o")) as bpf:
        bpf.maps["counters"].max_entries = 8
        with pytest.raises(ValueError, match="elements of counters have 8 bytes"):
            bpf.maps["counters"].array(np.dtype("V7"))
