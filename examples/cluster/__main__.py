"""`python -m examples.cluster` runs the chain, and shows the rows in the store. `--faults` breaks it meanwhile."""

import argparse
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp

from examples.cluster.chain import GATEWAYS, Chain
from examples.cluster.counting import Store, Stored
from examples.cluster.faults import Fault, UnknownFault, apply, chosen
from examples.cluster.front import Front, UnusablePort
from examples.cluster.network import network
from examples.cluster.recovery import Recovery
from examples.cluster.rows import write_rows
from examples.cluster.services import MissingService

_BATCH, _INTERVAL = 200, 0.2
_PACE = _BATCH / _INTERVAL
"""Rows in a second. Of each batch of rows, every streamer sends its quarter."""
_ROWS = 100_000
_WARM_UP, _FAULT = 12, 8
"""Seconds of rows before the first fault, and for each fault with its recovery."""
_REST, _LIMIT = 2.0, 120.0
"""Seconds after each recovery, and of the longest wait for a recovery or a new row."""


def main(words: Sequence[str] | None = None) -> int:
    """Returns 1 if a row is missing or is stored twice, or if the chain has not recovered from a fault."""
    options = _options(words)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    folder = Path(options.folder or mkdtemp(prefix="zernel-cluster-"))
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o755)
    is_kept = bool(options.folder)
    try:
        status = _in(folder, options)
        if status == 1:
            is_kept = True
            print(f"The logs stay in {folder}", file=sys.stderr)
        return status
    finally:
        if not is_kept:
            rmtree(folder, ignore_errors=True)


def _options(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m examples.cluster", description=__doc__)
    parser.add_argument("--rows", type=int, help=f"the rows of all streamers ({_ROWS:,}, or more for many faults)")
    parser.add_argument("--gateways", type=int, default=GATEWAYS, help=f"processes that answer over HTTP ({GATEWAYS})")
    parser.add_argument("--port", type=int, default=8080, help="the port of the gateways on localhost (8080)")
    parser.add_argument(
        "--faults", nargs="*", metavar="KIND:NODE", help="such as kill:broker; without one: every fault"
    )
    parser.add_argument("--folder", help="a folder for the logs and disks, which is kept")
    return parser.parse_args(words)


def _in(folder: Path, options: argparse.Namespace) -> int:
    """Runs the chain in a folder, and removes its disks and its network afterwards."""
    chain = Chain(folder, network(), folder / "rows.csv", _BATCH, f"{_INTERVAL * 1000:.0f}ms", options.gateways)
    try:
        chain.build()
        faults = [] if options.faults is None else chosen(options.faults, chain)
        rows = options.rows or max(_ROWS, round(_PACE * (_WARM_UP + _FAULT * len(faults))))
        write_rows(chain.rows, rows)
        if chain.gateways:
            Front(options.port, list(chain.gateways.values())).start()
        chain.start()
        return _run(chain, faults, rows, options.port)
    except (MissingService, UnknownFault, UnusablePort) as problem:
        print(problem, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print()
        return 130
    finally:
        chain.close()


def _run(chain: Chain, faults: Sequence[Fault], rows: int, port: int) -> int:
    store, start = Store(chain.store_url), time.monotonic()
    print(f"{len(chain.nodes)} processes: {', '.join(chain.nodes)}")
    print(f"Logs: {chain.folder}/*.log")
    if chain.gateways:
        print(f"REST API: http://localhost:{port}/swagger/index.html")
    failed = _break(chain, Recovery(chain, store, rows, _PACE), faults) if faults else 0
    stored = _wait_for_rows(chain, store, rows)
    seconds = time.monotonic() - start
    counts = f"stored {stored.rows:,}, missing {rows - stored.distinct:,}, duplicates {stored.duplicates:,}"
    print(f"\rsent {rows:,}, {counts}, {seconds:.0f} s")
    return 1 if stored.distinct < rows or stored.duplicates or failed else 0


def _wait_for_rows(chain: Chain, store: Store, rows: int) -> Stored:
    """The counts when all rows are stored, or after `_LIMIT` seconds without a new one."""
    stored, newest = store.count(), time.monotonic()
    while stored.distinct < rows and time.monotonic() - newest < _LIMIT:
        if sys.stdout.isatty():
            print(f"\r{stored.rows:,} of {rows:,} rows are stored", end="", flush=True)
        for _ in chain.wait(1):
            pass
        before, stored = stored, store.count()
        newest = time.monotonic() if stored.distinct > before.distinct else newest
    return stored


def _break(chain: Chain, recovery: Recovery, faults: Sequence[Fault]) -> int:
    """Makes one fault after another, and prints the time to recover from each. Returns the number without recovery."""
    minutes = -(-(_WARM_UP + _FAULT * len(faults)) // 60)
    print(
        f"{len(faults)} faults, about {minutes} min. The time to recover counts from the end of the fault.", flush=True
    )
    recovery.wait(10 * _WARM_UP)
    failed = 0
    for number, fault in enumerate(faults, 1):
        apply(fault, chain)
        seconds = recovery.wait(_LIMIT, fault.node)
        failed += seconds is None
        shown = "no recovery seen" if seconds is None else f"recovered in {seconds:.0f} s"
        print(f"{number:>2}/{len(faults)} {fault!s:<20} {shown}, {recovery.progress()}", flush=True)
        for _ in chain.wait(_REST):
            pass
    return failed


if __name__ == "__main__":
    sys.exit(main())
