"""Begins before a session is opened what it needs: the kernel verifies programs, and a thread searches libraries."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Self

from otel_zernel.component import Context
from otel_zernel_receivers.ebpf.config import EbpfConfig
from otel_zernel_receivers.ebpf.kernel.libbpf import Object
from otel_zernel_receivers.ebpf.probes.ahead import VerifiedAhead
from otel_zernel_receivers.ebpf.probes.attach_modes import Mode
from otel_zernel_receivers.ebpf.probes.loading import LoadedProbes, load
from otel_zernel_receivers.ebpf.probes.search import PlaceSearch, files_to_probe
from otel_zernel_receivers.ebpf.processes.scanner import Scanner
from otel_zernel_receivers.ebpf.scanning import selection_of
from otel_zernel_receivers.ebpf.session import Session, limits_of
from otel_zernel_receivers.ebpf.tables.tables import Limits


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

        def verified(limits: Limits, mode: Mode, variant: str, omitted: Sequence[str]) -> Object:
            bpf = self._verifying.verified(limits, mode, variant, omitted)
            if search:
                search.settle()  # it would disturb the calibration that follows
            return bpf

        def loader(limits: Limits) -> LoadedProbes:
            return load(limits, verify=verified)

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
