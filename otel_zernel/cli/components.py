"""`otel-zernel components`: lists the installed components."""

import argparse
import json
from typing import TYPE_CHECKING

from otel_zernel import __version__
from otel_zernel.cli.output import fail, print_result
from otel_zernel.command import Command
from otel_zernel.errors import ConfigError
from otel_zernel.text import quoted, suggestion

if TYPE_CHECKING:
    from otel_zernel.component import Kind
    from otel_zernel.registry import Registry


class ComponentsCommand(Command):
    """Lists the installed components, or prints the sample configuration of one."""

    name = "components"
    help = "list the installed components"
    description: str | None = None

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--sample", metavar="TYPE", help="print the sample configuration of a type, such as csv")

    def run(self, options: argparse.Namespace) -> int:
        from otel_zernel.registry import KINDS, Registry

        registry = Registry.installed()
        if options.sample:
            return _sample(registry, options.sample)
        lines = [f"buildinfo:\n  command: otel-zernel\n  version: {__version__}"]
        for kind in KINDS:
            lines.append(f"{kind}:")
            lines += [_entry(registry, kind, type_, aliases) for type_, aliases in registry.aliases(kind).items()]
        print_result("\n".join(lines))
        return 0


def _entry(registry: "Registry", kind: "Kind", type_: str, aliases: list[str]) -> str:
    try:
        cls = registry.load(kind, type_)
    except ConfigError as error:
        return f"  - name: {type_}\n    broken: {json.dumps(str(error), ensure_ascii=False)}"
    lines = [
        f"  - name: {type_}",
        f"    description: {json.dumps(cls.description(), ensure_ascii=False)}",
        f"    stability: {cls.stability}",
        f"    signals: [{', '.join(sorted(cls.signals))}]",
    ]
    if aliases:
        lines.append(f"    aliases: [{', '.join(aliases)}]")
    if missing := cls.missing():
        lines.append(f"    missing: {json.dumps(missing, ensure_ascii=False)}")
    return "\n".join(lines)


def _sample(registry: "Registry", type_: str) -> int:
    from otel_zernel.registry import KINDS

    samples = [registry.sample(kind, type_) for kind in KINDS if type_ in registry.types(kind)]
    if not samples:
        types = {name for kind in KINDS for name in registry.types(kind)}
        return fail(f"unknown component type {quoted(type_)}{suggestion(type_, types, 'types')}")
    print_result("\n".join(samples))
    return 0
