"""Follows the special forms of data through the pipelines, to the components that cannot use them."""

from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from typing import NamedTuple

from otel_zernel.batch import Signal
from otel_zernel.component.forms import FORMS, DataForms, Form
from otel_zernel.config.settings import ComponentSettings, PipelineSettings, Settings
from otel_zernel.config.yaml12 import Path
from otel_zernel.errors import ConfigError
from otel_zernel.registry import Registry
from otel_zernel.text import quoted

_MOST_NAMED = 3
"""Metrics that a warning names."""


class FormedData(NamedTuple):
    """Data of one form that one component emits."""

    form: Form
    source: str
    """The component: `receiver "ebpf"`."""
    names: tuple[str, ...]
    """The names that no processor has converted or dropped yet, as globs."""


def unusable_data(settings: Settings, registry: Registry) -> Iterator[tuple[Path, str]]:
    """A warning for each component of a pipeline that gets data which it cannot use."""
    for pipeline in settings.pipelines.values():
        for component, data in _refused(settings, pipeline):
            yield ("service", "pipelines", pipeline.id), _sentence(component, data, registry)


def _refused(settings: Settings, pipeline: PipelineSettings) -> Iterator[tuple[ComponentSettings, FormedData]]:
    flowing = [data for id_ in pipeline.receivers for data in _emitted(settings.receivers[id_], pipeline.signals)]
    for id_ in pipeline.processors:
        processor = settings.processors[id_]
        yield from ((processor, data) for data in _useless(processor, flowing))
        flowing = [*_unconverted(processor, flowing), *_emitted(processor, pipeline.signals)]
    for id_ in pipeline.exporters:
        exporter = settings.exporters[id_]
        yield from ((exporter, data) for data in _useless(exporter, flowing))


def _forms(component: ComponentSettings) -> DataForms:
    return component.cls.forms(component.config)


def _emitted(component: ComponentSettings, signals: frozenset[Signal]) -> Iterator[FormedData]:
    for form, names in _forms(component).emits.items():
        if FORMS[form][0] in signals:
            yield FormedData(form, f"{component.kind[:-1]} {quoted(component.id)}", names)


def _unconverted(component: ComponentSettings, flowing: Iterable[FormedData]) -> Iterator[FormedData]:
    forms = _forms(component)
    for data in flowing:
        globs = forms.converts.get(data.form, ())
        names = (name for name in data.names if not _overlaps(name, globs))
        if FORMS[data.form][0] == "metrics":
            names = (name for name in names if "*" in name or "?" in name or not forms.drops(name))
        if left := tuple(names):
            yield FormedData(data.form, data.source, left)


def _useless(component: ComponentSettings, flowing: Iterable[FormedData]) -> Iterator[FormedData]:
    refused = _forms(component).refuses
    for data in flowing:
        globs = refused.get(data.form, ())
        if names := tuple(name for name in data.names if _overlaps(name, globs)):
            yield FormedData(data.form, data.source, names)


def _overlaps(name: str, globs: Iterable[str]) -> bool:
    """Whether a glob matches the name. A name that is a glob itself is represented by one of its matches."""
    example = name.replace("*", "x").replace("?", "x")
    return any(fnmatchcase(example, one) or name == one for one in globs)


def _sentence(component: ComponentSettings, data: FormedData, registry: Registry) -> str:
    named = ", ".join(data.names[:_MOST_NAMED])
    more = f" and {len(data.names) - _MOST_NAMED} more" if len(data.names) > _MOST_NAMED else ""
    refusing = f"{component.kind[:-1]} {quoted(component.id)}"
    types = _converters(data.form, registry)
    remedy = f"put one of these processors before it: {', '.join(types)}" if types else f"take {refusing} out"
    _, description, loss = FORMS[data.form]
    return f"{data.source} emits {description} ({named}{more}): {refusing} {loss}; {remedy}"


def _converters(form: Form, registry: Registry) -> list[str]:
    """The installed types of processors that convert the form by default."""
    return [type_ for type_ in registry.aliases("processors") if _converts(registry, type_, form)]


def _converts(registry: Registry, type_: str, form: Form) -> bool:
    try:
        cls = registry.load("processors", type_)
        return form in cls.forms(cls.Config()).converts
    except (ConfigError, ValueError):  # it is broken, or needs a configuration
        return False
