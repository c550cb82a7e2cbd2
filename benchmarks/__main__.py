"""`make bench`: runs all benchmarks in this folder, or the named ones, and prints one table."""

import importlib
import pkgutil
import sys

import benchmarks
from benchmarks import BenchmarkRow


def main(names: list[str]) -> None:
    """Runs the benchmarks and prints their rows. A name is that of a file or a folder."""
    found = modules()
    unknown = [name for name in names if not any(name in module.split(".") for module in found)]
    if unknown:
        sys.exit(f"{unknown[0]} is no benchmark: name a file or a folder of benchmarks/")
    print(f"{'benchmark':<58} {'measured':>28}   bar")
    for module in found:
        if not names or any(name in module.split(".") for name in names):
            for row in importlib.import_module(module).run():
                print(_line(row), flush=True)


def modules() -> list[str]:
    """The modules with benchmarks, by their dotted names. `training` and `peers` have programs that they run."""
    walked = pkgutil.walk_packages(benchmarks.__path__, "benchmarks.")
    names = [module.name for module in walked if not module.ispkg]
    return [name for name in names if name.split(".")[1] not in ("__main__", "peers", "training")]


def _line(row: BenchmarkRow) -> str:
    mark = {True: "ok", False: "MISSED", None: ""}[row.ok]
    return f"{row.name:<58} {row.value:>28}   {row.bar} {mark}".rstrip()


if __name__ == "__main__":
    main(sys.argv[1:])
