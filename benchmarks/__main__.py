"""`make bench`: runs all benchmarks of this folder, or the named ones, and prints one table."""

import importlib
import pkgutil
import sys

import benchmarks
from benchmarks import BenchmarkRow


def main(names: list[str]) -> None:
    """Runs the benchmarks and prints their rows."""
    modules = pkgutil.iter_modules(benchmarks.__path__)
    found = [module.name for module in modules if not module.ispkg and not module.name.startswith("_")]
    print(f"{'benchmark':<58} {'measured':>28}   bar")
    for name in names or found:
        for row in importlib.import_module(f"benchmarks.{name}").run():
            print(_line(row), flush=True)


def _line(row: BenchmarkRow) -> str:
    mark = {True: "ok", False: "MISSED", None: ""}[row.ok]
    return f"{row.name:<58} {row.value:>28}   {row.bar} {mark}".rstrip()


if __name__ == "__main__":
    main(sys.argv[1:])
