"""Components that are configured and not used."""

from collections.abc import Iterator

from otel_zernel.component import Kind
from otel_zernel.config.settings import PIPELINE_KINDS, ComponentSettings, Settings
from otel_zernel.config.yaml12 import Path
from otel_zernel.text import quoted


def unused(settings: Settings) -> Iterator[tuple[Path, str]]:
    """A warning for each component that no pipeline names, and for each extension that is not enabled."""
    for kind in PIPELINE_KINDS:
        used = _in_pipelines(settings, kind)
        for id_ in getattr(settings, kind):
            if id_ not in used:
                yield (kind, id_), "is in no pipeline, so it does not run; add it to one, or remove it"
    for id_ in settings.extensions:
        if id_ not in settings.extensions_enabled:
            yield ("extensions", id_), f"does not run; add {quoted(id_)} to service::extensions, or remove it"


def used_components(settings: Settings) -> list[ComponentSettings]:
    """The components of the pipelines, and the enabled extensions."""
    found: list[ComponentSettings] = []
    for kind in PIPELINE_KINDS:
        used = _in_pipelines(settings, kind)
        found += [one for id_, one in getattr(settings, kind).items() if id_ in used]
    return found + [settings.extensions[id_] for id_ in settings.extensions_enabled]


def _in_pipelines(settings: Settings, kind: Kind) -> set[str]:
    return {id_ for pipeline in settings.pipelines.values() for id_ in getattr(pipeline, kind)}
