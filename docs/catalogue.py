"""Writes the catalogue of components into README.md. `make docs` runs it."""

from pathlib import Path

from docs import fences
from otel_zernel.component import Kind
from otel_zernel.registry import KINDS, Registry

ROOT = Path(__file__).parent.parent


def catalogue(registry: Registry) -> str:
    """A table for each kind: type, purpose (the docstring of the class), signals, stability."""
    return "\n".join(_table(registry, kind) for kind in KINDS)


def written_into(readme: str, registry: Registry) -> str:
    """The text of the README with the catalogue of the installed components."""
    return fences.written_into(readme, "catalogue", catalogue(registry))


def _table(registry: Registry, kind: Kind) -> str:
    rows = [_row(registry, kind, type_, aliases) for type_, aliases in registry.aliases(kind).items()]
    return fences.table([kind, "purpose", "signals", "stability"], rows)


def _row(registry: Registry, kind: Kind, type_: str, aliases: list[str]) -> tuple[str, ...]:
    cls = registry.load(kind, type_)
    purpose = " ".join((cls.__doc__ or "").strip().split("\n\n")[0].split())
    other_names = f" (also `{'`, `'.join(aliases)}`)" if aliases else ""
    folder = f"{kind}/otel_zernel_{kind}/{cls.__module__.split('.')[1]}"
    signals = ", ".join(sorted(cls.signals)) if kind != "extensions" else ""
    return f"[`{type_}`]({folder}){other_names}", purpose, signals, cls.stability


def main() -> None:
    """Updates the README in place."""
    readme = ROOT / "README.md"
    readme.write_text(written_into(readme.read_text("utf-8"), Registry.installed()), "utf-8")


if __name__ == "__main__":
    main()
