"""Expands references, `${…}`, in the values of a configuration, as the OpenTelemetry Collector does.

    ${env:NAME}  ${NAME}            the environment variable
    ${env:NAME:-default}            the environment variable, or the default if it is not set
    ${file:PATH}                    the file's text without its last line end
    ${yaml:TEXT}                    the text itself
    $${NAME}                        the text `${NAME}`: two dollar signs stand for one

If a value is one single reference, its text is read as YAML: it may become a number, a list or a mapping. Inside a
longer text, a reference is replaced by text. The result is expanded again. Keys are not expanded.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path as FilePath
from typing import Any

from otel_zernel.config.yaml12 import MAX_DEPTH, MAX_TEXT, Path, read_yaml
from otel_zernel.errors import ConfigError
from otel_zernel.text import one_line, quoted

SCHEMES = ("env", "file", "yaml")

_MAX_CHAIN = MAX_DEPTH // 5
"""The most references that one value may lead through, one referring to the next."""

_DOLLAR = re.compile(r"\$(?=[${])")
_BRACE = re.compile(r"[{}]")
_REFERENCE = re.compile(r"(?:([A-Za-z][A-Za-z0-9+.-]*):(?!-))?(.*)", re.DOTALL)
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


ReadText = Callable[[str], str]
"""Returns the text of a file. Raises `CannotExpand`."""


class CannotExpand(Exception):
    """A reference has no value. The message is for the user."""


@dataclass(slots=True)
class Expansion:
    """Expands one configuration, and records what its references became."""

    environ: Mapping[str, str]
    read: ReadText = field(default_factory=lambda: read_text)
    originals: dict[Path, str] = field(default_factory=dict)
    """The text of every value that came from a reference and was read as YAML."""
    references: set[Path] = field(default_factory=set)
    """The paths of the values that have at least one reference."""
    unset: dict[str, Path] = field(default_factory=dict)
    """Variables that have neither a value nor a default, and the path of the first reference to each."""
    failed: dict[Path, str] = field(default_factory=dict)
    """Error messages of the values that could not be expanded."""
    characters_left: int = MAX_TEXT
    """The number of characters that further references may insert."""

    def expand(self, tree: Any) -> Any:
        """The tree with every reference replaced. A value that cannot be expanded is null, and is in `failed`."""
        return self._value(tree, (), ())

    def _value(self, value: Any, path: Path, via: tuple[str, ...]) -> Any:
        if isinstance(value, dict):
            return {key: self._value(item, (*path, key), via) for key, item in value.items()}
        if isinstance(value, list):
            return [self._value(item, (*path, index), via) for index, item in enumerate(value)]
        if not isinstance(value, str):
            return value
        try:
            return self._text_value(value, path, via)
        except CannotExpand as error:
            self.failed[path] = str(error)
            return None

    def _text_value(self, text: str, path: Path, via: tuple[str, ...]) -> Any:
        if len(path) + len(via) > MAX_DEPTH:
            raise CannotExpand(f"the value is nested deeper than {MAX_DEPTH} levels; use fewer")
        if not (text.startswith("${") and _closing(text, 0) == len(text)):
            return self._text(text, path, via)
        variable, via = self._look_up(text[2:-1], path, via)
        value = value_of(variable)
        if isinstance(value, str):
            return self._text_value(value, path, via)
        self.originals[path] = self._text(variable, path, via)
        return self._value(value, path, via)

    def _text(self, text: str, path: Path, via: tuple[str, ...]) -> str:
        """The text with each reference replaced by its text."""
        parts: list[str] = []
        at = 0
        while dollar := _DOLLAR.search(text, at):
            parts.append(text[at : dollar.start()])
            if text[dollar.end()] == "$":
                parts.append("$")
                at = dollar.end() + 1
                continue
            at = _closing(text, dollar.start())
            variable, inner = self._look_up(text[dollar.start() + 2 : at - 1], path, via)
            parts.append(self._text(variable, path, inner))
        return "".join(parts) + text[at:]

    def _look_up(self, reference: str, path: Path, via: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
        """The text that `${reference}` stands for, and the chain of references that led to it."""
        self.references.add(path)
        if len(via) >= _MAX_CHAIN:
            raise CannotExpand(f"the value leads through more than {_MAX_CHAIN} references; use fewer")
        scheme, rest = _REFERENCE.fullmatch(reference).groups()  # type: ignore[union-attr]  # it matches everything
        if scheme not in (None, *SCHEMES):
            raise CannotExpand(f"unknown scheme {quoted(scheme)} in ${{…}}; valid schemes: {', '.join(SCHEMES)}")
        if scheme in (None, "env"):
            name, variable = self._variable(rest, path, via)
        elif scheme == "file":
            name = self._text(rest, path, (*via, "its path"))
            variable = self.read(name).removesuffix("\n").removesuffix("\r")
        else:
            name, variable = rest, rest
        step = f"{scheme or 'env'}:{name}"
        if step in via:
            raise CannotExpand(f"the value refers to itself: {one_line(' -> '.join((*via, step)))}")
        self.characters_left -= len(variable)
        if self.characters_left < 0:
            raise CannotExpand(f"all references together insert more than {MAX_TEXT >> 20} MiB of text")
        return variable, (*via, step)

    def _variable(self, reference: str, path: Path, via: tuple[str, ...]) -> tuple[str, str]:
        """The name and the value of an environment variable. An unset variable has its default, not expanded."""
        name, default = _split_default(reference)
        name = self._text(name, path, (*via, "its name"))
        if not _VARIABLE.fullmatch(name):
            raise CannotExpand(
                f"{quoted(name)} is not a valid name of an environment variable: "
                "use letters, digits and _, and start with a letter or _"
            )
        if (value := self.environ.get(name)) is not None:
            if not _is_utf8(value):
                raise CannotExpand(f"environment variable {quoted(name)} is not UTF-8 text; encode its value as UTF-8")
            return name, value
        if default is not None:
            return f"{name}:-{default}", default
        self.unset.setdefault(name, path)
        return name, ""


def escape(text: str) -> str:
    """The text with dollar signs doubled, so that its expansion is the text itself."""
    return _DOLLAR.sub("$$", text)


def value_of(text: str) -> Any:
    """The text read as YAML.

    The result is the text itself if YAML cannot read it, or reads another text from it (`pass #word`): it may be a
    password.
    """
    try:
        value = read_yaml(text, "").value
    except ConfigError:
        return text
    return text if isinstance(value, str) else value


def read_text(path: str) -> str:
    """The file's text. Raises `CannotExpand` if the file cannot be read, is too long, or is not UTF-8."""
    try:
        with FilePath(path).open("rb") as file:
            content = file.read(MAX_TEXT + 1)
        if len(content) > MAX_TEXT:
            raise CannotExpand(f"cannot read {quoted(path)}: it is longer than {MAX_TEXT >> 20} MiB, the limit")
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise CannotExpand(f"cannot read {quoted(path)}: line {line} is not UTF-8 text; save it as UTF-8") from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise CannotExpand(f"cannot read {quoted(path)}: {one_line(reason)}") from error


def _closing(text: str, start: int) -> int:
    """The index after the brace that closes the `${` at `start`."""
    depth = 0
    for brace in _BRACE.finditer(text, start):
        depth += 1 if brace[0] == "{" else -1
        if depth == 0:
            return brace.end()
    raise CannotExpand("${ has no closing }; to write the text ${ itself, write $${")


def _split_default(reference: str) -> tuple[str, str | None]:
    """Splits `NAME:-default` at the first `:-` that is outside inner references."""
    depth = 0
    for mark in re.finditer(r"[{}]|:-", reference):
        if mark[0] == ":-":
            if depth == 0:
                return reference[: mark.start()], reference[mark.end() :]
        else:
            depth += 1 if mark[0] == "{" else -1
    return reference, None


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
