from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_zernel.config.expand import Expansion, escape

ENVIRON = {
    "HOST": "gpu-1",
    "PORT": "4317",
    "ID": "0123",
    "EMPTY": "",
    "LIST": "[1, two]",
    "MAP": "{a: '${env:HOST}'}",
    "BAD_YAML": "[unclosed",
    "HASH": "pass #word",
    "VIA": "${env:HOST}",
    "NAME_OF": "HOST",
    "SELF": "${env:SELF}",
    "PING": "x${env:PONG}",
    "PONG": "y${env:PING}",
    "LATIN": "\udce9",
    "DOLLAR": "a$$b",
}


def expand(text: str, environ: dict[str, str] = ENVIRON) -> Any:
    expansion = Expansion(environ)
    value = expansion.expand({"key": text})["key"]
    assert not expansion.failed
    return value


def failure(text: str) -> str:
    expansion = Expansion(ENVIRON)
    assert expansion.expand({"key": text})["key"] is None
    return expansion.failed["key",]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("${env:HOST}", "gpu-1"),
        ("${HOST}", "gpu-1"),
        ("${env:PORT}", 4317),
        ("${env:ID}", 123),
        ("${env:LIST}", [1, "two"]),
        ("${env:MAP}", {"a": "gpu-1"}),
        ("${env:BAD_YAML}", "[unclosed"),
        ("${env:HASH}", "pass #word"),
        ("${env:EMPTY}", None),
        ("${env:EMPTY:-x}", None),
        ("${env:NONE:-x}", "x"),
        ("${NONE:-5s}", "5s"),
        ("${NONE:-}", None),
        ("${env:NONE:-http://x:1}", "http://x:1"),
        ("${env:NONE:-a:-b}", "a:-b"),
        ("${env:NONE:-${env:HOST}}", "gpu-1"),
        ("${env:NONE:-${env:NEITHER:-${env:PORT}}}", 4317),
        ("${env:NONE:-{a: 1}}", {"a": 1}),
        ("${env:${env:NAME_OF}}", "gpu-1"),
        ("${env:VIA}", "gpu-1"),
        ("${yaml:[1, 2]}", [1, 2]),
        ("${HOST}:${PORT}", "gpu-1:4317"),
        ("<${env:NONE:-}>", "<>"),
        ("port ${env:PORT}", "port 4317"),
        ("$${env:HOST}", "${env:HOST}"),
        ("$$$${HOST}", "$${HOST}"),
        ("$$${HOST}", "$gpu-1"),
        ("${env:DOLLAR}", "a$b"),
        ("$HOST costs 5$", "$HOST costs 5$"),
        ("a $$ b", "a $ b"),
    ],
)
def test_references_become_values(text: str, value: object) -> None:
    assert expand(text) == value


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("${env:HOST", "${ has no closing }"),
        ("a ${", "${ has no closing }"),
        ("${env:1X}", '"1X" is not a valid name of an environment variable'),
        ("${}", '"" is not a valid name of an environment variable'),
        ("${env:SELF}", "the value refers to itself: env:SELF -> env:SELF"),
        ("${env:PING}", "the value refers to itself: env:PING -> env:PONG -> env:PING"),
        ("${http:x}", 'unknown scheme "http" in ${…}; valid schemes: env, file, yaml'),
        ("${file:/no/such/file}", 'cannot read "/no/such/file": No such file or directory'),
        ("${file:/}", "Is a directory"),
        ("${file:/dev/zero}", "longer than 4 MiB"),
        ("${file:a\0b}", "cannot read"),
        ("${env:LATIN}", 'environment variable "LATIN" is not UTF-8 text'),
        ("${" * 5000 + "}" * 5000, "more than 20 references"),
    ],
)
def test_a_reference_without_a_value_is_an_error_with_its_cause(text: str, message: str) -> None:
    assert message in failure(text)


def test_the_original_text_of_a_value_is_kept() -> None:
    expansion = Expansion(ENVIRON)
    expansion.expand({"a": ["${env:ID}", "${env:HOST}", "${env:NONE}", "${env:MAP}"]})
    assert expansion.originals == {("a", 0): "0123", ("a", 2): "", ("a", 3): "{a: 'gpu-1'}"}


def test_an_unset_variable_is_recorded_once_with_its_first_use() -> None:
    expansion = Expansion({})
    assert expansion.expand({"a": "${X}", "b": "x${X}", "c": "${Y:-}"}) == {"a": None, "b": "x", "c": None}
    assert expansion.unset == {"X": ("a",)}


def test_an_unused_default_is_not_expanded() -> None:
    expansion = Expansion({"X": "1"})
    assert expansion.expand("${X:-${Y}${file:/none}}") == 1
    assert not expansion.unset


def test_the_last_line_end_of_a_file_is_removed(tmp_path: Path) -> None:
    secret = tmp_path / "token"
    secret.write_text("s3cret\r\n")
    assert expand(f"Bearer ${{file:{secret}}}") == "Bearer s3cret"


def test_the_text_that_references_insert_is_limited() -> None:
    environ = {f"A{n}": f"${{A{n + 1}}}" * 10 for n in range(15)} | {"A15": "x" * 1000}
    expansion = Expansion(environ)
    expansion.expand({"key": "${A0}"})
    assert "more than 4 MiB" in expansion.failed["key",]


TEXTS = st.text(st.sampled_from("a1 ${}:-_\\env"), max_size=30)


@given(TEXTS | st.text(st.characters(exclude_categories=["Cs"])))
def test_escaped_text_expands_to_itself(text: str) -> None:
    assert expand(escape(text)) == text


@given(TEXTS)
def test_text_without_references_is_unchanged(text: str) -> None:
    without = text.replace("$", "")
    assert expand(without) == without


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="$")))
def test_a_variable_inside_a_text_is_inserted_unchanged(value: str) -> None:
    assert expand("<${env:X}>", {"X": value}) == f"<{value}>"


@given(st.dictionaries(st.sampled_from("ABC"), TEXTS | st.sampled_from(["${A}", "${B}${C}", "[${B}]"])), TEXTS)
def test_any_reference_expands_or_is_an_error(environ: dict[str, str], text: str) -> None:
    expansion = Expansion(environ)
    value = expansion.expand([text])[0]
    assert value is None or (0,) not in expansion.failed
