"""Warnings about a configuration that is valid, but that probably does not do what its author wants."""

import glob
import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path as FilePath
from typing import Any, Final, NamedTuple

from pydantic import BaseModel, SecretBytes, SecretStr

from otel_zernel.batch import Signal
from otel_zernel.component import Kind
from otel_zernel.component.forms import FORMS, DataForms, Form
from otel_zernel.config.load import LoadedConfig, nearest_source
from otel_zernel.config.marked import marked_fields
from otel_zernel.config.settings import PIPELINE_KINDS, ComponentSettings, PipelineSettings, Settings
from otel_zernel.config.yaml12 import Path
from otel_zernel.errors import ConfigError, Problem
from otel_zernel.registry import KINDS, Registry
from otel_zernel.text import joined, one_line, quoted
from otel_zernel.types import ReadableFile

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
    return any(fnmatchcase(example, pattern) or name == pattern for pattern in globs)


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


_MOST_PATHS = 3
"""Secrets that a warning names."""


def exposure_warnings(loaded: LoadedConfig, sections: Mapping[Path, Any]) -> list[str]:
    """One warning for each such file. `sections` are the validated models by their path."""
    by_file: dict[str, list[Path]] = {}
    for section, model in sections.items():
        for path in _secrets(model, section):
            if path not in loaded.references and (source := loaded.sources.get(path)):
                by_file.setdefault(source.rpartition(":")[0], []).append(path)
    return [_warning(file, paths) for file, paths in by_file.items() if _is_readable_by_all(file)]


def _secrets(value: Any, path: Path) -> Iterator[Path]:
    """The paths of the secrets that are set."""
    if isinstance(value, SecretStr | SecretBytes):
        if value.get_secret_value():
            yield path
    elif isinstance(value, BaseModel):
        for name in value.model_fields_set:
            yield from _secrets(getattr(value, name), (*path, name))
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _secrets(item, (*path, key))
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from _secrets(item, (*path, index))


def _is_readable_by_all(file: str) -> bool:
    try:
        mode = FilePath(file).stat().st_mode
    except OSError:  # `--set` and `env:` are no files
        return False
    return stat.S_ISREG(mode) and bool(mode & stat.S_IROTH)


def _warning(file: str, paths: list[Path]) -> str:
    named = ", ".join(joined(path) for path in paths[:_MOST_PATHS])
    more = f" and {len(paths) - _MOST_PATHS} more" if len(paths) > _MOST_PATHS else ""
    return (
        f"{quoted(file)} has secrets in plain text ({named}{more}), and every user of this machine can read it: "
        "run chmod o-r on it, or write ${env:NAME} or ${file:PATH} in place of the secrets"
    )


_STDIN = "-"


def missing_files(config: Any, path: Path) -> Iterator[tuple[Path, str]]:
    """A warning for each field that is marked with `ReadableFile` and names no readable file."""
    for where, value, _ in marked_fields(config, path, ReadableFile):
        if isinstance(value, list | tuple):
            for index, pattern in enumerate(value):
                yield from _of_pattern((*where, index), str(pattern))
        elif value:
            yield from _of_file(where, str(value))


def _of_pattern(path: Path, pattern: str) -> Iterator[tuple[Path, str]]:
    if pattern == _STDIN:
        return
    if not glob.has_magic(pattern):
        yield from _of_file(path, pattern)
    elif next(glob.iglob(pattern, recursive=True), None) is None:  # noqa: PTH207  # as above
        yield path, f"no file matches {quoted(pattern)}{_folder(pattern)}; check the pattern"


def _of_file(path: Path, file: str) -> Iterator[tuple[Path, str]]:
    if not os.path.exists(file):  # noqa: PTH110  # a Path would change the text
        yield path, f"{quoted(file)} does not exist{_folder(file)}; create it, or correct the path"
    elif not os.access(file, os.R_OK):
        yield path, f"{quoted(file)} is not readable; allow the collector's user to read it"


def _folder(file: str) -> str:
    """The working directory, if the path is relative: the usual cause."""
    return "" if os.path.isabs(file) else f" in the working directory {quoted(os.getcwd())}"  # noqa: PTH109, PTH117


_WORDS: Final[Mapping[str, Signal]] = {
    "metric": "metrics",
    "metrics": "metrics",
    "trace": "traces",
    "traces": "traces",
    "tracing": "traces",
    "span": "traces",
    "spans": "traces",
    "log": "logs",
    "logs": "logs",
    "logging": "logs",
    "profile": "profiles",
    "profiling": "profiles",
}
"""Signals by the words that users write, in lower case."""


def misnamed(settings: Settings) -> Iterator[tuple[Path, str]]:
    """A warning for each pipeline that carries all signals, although its name looks like one signal."""
    for id_, pipeline in settings.pipelines.items():
        signal = _WORDS.get(re.split(r"[^a-z]", id_.lower(), maxsplit=1)[0])
        if signal and len(pipeline.signals) > 1:
            sentence = (
                f"the pipeline carries all signals; if it is for {signal} only, name it {signal} or {signal}/NAME"
            )
            yield ("service", "pipelines", id_), sentence


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
    components: list[ComponentSettings] = []
    for kind in PIPELINE_KINDS:
        used = _in_pipelines(settings, kind)
        components += [component for id_, component in getattr(settings, kind).items() if id_ in used]
    return components + [settings.extensions[id_] for id_ in settings.extensions_enabled]


def _in_pipelines(settings: Settings, kind: Kind) -> set[str]:
    return {id_ for pipeline in settings.pipelines.values() for id_ in getattr(pipeline, kind)}


Warned = tuple[Path, str]
"""The path of a value, and one sentence about it."""


def warnings_of(settings: Settings, loaded: LoadedConfig, registry: Registry, look_at_files: bool) -> list[str]:
    """Each warning with its path, and its file and line. Reads the status of files, so it may block."""
    used = used_components(settings)
    components = [component for kind in KINDS for component in getattr(settings, kind).values()]
    sections: dict[Path, object] = {("service", "telemetry"): settings.telemetry}
    sections |= {(component.kind, component.id): component.config for component in components}
    warnings = [
        *unused(settings),
        *misnamed(settings),
        *unusable_data(settings, registry),
        *_of_components(used, look_at_files),
    ]
    problems = [Problem(joined(path), text, nearest_source(path, loaded.sources)) for path, text in warnings]
    return [*map(str, problems), *exposure_warnings(loaded, sections)]


def _of_components(components: list[ComponentSettings], look_at_files: bool) -> Iterator[Warned]:
    for component in components:
        path: tuple[Kind, str] = (component.kind, component.id)
        if look_at_files:
            yield from missing_files(component.config, path)
        yield from _advice(component, path)


def _advice(component: ComponentSettings, path: Path) -> Iterator[Warned]:
    try:
        for key, text in component.cls.advice(component.config):
            yield (*path, *key.split("::")), text
    except Exception as error:  # noqa: BLE001  # a third party's check may raise anything
        bug = f"{type(error).__name__}: {one_line(error)}"
        yield path, f"the component's check of its configuration failed: {bug}; report this bug to its author"
