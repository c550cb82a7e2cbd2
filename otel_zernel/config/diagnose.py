"""Validates one part of a configuration with its pydantic model, and tells the mistakes in plain sentences."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError

from otel_zernel.config.yaml12 import Path
from otel_zernel.text import one_line, quoted, suggestion

Model = TypeVar("Model", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Finding:
    """One mistake."""

    path: Path
    message: str
    place: Path = ()
    """Where to look for it in the file, if not at `path`."""

    @property
    def at(self) -> Path:
        return self.place or self.path


@dataclass(frozen=True, slots=True)
class _Located:
    """One of pydantic's errors, and which value it is about."""

    error: Mapping[str, Any]
    place: Path
    models: tuple[type[BaseModel], ...]
    """What the mapping that holds the value may be."""
    branch: tuple[Path, str] | None
    """In a union: the place of the union, and the member whose complaint this is."""

    @property
    def type(self) -> str:
        return str(self.error["type"])


def check(
    model: type[Model], tree: Any, path: Path, originals: Mapping[Path, str], context: Mapping[str, Any] | None = None
) -> tuple[Model | None, list[Finding]]:
    """The tree at `path` as an instance of the model, or what is wrong with it.

    Two kinds of value may change on the way, as in otelcol: a text that was read as a number or a map is text again
    where the model wants one, and null stands for the default.
    """
    while True:
        try:
            return model.model_validate(tree, context=dict(context or {})), []
        except ValidationError as error:
            located = [_locate(model, tree, one) for one in error.errors(include_url=False)]
        except Exception as error:  # noqa: BLE001  # a stranger's validator may raise anything
            return None, [Finding(path, f"cannot be checked: {type(error).__name__} in the component's own check")]
        repaired = _repair(tree, located, path, originals)
        if repaired is tree:
            return None, _findings(located, path)
        tree = repaired


def _locate(model: type[BaseModel], tree: Any, error: Mapping[str, Any]) -> _Located:
    """Follows pydantic's `loc`, in which names of union members stand between keys and indexes."""
    value, types, models = tree, [model], [model]
    place: Path = ()
    branch = None
    for part in error["loc"]:
        if part == "[key]":
            break
        inner = list(_inner_types(types, part, value))
        if inner or _has(value, part):
            models = [one for one in types if _is_model(one)]
            place, types, value = (*place, part), inner, value[part] if _has(value, part) else None
        else:
            branch = branch or (place, str(part))
            types = [one for one in types if getattr(one, "__name__", "") == part] or types
    return _Located(error, place, tuple(models), branch)


def _inner_types(types: Iterable[Any], part: str | int, value: Any) -> Iterator[Any]:
    """The types a key or an index may have in any of the types."""
    for one in types:
        if _is_model(one):
            fields = {_key(name, info): info.annotation for name, info in one.model_fields.items()}
            if part in fields:
                yield from _members(fields[str(part)])
        elif _has(value, part) and get_args(one):
            yield from _members(get_args(one)[-1 if isinstance(value, dict) else 0])


def _members(annotation: Any) -> Iterator[Any]:
    """The members of a union, or the one type that it is."""
    annotation = getattr(annotation, "__value__", annotation)  # of a `type X = ...`
    if get_origin(annotation) is Annotated:
        yield from _members(get_args(annotation)[0])
    elif get_origin(annotation) in (Union, UnionType):
        for member in get_args(annotation):
            yield from _members(member)
    else:
        yield annotation


def _is_model(type_: Any) -> bool:
    return isinstance(type_, type) and issubclass(type_, BaseModel)


def _key(name: str, info: Any) -> str:
    return next((key for key in (info.validation_alias, info.alias) if isinstance(key, str)), name)


def _has(value: Any, part: str | int) -> bool:
    if isinstance(value, dict):
        return part in value
    return isinstance(value, list) and isinstance(part, int) and part < len(value)


def _repair(tree: Any, located: list[_Located], path: Path, originals: Mapping[Path, str]) -> Any:
    """The tree with original texts back and nulls gone, where that may help."""
    for place in {one.place: None for one in located}:
        value = _at(tree, place)
        text = originals.get((*path, *place))
        if text is not None and not isinstance(value, str) and _wants_text(value, place, located):
            tree = _replaced(tree, place, text)
        elif value is None and place and isinstance(place[-1], str):
            tree = _replaced(tree, place, _Missing)
    return tree


class _Missing:
    """Stands for a key that is not there."""


def _wants_text(value: Any, place: Path, located: list[_Located]) -> bool:
    """Whether everything wrong with a value is that it should be text."""
    types = [one.type for one in located if one.place[: len(place)] == place]
    if isinstance(value, dict | list) or value is None:
        return all(one in ("string_type", "literal_error") for one in types)
    return True


def _at(tree: Any, place: Path) -> Any:
    for part in place:
        if not _has(tree, part):
            return _Missing
        tree = tree[part]
    return tree


def _replaced(tree: Any, place: Path, value: Any) -> Any:
    """A copy of the tree with another value, or without the key."""
    if not place:
        return value
    part, rest = place[0], place[1:]
    inner = _replaced(tree[part], rest, value)
    if isinstance(tree, list):
        return [inner if index == part else item for index, item in enumerate(tree)]
    if inner is _Missing:
        return {key: item for key, item in tree.items() if key != part}
    return tree | {part: inner}


def _findings(located: list[_Located], path: Path) -> list[Finding]:
    found: list[Finding] = []
    unions: dict[Path, dict[str, list[_Located]]] = {}
    for one in located:
        if one.branch is None:
            found.append(Finding((*path, *one.place), _sentence(one)))
        else:
            place, member = one.branch
            unions.setdefault(place, {}).setdefault(member, []).append(one)
    for place, members in unions.items():
        found += _union_findings(list(members.values()), place, path)
    return list(dict.fromkeys(found))


def _union_findings(members: list[list[_Located]], place: Path, path: Path) -> list[Finding]:
    """What the member says that the value comes closest to, if it fits one at least in kind; else what all say."""
    close = [complaints for complaints in members if all(len(one.place) > len(place) for one in complaints)]
    if close:
        return [Finding((*path, *one.place), _sentence(one)) for one in min(close, key=len)]
    sentences = dict.fromkeys(_sentence(one) for complaints in members for one in complaints)
    return [Finding((*path, *place), ", or ".join(sentences))]


_SENTENCES = {
    "missing": "required",
    "string_type": "must be text; put it in quotes",
    "int_type": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "float_parsing": "must be a number",
    "finite_number": "must be a finite number",
    "bool_type": "must be true or false",
    "bool_parsing": "must be true or false",
    "none_required": "must be null",
    "path_type": "must be a path",
    "dict_type": "must be a mapping",
    "mapping_type": "must be a mapping",
    "model_type": "must be a mapping",
    "model_attributes_type": "must be a mapping",
    "list_type": "must be a list",
    "tuple_type": "must be a list",
    "set_type": "must be a list",
    "frozen_set_type": "must be a list",
}
"""Pydantic's error types in the words of YAML."""


def _sentence(located: _Located) -> str:
    """The mistake in words. No value is told unless it stands for a choice: any other may be a secret."""
    error = located.error
    if located.type == "extra_forbidden":
        keys = {_key(name, info) for model in located.models for name, info in model.model_fields.items()}
        word = str(located.place[-1])
        return f"unknown key {quoted(word)}{suggestion(word, keys, 'keys')}"
    if located.type in ("literal_error", "enum"):
        valid = re.findall(r"'([^']*)'", error["ctx"]["expected"]) or [error["ctx"]["expected"]]
        word = str(error["input"]) if isinstance(error["input"], str | int | float) else ""
        return f"unknown value {quoted(one_line(word))}{suggestion(word, valid, 'values')}"
    if located.type in ("value_error", "assertion_error"):
        return one_line(error["ctx"]["error"])
    plain = re.sub(r"^\w+ should ", "must ", one_line(error["msg"]))
    plain = plain.replace("greater than or equal to", "at least").replace("less than or equal to", "at most")
    return _SENTENCES.get(located.type, plain)
