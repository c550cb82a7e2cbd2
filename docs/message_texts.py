"""Finds every error and warning of the collector in its source: log calls, raised errors, findings of `doctor`."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import product
from pathlib import Path

ROOT = Path(__file__).parent.parent
GAP = "…"
"""Stands for a value within a message."""

_ROOTS = ("otel_zernel", "libraries", "receivers", "processors", "exporters", "extensions", "commands")
_LOG_CALLS = {"warning": "warning", "error": "error", "exception": "error", "log": "warning"}
_CALLS = {
    "_warn": (0, "warning"),
    "warn": (1, "warning"),
    "fail": (0, "command line"),
    "FileNotFoundError": (0, "start"),
}
"""Calls that get a message: its position among the arguments, and where a user reads it."""
_PLACES = {
    "CannotStart": "start",
    "WrongUsage": "command line",
    "Refused": "refused",
    "Rejected": "dropped",
    "Permanent": "dropped",
    "Correctable": "kept",
    "Retryable": "retried",
}
"""Where a user reads the message of an exception."""
_PLACEHOLDER = re.compile(r"%(?:%|[-+0#]*\d*(?:\.\d+)?[a-z])")
_WORD = re.compile(r"[A-Za-z]{3}")
_DEEPEST = 9
"""Steps from a call to the text of its message, through names and functions, at most."""

Key = tuple[str, str]
"""A component's folder and a message."""
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, eq=False)
class SourceFile:
    """One file of the collector."""

    path: Path
    """Relative to the root of the repository."""
    tree: ast.Module

    @property
    def component(self) -> str:
        """`receivers/csv`; `otel_zernel` for all of the core, and for the libraries."""
        first, *rest = self.path.parts
        return "otel_zernel" if first in ("otel_zernel", "libraries") else f"{first}/{rest[1]}"

    @property
    def validates(self) -> bool:
        """Whether its `ValueError` becomes a mistake in the configuration."""
        return "config" in self.path.parts or self.path.stem.endswith(("config", "environment", "types"))

    @cached_property
    def nodes(self) -> "list[tuple[ast.Call | Function | ast.ClassDef, _Scope]]":
        """All calls, functions and classes, each with the function in which it stands."""
        return list(_nodes(self.tree, _Scope(self, None)))

    @cached_property
    def functions(self) -> Mapping[str, Function]:
        return {node.name: node for node, _ in self.nodes if isinstance(node, Function)}

    @cached_property
    def names(self) -> Mapping[str, ast.expr]:
        """The values that the file gives to names."""
        return _assigned(self.tree.body)

    def message_classes(self) -> Iterator[tuple[str, tuple[int, str]]]:
        """The classes that get a message: its position among the arguments, and where a user reads it."""
        for node, _ in self.nodes:
            if not isinstance(node, ast.ClassDef):
                continue
            fields = [_name(one.target) for one in node.body if isinstance(one, ast.AnnAssign)]
            if any(_name(base).endswith(("Error", "Exception", "Failed", "Retryable")) for base in node.bases):
                own = "disabled" if node.name.endswith(("Unavailable", "NoAnswer")) else "reason"
                yield node.name, (0, _PLACES.get(node.name, own))
            elif {"text", "ok"} <= {*fields}:
                yield node.name, (fields.index("text"), "doctor")
            elif {"path", "message"} <= {*fields}:
                yield node.name, (fields.index("message"), "configuration")


@dataclass(frozen=True)
class _Scope:
    """Where an expression stands, and where a user reads the message that it becomes."""

    file: SourceFile
    function: Function | None
    place: str = ""
    depth: int = 0

    @property
    def parameters(self) -> list[str]:
        """Those of the function, as its callers count them."""
        return [arg.arg for arg in self.function.args.args if arg.arg != "self"] if self.function else []

    def value(self, name: str) -> ast.expr | None:
        """The value that the function, else the file, gives to a name."""
        local = _names_in(self.function) if self.function else {}
        return local.get(name) or self.file.names.get(name)


def source_files() -> list[SourceFile]:
    """All files of the collector, without `testing.py`, which only tests use."""
    paths = [path for root in _ROOTS for path in sorted((ROOT / root).rglob("*.py")) if path.name != "testing.py"]
    return [SourceFile(path.relative_to(ROOT), ast.parse(path.read_text("utf-8"))) for path in paths]


def messages(files: Iterable[SourceFile]) -> dict[Key, str]:
    """Every message of the files and the places where a user reads it; `GAP` stands for each value."""
    return {key: ", ".join(sorted(places)) for key, places in _Search(files).places.items()}


class _Search:
    """Searches all files, until it finds no more functions that get messages as arguments."""

    def __init__(self, files: Iterable[SourceFile]) -> None:
        self.places: defaultdict[Key, set[str]] = defaultdict(set)
        self._files = list(files)
        self._functions = {
            name: (file, node)
            for file in self._files
            for name, node in file.functions.items()
            if [argument.arg for argument in node.args.args[:1]] != ["cls"]  # several components have the same one
        }
        classes = [one for file in self._files for one in file.message_classes()]
        mistakes = {name: place for name, place in classes if place[1] == "configuration"}
        calls = _CALLS | {name: place for name, place in classes if place[1] != "configuration"}
        self._known = {True: calls | mistakes, False: mistakes | calls}
        """The calls that get a message, by whether the file validates configurations."""
        self._forwarding: dict[tuple[SourceFile, str], tuple[int, str]] = {}
        """Functions that make a message of an argument: its position and the message's place."""
        known = -1
        while known != len(self._forwarding):
            known = len(self._forwarding)
            for file in self._files:
                for node, scope in file.nodes:
                    self._search(node, scope)

    def _search(self, node: ast.AST, scope: _Scope) -> None:
        for expression, place in self._messages_of(node, scope.file):
            for text in self._texts(expression, replace(scope, place=place)):
                if _WORD.search(text):
                    self.places[scope.file.component, _clean(text)].add(place)

    def _messages_of(self, node: ast.AST, file: SourceFile) -> Iterator[tuple[ast.expr, str]]:
        """The expressions that are messages, or parts of one."""
        if isinstance(node, ast.FunctionDef) and node.name == "missing" and ast.unparse(node.returns or node) != "bool":
            yield from ((value, "configuration") for value in _returned(node))
        if not isinstance(node, ast.Call):
            return
        name = _name(node.func)
        if name in _LOG_CALLS and isinstance(node.func, ast.Attribute) and "log" in _name(node.func.value):
            yield from ((argument, _LOG_CALLS[name]) for argument in node.args)
            return
        if name == "ValueError" and file.validates:
            position, place = 0, "configuration"
        else:
            position, place = self._forwarding.get((file, name)) or self._known[file.validates].get(name, (0, ""))
        if place and not (place == "doctor" and _is_good(node)) and position < len(node.args):
            yield node.args[position], place

    def _texts(self, node: ast.expr | None, scope: _Scope) -> list[str]:
        """The texts that an expression may become; none if only the running program knows."""
        scope = replace(scope, depth=scope.depth + 1)

        def inner(*nodes: ast.expr | None) -> list[str]:
            return [text for node in nodes for text in self._texts(node, scope)]

        match node:
            case ast.Constant(value=str(text)):
                return [_PLACEHOLDER.sub(lambda found: "%" if found[0] == "%%" else GAP, text)]
            case ast.JoinedStr(values=parts):
                text = "".join(str(part.value) if isinstance(part, ast.Constant) else GAP for part in parts)
                return [text] if _WORD.search(text) else inner(*(getattr(part, "value", None) for part in parts))
            case ast.BinOp(left=left, right=right, op=ast.Add()):
                return ["".join(pair) for pair in product(inner(left) or [GAP], inner(right) or [GAP])]
            case ast.IfExp(body=first, orelse=second):
                return inner(first, second)
            case ast.BoolOp(values=values) | ast.Dict(values=values):
                return inner(*values)
            case ast.NamedExpr(value=value) | ast.Subscript(value=ast.Name() as value):
                return inner(value)
            case ast.Call(func=ast.Attribute(value=value, attr="get"), args=[_, *default]):
                return inner(value, *default)
            case ast.Call(func=ast.Name(id="str"), args=[value]):
                return inner(value)
            case ast.Name(id=name) if scope.depth < _DEEPEST:
                return inner(scope.value(name)) if scope.value(name) else self._forwarded(name, scope)
            case ast.Call(func=called) if scope.depth < _DEEPEST:
                return self._texts_of_call(called, scope)
        return []

    def _forwarded(self, name: str, scope: _Scope) -> list[str]:
        """Remembers the function if the name is one of its parameters: its callers have the texts."""
        if scope.function and name in scope.parameters:
            place = (scope.parameters.index(name), scope.place)
            self._forwarding.setdefault((scope.file, scope.function.name), place)
        return []

    def _texts_of_call(self, called: ast.expr, scope: _Scope) -> list[str]:
        """The texts that a function of the project returns."""
        name = _name(called)
        if isinstance(called, ast.Attribute) and _name(called.value) not in ("self", "cls"):
            return []
        known = (scope.file, scope.file.functions[name]) if name in scope.file.functions else self._functions.get(name)
        if known is None or (isinstance(called, ast.Attribute) and known[0] is not scope.file):
            return []
        inside = _Scope(*known, scope.place, scope.depth)
        return [text for value in _returned(known[1]) for text in self._texts(value, inside)]


def _nodes(node: ast.AST, scope: _Scope) -> Iterator[tuple[ast.Call | Function | ast.ClassDef, _Scope]]:
    """The calls, functions and classes below a node, each with the function in which it stands."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Call | Function | ast.ClassDef):
            yield child, scope
        if not isinstance(child, ast.Constant | ast.Name | ast.expr_context | ast.operator):  # nothing is below them
            yield from _nodes(child, replace(scope, function=child) if isinstance(child, Function) else scope)


def _clean(text: str) -> str:
    """One line, in which values that follow each other are one gap."""
    return re.sub(f"{GAP}+", GAP, " ".join(text.split()))


@cache
def _names_in(function: Function) -> Mapping[str, ast.expr]:
    return _assigned(ast.walk(function))


def _assigned(nodes: Iterable[ast.AST]) -> dict[str, ast.expr]:
    found: dict[str, ast.expr] = {}
    for node in nodes:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            found[node.targets[0].id] = node.value
        elif isinstance(node, ast.NamedExpr | ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value:
            found[node.target.id] = node.value
    return found


def _returned(function: Function) -> Iterator[ast.expr]:
    for node in ast.walk(function):
        if isinstance(node, ast.Return) and node.value:
            yield node.value


def _name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _is_good(finding: ast.Call) -> bool:
    """Whether a finding says that something is well, or only informs."""
    given = [*finding.args[2:3], *(keyword.value for keyword in finding.keywords if keyword.arg == "ok")]
    return not given or (not isinstance(given[0], ast.Name) and "False" not in ast.unparse(given[0]))
