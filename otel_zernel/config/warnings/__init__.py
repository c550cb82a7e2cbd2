"""Warnings about a configuration that is valid, but that probably does not do what its author wants."""

from collections.abc import Iterator

from otel_zernel.component import Kind
from otel_zernel.config.load import LoadedConfig, nearest_source
from otel_zernel.config.settings import ComponentSettings, Settings
from otel_zernel.config.warnings.data_forms import unusable_data
from otel_zernel.config.warnings.exposure import exposure_warnings
from otel_zernel.config.warnings.missing_files import missing_files
from otel_zernel.config.warnings.pipeline_names import misnamed
from otel_zernel.config.warnings.unused import unused, used_components
from otel_zernel.config.yaml12 import Path
from otel_zernel.errors import Problem
from otel_zernel.registry import KINDS, Registry
from otel_zernel.text import joined, one_line

Warned = tuple[Path, str]
"""The path of a value, and one sentence about it."""


def warnings_of(settings: Settings, loaded: LoadedConfig, registry: Registry, look_at_files: bool) -> list[str]:
    """Each warning with its path, and its file and line. Reads the status of files, so it may block."""
    used = used_components(settings)
    components = [one for kind in KINDS for one in getattr(settings, kind).values()]
    sections: dict[Path, object] = {("service", "telemetry"): settings.telemetry}
    sections |= {(one.kind, one.id): one.config for one in components}
    found = [
        *unused(settings),
        *misnamed(settings),
        *unusable_data(settings, registry),
        *_of_components(used, look_at_files),
    ]
    problems = [Problem(joined(path), text, nearest_source(path, loaded.sources)) for path, text in found]
    return [*map(str, problems), *exposure_warnings(loaded, sections)]


def _of_components(components: list[ComponentSettings], look_at_files: bool) -> Iterator[Warned]:
    for one in components:
        path: tuple[Kind, str] = (one.kind, one.id)
        if look_at_files:
            yield from missing_files(one.config, path)
        yield from _advice(one, path)


def _advice(component: ComponentSettings, path: Path) -> Iterator[Warned]:
    try:
        for key, text in component.cls.advice(component.config):
            yield (*path, *key.split("::")), text
    except Exception as error:  # noqa: BLE001  # a third party's check may raise anything
        bug = f"{type(error).__name__}: {one_line(error)}"
        yield path, f"the component's check of its configuration failed: {bug}; report this bug to its author"
