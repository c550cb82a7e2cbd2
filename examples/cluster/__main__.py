"""`python -m examples.cluster` runs the chain, and shows the rows in the store. `--faults` breaks it meanwhile."""

import argparse
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from examples.cluster.chain import GATEWAYS, Chain
from examples.cluster.counting import Store
from examples.cluster.faults import Fault, all_faults, apply, recovery
from examples.cluster.front import Front
from examples.cluster.network import network
from examples.cluster.rows import write_rows
from examples.cluster.services import MissingService

_BATCH, _INTERVAL = 200, 0.2
_PACE = _BATCH / _INTERVAL
"""Rows in a second. Of each batch of rows, every streamer sends its quarter."""
_WARM_UP, _REST, _LIMIT = 12.0, 2.0, 120.0
"""Seconds before the first fault, after each recovery, and of the longest recovery."""


def main(words: Sequence[str] | None = None) -> int:
    """Returns 1 if a row is missing or is stored twice."""
    options = _options(words)
    with _folder(options.folder) as folder:
        Path(folder).chmod(0o755)
        rows = Path(folder) / "rows.csv"
        write_rows(rows, options.rows)
        interval = f"{_INTERVAL * 1000:.0f}ms"
        chain = Chain(Path(folder), network(), rows, _BATCH, interval, options.gateways)
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
        try:
            chain.build()
            chain.start()
            return _run(chain, options)
        except MissingService as missing:
            print(missing, file=sys.stderr)
            return 2
        except KeyboardInterrupt:
            print()
            return 130
        finally:
            chain.close()


def _folder(kept: str | None) -> AbstractContextManager[str]:
    if kept is None:
        return tempfile.TemporaryDirectory(prefix="zernel-cluster-")
    Path(kept).mkdir(parents=True, exist_ok=True)
    return nullcontext(kept)


def _options(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m examples.cluster", description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000, help="the rows of all streamers (100,000)")
    parser.add_argument("--gateways", type=int, default=GATEWAYS, help=f"processes that answer over HTTP ({GATEWAYS})")
    parser.add_argument("--port", type=int, default=8080, help="the port of the gateways on localhost (8080)")
    parser.add_argument(
        "--faults", nargs="*", metavar="KIND:NODE", help="such as kill:broker; without one: every fault"
    )
    parser.add_argument("--folder", help="a folder for the logs and disks, which is kept")
    return parser.parse_args(words)


def _run(chain: Chain, options: argparse.Namespace) -> int:
    store, start = Store(chain.store_url), time.monotonic()
    if chain.gateways:
        Front(options.port, chain.gateways).start()
    print(f"{len(chain.nodes)} processes: {', '.join(chain.nodes)}; their logs are in {chain.folder}")
    if chain.gateways:
        print(f"http://localhost:{options.port}/swagger/index.html")
    if options.faults is not None:
        _break(chain, store, options)
    while (stored := store.count()).distinct < options.rows:
        print(f"\r{stored.rows:,} of {options.rows:,} rows are stored", end="", flush=True)
        for _ in chain.wait(1):
            pass
    missing, seconds = options.rows - stored.distinct, time.monotonic() - start
    counts = f"stored {stored.rows:,}, missing {missing}, duplicates {stored.duplicates}"
    print(f"\rsent {options.rows:,}, {counts}, {seconds:.0f} s")
    return 1 if missing or stored.duplicates else 0


def _break(chain: Chain, store: Store, options: argparse.Namespace) -> None:
    """Makes one fault after another, and prints the time to recover from each."""
    wanted = [Fault(*word.split(":", 1)) for word in options.faults] or all_faults(chain)
    recovery(chain, store, options.rows, _PACE, 10 * _WARM_UP)
    for fault in wanted:
        apply(fault, chain)
        seconds = recovery(chain, store, options.rows, _PACE, _LIMIT)
        shown = "not recovered" if seconds is None else f"recovered in {seconds:.0f} s"
        print(f"{fault!s:<24} {shown}, {store.count().rows:,} rows are stored", flush=True)
        for _ in chain.wait(_REST):
            pass


if __name__ == "__main__":
    sys.exit(main())
