"""Begins before a session is opened what it needs: the kernel verifies programs, and a thread searches libraries."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Self

from otel_zernel.component import Context
from otel_zernel_receivers.ebpf.config import EbpfConfig
from otel_zernel_receivers.ebpf.kernel.libbpf import Object
from otel_zernel_receivers.ebpf.kernel.libbpf_calls import BpfError, missing
from otel_zernel_receivers.ebpf.kernel.versions import RUNNING
from otel_zernel_receivers.ebpf.probes.attach_modes import NEEDED, Mode
from otel_zernel_receivers.ebpf.probes.loading import LoadedProbes, load, omissions, opened, variants, verified
from otel_zernel_receivers.ebpf.probes.search import PlaceSearch, files_to_probe
from otel_zernel_receivers.ebpf.processes.scanner import Scanner
from otel_zernel_receivers.ebpf.scanning import selection_of
from otel_zernel_receivers.ebpf.session import Session, limits_of
from otel_zernel_receivers.ebpf.tables.tables import Limits


class VerifiedAhead:
    """The object that this kernel most likely accepts, verified in a thread: it takes half a second, and no Python.

    Close it if it may not be used.
    """

    def __init__(self, limits: Limits) -> None:
        mode = next(mode for mode in Mode if NEEDED[mode] <= RUNNING)
        variant = variants(mode)[0]
        self._key = limits, mode, variant, omissions(variant)[0]
        self._bpf: Object | None = None
        self._is_verified = self._is_closed = False
        self._lock = threading.Lock()
        """Held while these three change."""
        self._thread = threading.Thread(target=self._load, name="zernel-verify", daemon=True)
        if not missing():
            try:
                self._bpf = opened(*self._key)
            except BpfError:
                return
            self._thread.start()

    def verified(self, limits: Limits, mode: Mode, variant: str, omitted: Sequence[str]) -> Object:
        """This object if it is the one, else another. It is given once, and the caller closes it. Raises BpfError."""
        if self._key == (limits, mode, variant, tuple(omitted)) and (bpf := self._take()):
            return bpf
        return verified(limits, mode, variant, omitted)

    def close(self) -> None:
        """Unloads the object if nobody has taken it, as soon as the kernel has verified it."""
        with self._lock:
            self._is_closed = True
            bpf = self._bpf if self._is_verified else None
            self._bpf = None
        if bpf:
            bpf.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _take(self) -> Object | None:
        if self._thread.ident is not None:
            self._thread.join()
        with self._lock:
            bpf, self._bpf = self._bpf, None
        return bpf

    def _load(self) -> None:
        bpf = self._bpf
        if bpf is None:
            return
        is_accepted = bpf.try_to_load()
        with self._lock:
            self._is_verified = True
            if is_accepted and not self._is_closed:
                return
            self._bpf = None
        bpf.close()


class SessionAhead:
    """A session that may be opened later, once or more often. The first one opens sooner."""

    def __init__(self, config: EbpfConfig) -> None:
        """Blocks for a scan of the processes."""
        with ExitStack() as stack:
            self._verifying = stack.enter_context(VerifiedAhead(limits_of(config)))
            self._search: PlaceSearch | None = PlaceSearch(at_any_cost=config.single_stepped)
            stack.callback(self._close_search)
            self._search.begin_all(files_to_probe(Scanner(selection=selection_of(config)).scan()))
            self._stack = stack.pop_all()

    @contextmanager
    def open(self, config: EbpfConfig, context: Context) -> Iterator[Session]:
        """The session, with the same configuration. Raises Unavailable."""
        search = self._search

        def verify(limits: Limits, mode: Mode, variant: str, omitted: Sequence[str]) -> Object:
            bpf = self._verifying.verified(limits, mode, variant, omitted)
            if search:
                search.settle()  # it would disturb the calibration that follows
            return bpf

        def loader(limits: Limits) -> LoadedProbes:
            return load(limits, verify=verify)

        with Session.open(config, context, loader, search) as session:
            self._search = None
            yield session

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _close_search(self) -> None:
        if self._search:
            self._search.close()
