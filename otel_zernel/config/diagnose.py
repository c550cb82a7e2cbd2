"""Validates one part of a configuration with its pydantic model, and words the mistakes for users."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError

from otel_zernel.config.yaml12 import Path
from otel_zernel.text import one_line, quoted, suggestion

Model = TypeVar("Model", bound=BaseModel)

MUST_BE_MAPPING = "must be a mapping, such as {key: value}"
_MUST_BE_LIST = "must be a list, such as [a, b]"


@dataclass(frozen=True, slots=True)
class Mistake:
    """One mistake in a configuration."""

    path: Path
    message: str
    location: Path = ()
    """The path whose line is printed, if it is not `path`."""
    guess: str = ""
    """The end of the sentence about an unknown word: similar and valid words. A better hint may replace it."""

    @property
    def located_at(self) -> Path:
        return self.location or self.path


@dataclass(frozen=True, slots=True)
class _LocatedError:
    """One of pydantic's errors, and the value that it is about."""

    error: Mapping[str, Any]
    path: Path
    """The path of the value, relative to the validated tree."""
    models: tuple[type[BaseModel], ...]
    """The models that the mapping around the value may have."""
    branch: tuple[Path, str] | None
    """For an error of a union: the path of the union's value, and the name of the union's member."""

    @property
    def type(self) -> str:
        return str(self.error["type"])


def check(
    model: type[Model], tree: Any, path: Path, originals: Mapping[Path, str], context: Mapping[str, Any] | None = None
) -> tuple[Model | None, list[Mistake]]:
    """The tree at `path` as an instance of the model, or None and the mistakes.

    As in the OpenTelemetry Collector, three kinds of value are converted first. A text that YAML read as a number or a
    mapping becomes text again where the model requires text: `originals` has these texts. A null of a known key becomes
    the default. A word of a fixed set may be in upper case.
    """
    while True:
        try:
            return model.model_validate(tree, context=dict(context or {})), []
        except ValidationError as error:
            located = [_locate(model, tree, pydantic_error) for pydantic_error in error.errors(include_url=False)]
        except Exception as error:  # noqa: BLE001  # a third party's validator may raise anything
            return None, [Mistake(path, _bug_in_validation(error))]
        repaired = _repair(tree, located, path, originals)
        if repaired is tree:
            return None, _mistakes(located, path)
        tree = repaired


def _bug_in_validation(error: Exception) -> str:
    """Only the type of the error, because its text may have secrets."""
    return f"the component's own validation failed with {type(error).__name__}; report this bug to its author"


def _locate(model: type[BaseModel], tree: Any, error: Mapping[str, Any]) -> _LocatedError:
    """Follows pydantic's `loc`, where names of union members stand between keys and indexes."""
    value, types, models = tree, [model], [model]
    path: Path = ()
    branch = None
    for part in error["loc"]:
        if part == "[key]":
            break
        inner = list(_inner_types(types, part, value))
        if inner or _has(value, part):
            models = [kind for kind in types if _is_model(kind)]
            path, types, value = (*path, part), inner, value[part] if _has(value, part) else None
        else:
            branch = branch or (path, str(part))
            types = [kind for kind in types if getattr(kind, "__name__", "") == part] or types
    return _LocatedError(error, path, tuple(models), branch)


def _inner_types(types: Iterable[Any], part: str | int, value: Any) -> Iterator[Any]:
    """The types that a key or an index may have in any of the types."""
    for kind in types:
        if _is_model(kind):
            fields = {_key(name, info): info.annotation for name, info in kind.model_fields.items()}
            if part in fields:
                yield from _members(fields[str(part)])
        elif _has(value, part) and get_args(kind):
            yield from _members(get_args(kind)[-1 if isinstance(value, dict) else 0])


def _members(annotation: Any) -> Iterator[Any]:
    """The members of a union, or the single type."""
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


def _repair(tree: Any, located: list[_LocatedError], path: Path, originals: Mapping[Path, str]) -> Any:
    """The tree with original texts restored and nulls removed, where an error is. The same object if none applies."""
    for place in {error.path: None for error in located}:
        value = _value_at(tree, place)
        text = originals.get((*path, *place))
        if text is not None and not isinstance(value, str) and _requires_text(value, place, located):
            tree = _replaced(tree, place, text)
        elif value is None and place and isinstance(place[-1], str) and _is_known(place, located):
            tree = without(tree, place)
        elif isinstance(value, str) and (word := _valid_spelling(value, place, located)):
            tree = _replaced(tree, place, word)
    return tree


def _valid_spelling(text: str, path: Path, located: list[_LocatedError]) -> str | None:
    """The valid word that differs from the text only in upper and lower case."""
    words = (word for error in located if error.path == path and error.type in _FIXED for word in _valid_words(error))
    return next((word for word in words if word != text and word.lower() == text.lower()), None)


def _is_known(path: Path, located: list[_LocatedError]) -> bool:
    """Whether a model has this key."""
    return any(error.type != "extra_forbidden" for error in located if error.path == path)


class _Missing:
    """Stands for an absent key."""


def _requires_text(value: Any, path: Path, located: list[_LocatedError]) -> bool:
    """Whether every error of a value is that it must be text."""
    types = [error.type for error in located if error.path[: len(path)] == path]
    if isinstance(value, dict | list) or value is None:
        return all(kind in ("string_type", "literal_error") for kind in types)
    return True


def _value_at(tree: Any, path: Path) -> Any:
    for part in path:
        if not _has(tree, part):
            return _Missing
        tree = tree[part]
    return tree


def without(tree: Any, path: Path) -> Any:
    """A copy of the tree without the key at the path. The same object if there is no such key."""
    return tree if _value_at(tree, path) is _Missing else _replaced(tree, path, _Missing)


def _replaced(tree: Any, path: Path, value: Any) -> Any:
    """A copy of the tree with another value at the path, or without the key."""
    if not path:
        return value
    part, rest = path[0], path[1:]
    inner = _replaced(tree[part], rest, value)
    if isinstance(tree, list):
        return [inner if index == part else item for index, item in enumerate(tree)]
    if inner is _Missing:
        return {key: item for key, item in tree.items() if key != part}
    return tree | {part: inner}


def _mistakes(located: list[_LocatedError], path: Path) -> list[Mistake]:
    mistakes: list[Mistake] = []
    unions: dict[Path, dict[str, list[_LocatedError]]] = {}
    for error in located:
        if error.type == "too_short" and any(
            longer.path[: len(error.path)] == error.path for longer in located if longer != error
        ):
            continue  # pydantic does not count the items that are wrong themselves
        if error.branch is None:
            mistakes.append(_mistake(error, path))
        else:
            union, member = error.branch
            unions.setdefault(union, {}).setdefault(member, []).append(error)
    for union, members in unions.items():
        mistakes += _union_mistakes(list(members.values()), union, path)
    return list(dict.fromkeys(mistakes))


def _union_mistakes(members: list[list[_LocatedError]], union: Path, path: Path) -> list[Mistake]:
    """The errors of the union's best matching member.

    A member matches if the value has the right type but wrong contents. If none matches, all errors become one mistake.
    """
    matching = [errors for errors in members if all(len(error.path) > len(union) for error in errors)]
    if matching:
        return [_mistake(error, path) for error in min(matching, key=len)]
    messages = dict.fromkeys(_message(error) for errors in members for error in errors)
    return [Mistake((*path, *union), "; or ".join(messages))]


def _mistake(located: _LocatedError, path: Path) -> Mistake:
    if located.type != "extra_forbidden":
        return Mistake((*path, *located.path), _message(located))
    keys = {_key(name, info) for model in located.models for name, info in model.model_fields.items()}
    word = str(located.path[-1])
    return Mistake((*path, *located.path), f"unknown key {quoted(word)}", guess=suggestion(word, keys, "keys"))


_MESSAGES = {
    "missing": "required key is missing",
    "string_type": "must be text; put the value in quotes",
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
    "dict_type": MUST_BE_MAPPING,
    "mapping_type": MUST_BE_MAPPING,
    "model_type": MUST_BE_MAPPING,
    "model_attributes_type": MUST_BE_MAPPING,
    "list_type": _MUST_BE_LIST,
    "tuple_type": _MUST_BE_LIST,
    "set_type": _MUST_BE_LIST,
    "frozen_set_type": _MUST_BE_LIST,
}
"""Messages in the words of YAML, by pydantic's error types."""


_FIXED = ("literal_error", "enum")
"""pydantic's types of errors about a value that is none of a fixed set."""


def _valid_words(located: _LocatedError) -> list[str]:
    """The texts of the fixed set."""
    return re.findall(r"'([^']*)'", located.error["ctx"]["expected"])


def _message(located: _LocatedError) -> str:
    """The mistake in words. A value is printed only if it is one of a fixed set: any other value may be a secret."""
    error = located.error
    if located.type in _FIXED:
        valid = _valid_words(located) or [error["ctx"]["expected"]]
        word = str(error["input"]) if isinstance(error["input"], str | int | float) else ""
        return f"unknown value {quoted(one_line(word))}{suggestion(word, valid, 'values')}"
    if located.type in ("value_error", "assertion_error"):
        return one_line(error["ctx"]["error"])
    plain = re.sub(r"^\w+ should ", "must ", one_line(error["msg"]))
    plain = plain.replace("greater than or equal to", "at least").replace("less than or equal to", "at most")
    return _MESSAGES.get(located.type, plain.replace(" after validation", ""))
