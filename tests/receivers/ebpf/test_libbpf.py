"""The binding to libbpf: what goes wrong is told with what the kernel said."""

import errno
import platform
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from otel_zernel_receivers.ebpf import libbpf
from otel_zernel_receivers.ebpf.libbpf import Object
from otel_zernel_receivers.ebpf.libbpf_calls import BpfError
from otel_zernel_receivers.ebpf.tables import Limits

OBJECTS = Path(libbpf.__file__).parent / "objects" / platform.machine()


def test_an_error_carries_the_log_of_the_verifier(loadable: None) -> None:
    """A session's program asks whether it is at the return, which the kernel allows in sessions alone."""
    with Object(OBJECTS / "session.bpf.o") as bpf:
        Limits(max_processes=8, max_series=8).apply(bpf.maps)
        with pytest.raises(BpfError, match="bpf_session_is_return") as caught:
            bpf.load()
    assert caught.value.errno in (errno.EACCES, errno.EINVAL)
    first, *log = str(caught.value).splitlines()
    assert "loading the BPF programs" in first
    assert any("processed" in line and "insns" in line for line in log), "the end of the log is kept"


def test_a_missing_object_is_named(loadable: None, tmp_path: Path) -> None:
    with pytest.raises(BpfError, match="no-such") as caught:
        Object(tmp_path / "no-such.bpf.o")
    assert caught.value.errno == errno.ENOENT


def test_an_object_may_be_closed_twice(loadable: None) -> None:
    with closing(Object(OBJECTS / "classic.bpf.o")) as bpf:
        bpf.close()


def test_elements_of_an_array_must_fit_the_type(loadable: None) -> None:
    with Object(OBJECTS / "classic.bpf.o") as bpf:
        bpf.maps["counters"].max_entries = 8
        with pytest.raises(ValueError, match="elements of counters have 8 bytes"):
            bpf.maps["counters"].array(np.dtype("V7"))
