import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_zernel_receivers.csv.layouts.dcgm import parse_labels

NAMES = st.from_regex(r"[a-zA-Z_][a-zA-Z0-9_]*", fullmatch=True)


def escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


@given(st.dictionaries(NAMES, st.text()))
def test_any_label_value_is_parsed_back(labels: dict[str, str]) -> None:
    assert parse_labels(",".join(f'{name}="{escape(value)}"' for name, value in labels.items())) == labels


@pytest.mark.parametrize(
    ("text", "expected"),
    [("", {}), ('{a="1"}', {"a": "1"}), ('a="1", b="2",', {"a": "1", "b": "2"}), ('"a.b"="1"', {"a.b": "1"})],
)
def test_all_spellings_of_the_exposition_format_are_parsed(text: str, expected: dict[str, str]) -> None:
    assert parse_labels(text) == expected


@pytest.mark.parametrize("text", ["a", "a=1", 'a="1', 'a="1" b="2"', '=""', 'a="\\'])
def test_malformed_labels_are_a_value_error(text: str) -> None:
    with pytest.raises(ValueError, match="not Prometheus labels"):
        parse_labels(text)
