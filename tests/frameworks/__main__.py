"""The command that scores programs."""

import argparse
import time
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.training.runs import Run
from tests.frameworks.programs import PROGRAMS
from tests.frameworks.report import keep, result_of, result_of_states
from tests.frameworks.running import TORCH, run, save, saved
from tests.frameworks.scoring import job_in, lines, scores
from tests.frameworks.thread_states import share_of_waits, states_of


def main() -> int:
    """Runs the programs. Returns 1 if one is below its floor."""
    parser = argparse.ArgumentParser(prog="python -m tests.frameworks", description=__doc__)
    parser.add_argument("programs", nargs="*", metavar="NAME", help=f"default: all of {', '.join(PROGRAMS)}")
    parser.add_argument("--slow", default="", help="loader, forward, optimizer or rank: takes longer in each step")
    parser.add_argument("--torch", default=TORCH, metavar="VERSION", help=f"of `make torches`; default: {TORCH}")
    parser.add_argument("--runs", type=Path, help="folder: score the runs in it, and add those that are missing")
    parser.add_argument("--keep", action="store_true", help="write the results to docs/frameworks.md")
    options = parser.parse_args()
    usual = [name for name, program in PROGRAMS.items() if options.torch == TORCH or program.package == "torch"]
    good = [_scored(name, options) for name in options.programs or usual]
    return int(not all(good))


def _scored(name: str, options: argparse.Namespace) -> bool:
    """Whether the program reaches its floor."""
    begin, program = time.monotonic(), PROGRAMS[name]
    try:
        watched = _run(name, options)
        if not program.scopes:
            return _scored_states(name, watched, keeps=options.keep)
        found = scores(watched, program)
    except RuntimeError as failed:
        print(f"{name}: {failed}", flush=True)
        return False
    if options.keep:
        keep([result_of(name, found, datetime.now(UTC).date())])
    print(*lines(name, found, program.floor), f"    {time.monotonic() - begin:.0f} s", sep="\n", flush=True)
    if program.ranks > 1:
        print(f"    {job_in(watched[0])}", flush=True)
    return all(one.agreement >= program.floor for one in found)


def _scored_states(name: str, watched: Run, *, keeps: bool) -> bool:
    share, (truth,) = share_of_waits(watched), watched[1]
    if keeps:
        keep([result_of_states(name, share, truth["versions"], datetime.now(UTC).date())])
    print(f"{name}: {share:.2%} of the waits for the GPU, {states_of(watched[0], truth['pid'])}", flush=True)
    return share >= PROGRAMS[name].floor


def _run(name: str, options: argparse.Namespace) -> Run:
    """A new run, or the kept one of the same job."""
    job = f"{PROGRAMS[name].job}-{PROGRAMS[name].ranks}-{options.slow}-{options.torch}".replace(":", ".")
    path = options.runs / f"{job}.json.gz" if options.runs else None
    if path and path.exists():
        return saved(path)
    made = run(name, options.slow, options.torch)
    if path:
        save(made, path)
    return made


if __name__ == "__main__":
    raise SystemExit(main())
