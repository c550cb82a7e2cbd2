import contextlib
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_zernel.config.yaml12 import MAX_TEXT, read_scalar, read_yaml
from otel_zernel.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("yes", "yes"),
        ("off", "off"),
        ("0123", 123),
        ("10:30", "10:30"),
        ("2001-01-01", "2001-01-01"),
        ("1_000", "1_000"),
        ("0b1", "0b1"),
        ("0o17", 15),
        ("0xFf", 255),
        ("-7", -7),
        ("1e3", 1000.0),
        (".5", 0.5),
        ("1.", 1.0),
        ("-.INF", -math.inf),
        ("True", True),
        ("tRUE", "tRUE"),
        ("~", None),
        ("", None),
        ("9" * 5000, "9" * 5000),
    ],
)
def test_plain_scalars_follow_the_core_schema_of_yaml_1_2(text: str, value: object) -> None:
    assert read_scalar(text) == value
    assert type(read_scalar(text)) is type(value)


def test_quotes_and_tags_set_the_type_of_a_scalar() -> None:
    value = read_yaml("- \"1\"\n- '1'\n- !!str 1\n- ! 1\n- !!float 1\n- !!int 0x1\n- |-\n  1\n", "x").value
    assert value == ["1", "1", "1", "1", 1.0, 1, "1"]
    assert type(value[4]) is float


def test_every_value_has_the_line_of_its_key() -> None:
    lines = read_yaml("a:\n  b: 1\n  c:\n    - 2\n    - {d: 3}\n", "x").lines
    assert lines["a",] == 1
    assert lines["a", "b"] == 2
    assert lines["a", "c"] == 3
    assert lines["a", "c", 1] == 5
    assert lines["a", "c", 1, "d"] == 5


def test_anchors_and_merge_keys_work_and_own_keys_win() -> None:
    text = (
        "base: &base {a: 1, b: 2}\nother: &other {b: 3, c: 4}\nx: {<<: *base, b: 5}\ny: {<<: [*base, *other]}\nz: *base"
    )
    value = read_yaml(text, "x").value
    assert value["x"] == {"a": 1, "b": 5}
    assert value["y"] == {"a": 1, "b": 2, "c": 4}
    assert value["z"] == {"a": 1, "b": 2}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a: 1\nb: 2\na: 3", 'duplicate key "a"; it is already in line 1 (f.yaml:3)'),
        ("a:\n\tb: 1", "(there is a tab; use spaces to indent YAML) (f.yaml:2:1)"),
        ("a: [", "not valid YAML: "),
        ("a: [${env:X}]", "put ${...} in quotes"),
        (
            "a: 1\n---\nb: 2",
            "a second document (---) begins here; write a single one (f.yaml:2)",
        ),
        ("a: !python/object:os.system x", 'tag "!python/object:os.system" is not supported; remove it (f.yaml:1)'),
        ("a: !!int x", "the value does not match its tag !!int (f.yaml:1)"),
        ("a: !!map [1]", "the value does not match its tag "),
        ("a: *b", 'alias "b" has no anchor; define it before, with & (f.yaml:1)'),
        ("a: &a [*a]", 'alias "a" has no anchor; define it before, with & (f.yaml:1)'),
        ("a: {<<: 1}", "the value of << must be a mapping or a list of mappings (f.yaml:1)"),
        ("{a: 1}: 2", "a key must be plain text"),
        ("a\x01", "control characters"),
        ("\udcff", "not UTF-8 text"),
        ("[" * 10_000, "nested deeper than 100 levels"),
        ("[" * 102 + "]" * 102, "nested deeper than 100 levels"),
        ("a: " + "[" * 10_000, "nested deeper than 100 levels"),
        ("{a: " * 10_000, "nested deeper than 100 levels"),
        ("- " * 10_000, "nested deeper than 100 levels"),
        ("a: [1, 2\nb: 3", "not valid YAML"),
        ("x" * (MAX_TEXT + 1), "longer than 4 MiB"),
    ],
)
def test_a_mistake_is_one_line_with_its_location(text: str, expected: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_yaml(text, "f.yaml")
    (message,) = str(caught.value).splitlines()
    assert expected in message
    assert "f.yaml" in message


def test_all_duplicate_keys_are_reported_together() -> None:
    with pytest.raises(ConfigError) as caught:
        read_yaml("a: 1\na: 2\nb: 1\nb: 2", "f.yaml")
    assert len(caught.value.problems) == 2


def test_the_values_that_aliases_repeat_are_limited() -> None:
    laughs = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n"
    laughs += "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 10))
    with pytest.raises(ConfigError, match="aliases repeat more than 100,000 values"):
        read_yaml(laughs, "f.yaml")


@given(st.text() | st.text(alphabet="ab:{}[]&*!<-?|>'\"#%@,\n\t ~0123.\\x"))
def test_any_text_is_a_value_or_a_config_error(text: str) -> None:
    with contextlib.suppress(ConfigError):
        read_yaml(text, "f.yaml")
