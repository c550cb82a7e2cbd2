"""The command that scores programs."""

import argparse
import time

from tests.frameworks.programs import PROGRAMS
from tests.frameworks.report import keep, result_of
from tests.frameworks.running import run
from tests.frameworks.scoring import lines, scores


def main() -> int:
    """Runs the programs. Returns 1 if one is below its floor."""
    parser = argparse.ArgumentParser(prog="python -m tests.frameworks", description=__doc__)
    parser.add_argument("programs", nargs="*", choices=[*PROGRAMS, []], metavar="NAME", help=", ".join(PROGRAMS))
    parser.add_argument("--slow", default="", help="loader, forward, optimizer or rank: takes longer in each step")
    parser.add_argument("--keep", action="store_true", help="write the results to docs/frameworks.md")
    options = parser.parse_args()
    low = 0
    for name in options.programs or PROGRAMS:
        begin, program = time.monotonic(), PROGRAMS[name]
        try:
            found = scores(run(name, options.slow), program)
        except RuntimeError as failed:
            low += 1
            print(f"{name}: {failed}", flush=True)
            continue
        if options.keep:
            keep([result_of(name, found)])
        low += sum(one.agreement < program.floor for one in found)
        print(*lines(name, found, program.floor), f"    {time.monotonic() - begin:.0f} s", sep="\n", flush=True)
    return int(low > 0)


if __name__ == "__main__":
    raise SystemExit(main())
