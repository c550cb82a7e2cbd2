"""The order of the rooms: imports run downwards, no component imports another, and no imports form a circle.

docs/development/architecture.md has the picture. Imports for types only count like any other. Classes have few public
methods, and files few imports: both measure how much a reader has to know at once.
"""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = {
    "otel_zernel": ROOT / "otel_zernel",
    **{
        f"otel_zernel_{kind}": ROOT / kind / f"otel_zernel_{kind}"
        for kind in ("libraries", "receivers", "processors", "exporters", "extensions", "commands")
    },
}

HOUSES: dict[str, list[set[str]]] = {
    "otel_zernel": [
        {"cli", "__main__"},
        {"engine"},
        {"telemetry"},
        {"config"},
        {"otlp"},
        {
            *("__init__", "component", "command", "batch", "errors", "clock", "health", "registry", "types", "text"),
            *("delivery_config", "repeated", "runtime", "storage", "authentication", "testing", "once"),
            "protobuf",
        },
    ],
    "otel_zernel_libraries": [
        {"store"},
        {"clients"},
        {"prometheus"},
        {"serving", "gpu_names", "attributes", "cluster"},
        {"training"},
        {"histograms", "files"},
        {"conditions", "arrays", "protobuf", "job_choice", "recordings", "command_options", "output_files"},
        {
            "job_environment",
            "freed_memory",
            "pid_namespace",
            "repeated_fields",
            "resources",
            "zstd",
            "extras",
            "__init__",
        },
    ],
    "otel_zernel_libraries.store": [
        {"opening"},
        {"queries"},
        {"postgres", "sqlite"},
        {"reading", "writer"},
        {"config", "exotic"},
        {"address"},
        {"rows", "schema", "statement"},
        {"__init__"},
    ],
    "otel_zernel_receivers.ebpf": [
        {
            *("__init__", "receiver", "opening", "session", "records", "scanning", "probed_files"),
            "doctor",
        },
        {"hangs"},
        {"emit"},
        {"budget"},
        {"sampler"},
        {"probes"},
        {"processes"},
        {"tables"},
        {"binaries"},
        {"kernel"},
        {"config"},
    ],
    "otel_zernel_receivers.heartbeat": [
        {"__init__", "receiver", "declared"},
        {"grpc", "http"},
        {"fleet"},
        {"config"},
    ],
    "otel_zernel_receivers.nvml": [
        {"__init__", "receiver", "watching", "doctor", "declared"},
        {"gpus"},
        {"config"},
        {"readings"},
        {"points"},
        {"driver"},
    ],
    "otel_zernel_commands.why": [
        {"__init__", "command", "demo", "session", "progress", "comparison", "assistant"},
        {"rendering", "tracking"},
        {"findings"},
        {"watch"},
        {"beginning", "prerequisites", "started_program", "terminal"},
    ],
    "otel_zernel_commands.watch": [
        {"__init__", "command", "session"},
        {"sources", "terminal", "screens"},
        {"reading", "styled"},
    ],
    "otel_zernel_receivers.prometheus": [
        {"__init__", "receiver"},
        {"scraping"},
        {"discovery", "points"},
        {"relabelling"},
        {"pages"},
        {"config", "declared"},
    ],
    "otel_zernel_extensions.tasks": [
        {"__init__", "extension"},
        {"api"},
        {"supervisor"},
        {"states"},
        {"config", "declared"},
        {"engines"},
    ],
    "otel_zernel_extensions.file_storage": [
        {"__init__", "extension"},
        {"journal"},
        {"config", "disk"},
    ],
    "otel_zernel_receivers.csv": [
        {
            "__init__",
            "receiver",
            "reading",
            "conversion",
            "reader",
            "rejects",
            "headers",
        },
        {"encoding"},
        {"parsing"},
        {"layouts"},
        {"config", "declared"},
    ],
    "otel_zernel_processors.percentiles": [
        {"__init__", "processor", "aggregation"},
        {"intake", "emit"},
        {"counts"},
        {"config", "declared"},
    ],
    "otel_zernel_exporters.otlp": [
        {"__init__", "grpc_exporter", "http_exporter"},
        {"unwanted"},
        {"answers"},
        {"connections"},
        {"config", "signals", "time_lines", "classic"},
    ],
    "otel_zernel_exporters.kafka": [
        {"__init__", "exporter", "sending"},
        {"layout"},
        {"config", "declared"},
    ],
    "otel_zernel_exporters.live": [
        {"__init__", "exporter"},
        {"streaming", "page"},
        {"live_state"},
        {"rendering"},
        {"config", "declared"},
    ],
    "otel_zernel_processors.kubernetes": [
        {"__init__", "processor", "sources", "resources", "seen", "lookup", "enrichment", "doctor"},
        {"places", "pods", "gpus"},
        {"config", "declared"},
    ],
    "otel_zernel_processors.phases": [
        {
            *("__init__", "processor", "host", "jobs", "job_log", "followed_job", "job_traces", "rank_reports"),
            *("process", "process_phases", "process_steps", "process_registry", "hang_watch", "hosts"),
        },
        {"emit"},
        {"results"},
        {"alignment"},
        {"signals"},
        {"scopes"},
        {"intake"},
        {"config"},
    ],
}
"""The floors of each house that has rooms, the highest first. The files of one floor's door are one room."""


@cache
def modules() -> dict[str, Path]:
    """Every module by its dotted name; a package is `package.__init__`."""
    found = {}
    for package, folder in SOURCES.items():
        for path in folder.rglob("*.py"):
            found[".".join((package, *path.relative_to(folder).with_suffix("").parts))] = path
    return found


@cache
def tree_of(module: str) -> ast.Module:
    return ast.parse(modules()[module].read_text("utf-8"))


def resolved(name: str) -> str | None:
    """The module of ours that an import of `name` loads; None for others' modules."""
    return next((one for one in (name, f"{name}.__init__") if one in modules()), None)


@cache
def imports(module: str) -> frozenset[str]:
    """The modules of ours that a module imports, wherever in the file, for types too."""
    return frozenset(one for node in ast.walk(tree_of(module)) for one in _imported(node)) - {module}


def relative_imports(tree: ast.Module) -> list[str]:
    """The relative imports of a file. `imports` does not resolve them."""
    return [
        ast.unparse(node)
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.level or not node.module)
    ]


def _imported(node: ast.AST) -> Iterator[str]:
    names: list[str | None] = []
    if isinstance(node, ast.Import):
        names = [resolved(alias.name) for alias in node.names]
    elif isinstance(node, ast.ImportFrom) and node.module:
        names = [resolved(f"{node.module}.{alias.name}") or resolved(node.module) for alias in node.names]
    yield from (name for name in names if name)


def component_of(module: str) -> str | None:
    """Package and component, such as `otel_zernel_receivers.csv`; None for the core, the libraries and a package's own
    files."""
    package, *rest = module.split(".")
    return f"{package}.{rest[0]}" if package not in ("otel_zernel", "otel_zernel_libraries") and len(rest) > 1 else None


def floor_of(house: str, module: str) -> tuple[int, str]:
    """The floor, 0 for the highest, and the room: the folder, or the floor's file."""
    room = module.removeprefix(f"{house}.").split(".")[0]
    (floor,) = (number for number, rooms in enumerate(HOUSES[house]) if room in rooms)
    return floor, room


def test_no_import_is_relative() -> None:
    found = {name: relative_imports(tree_of(name)) for name in modules()}
    assert {name: imported for name, imported in found.items() if imported} == {}


def test_a_relative_import_is_found() -> None:
    source = "from . import x\nfrom .x import y\nfrom x import y"
    assert relative_imports(ast.parse(source)) == ["from . import x", "from .x import y"]


def test_the_core_imports_no_component() -> None:
    core = [module for module in modules() if module.startswith("otel_zernel.")]
    assert {(one, other) for one in core for other in imports(one) if not other.startswith("otel_zernel.")} == set()


def test_the_libraries_import_themselves_and_the_core_alone() -> None:
    libraries = [module for module in modules() if module.startswith("otel_zernel_libraries.")]
    lower = ("otel_zernel.", "otel_zernel_libraries.")
    assert {
        (library, other) for library in libraries for other in imports(library) if not other.startswith(lower)
    } == set()


def test_a_component_imports_the_core_the_libraries_and_itself_alone() -> None:
    others = {
        (module, other)
        for module in modules()
        for other in imports(module)
        if component_of(module) and component_of(other) and component_of(module) != component_of(other)
    }
    assert others == set()


def test_a_component_imports_nothing_of_the_engine() -> None:
    engine = {
        (module, other)
        for module in modules()
        for other in imports(module)
        if component_of(module)
        and not module.startswith("otel_zernel_commands.")
        and other.startswith(("otel_zernel.engine.", "otel_zernel.cli."))
    }
    assert engine == set()


@pytest.mark.parametrize("house", HOUSES)
def test_every_room_has_its_floor(house: str) -> None:
    rooms = {module.removeprefix(f"{house}.").split(".")[0] for module in modules() if module.startswith(f"{house}.")}
    assert rooms == set().union(*HOUSES[house])


@pytest.mark.parametrize("house", HOUSES)
def test_imports_run_downwards(house: str) -> None:
    upwards = []
    for module in modules():
        for other in imports(module) if module.startswith(f"{house}.") else ():
            if other.startswith(f"{house}."):
                (floor, room), (its_floor, its_room) = floor_of(house, module), floor_of(house, other)
                if its_floor < floor or (
                    its_floor == floor and room != its_room and 0 < floor < len(HOUSES[house]) - 1
                ):
                    upwards.append((module, other))
    assert upwards == []


def test_nothing_imports_in_a_circle() -> None:
    left = set(modules())
    while free := {one for one in left if not imports(one) & left or not any(one in imports(other) for other in left)}:
        left -= free
    assert {one: sorted(imports(one) & left) for one in left} == {}


MOST_CORE_LINES = 13_000


def test_the_core_stays_small() -> None:
    """What several components share, and the core does not need, belongs to the libraries."""
    core = [path.read_text("utf-8").count("\n") for name, path in modules().items() if name.startswith("otel_zernel.")]
    assert sum(core) < MOST_CORE_LINES


MOST_METHODS, MOST_IMPORTS = 15, 25
"""Of a class, and of a file."""


def public_methods(tree: ast.Module) -> dict[str, int]:
    """The number of public methods that each class of a file defines, also classes within others and in functions.

    A class has its line behind its name, since two may have one name. A property is an attribute, not a method.
    """
    return {
        f"{node.name}:{node.lineno}": sum(map(_is_public_method, node.body))
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    }


def _is_public_method(node: ast.stmt) -> bool:
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or node.name.startswith("_"):
        return False
    decorators = {ast.unparse(decorator).rpartition(".")[2] for decorator in node.decorator_list}
    return decorators.isdisjoint({"property", "cached_property", "setter", "overload"})


def imported_modules(tree: ast.Module) -> set[str]:
    """The modules that a file imports, wherever in the file: ours, those of packages and the standard library's.

    Several names of one module count once. So does a package that passes on names of its modules: it is the one door
    that a reader has to know.
    """
    modules: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            modules.add(str(node.module))
    return modules


def test_a_class_has_few_public_methods() -> None:
    counts = {
        f"{module}.{name}": count for module in modules() for name, count in public_methods(tree_of(module)).items()
    }
    assert {name for name, count in counts.items() if count > MOST_METHODS} == set()


def test_a_file_has_few_imports() -> None:
    counts = {name: len(imported_modules(tree_of(name))) for name in modules()}
    assert {name for name, count in counts.items() if count > MOST_IMPORTS} == set()


def test_methods_and_imports_are_counted_as_the_rules_say() -> None:
    source = """
import os, sys
from os import path, sep
class A:
    def one(self): import json
    async def two(self): ...
    @property
    def attribute(self): ...
    @classmethod
    def made(cls): ...
    def _private(self): ...
    class A:
        def inner(self): ...
"""
    assert public_methods(ast.parse(source)) == {"A:4": 3, "A:12": 1}
    assert imported_modules(ast.parse(source)) == {"os", "sys", "json"}


def test_only_the_bpf_program_includes_our_headers() -> None:
    """It includes them one after the other, each once, so a header uses only those above it."""
    included = {
        path.name: re.findall(r'^\s*#\s*include\s*"([^"]+)"', path.read_text("utf-8"), re.MULTILINE)
        for path in (ROOT / "bpf").glob("*.bpf.[ch]")
    }
    ours = included.pop("zernel.bpf.c")
    assert {name: headers for name, headers in included.items() if headers} == {}
    assert sorted(ours) == sorted(included)


def test_a_variable_is_named_after_what_it_holds() -> None:
    """`one` and `found` fit every value."""
    named = {
        f"{module}:{node.lineno}"
        for module in modules()
        for node in ast.walk(tree_of(module))
        if (isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id in ("one", "found"))
        or (isinstance(node, ast.arg) and node.arg in ("one", "found"))
    }
    assert not named
