"""Regular expressions are those of RE2, and need time in proportion to the text.

Without RE2, an expression means the same in Python's `re` and ends soon, or it is refused with what to install.
"""

import re
import sys
import time

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from otel_zernel_libraries.conditions import Pattern, expand, text_of
from otel_zernel_libraries.conditions.backtracking import MalformedPattern, PatternNeedsRe2, bounded
from otel_zernel_libraries.conditions.errors import InvalidPattern
from otel_zernel_libraries.conditions.patterns import LONGEST_TEXT


def test_an_expression_is_found_anywhere_in_the_text() -> None:
    assert Pattern("b+").is_found_in("abbc")
    assert not Pattern("^b").is_found_in("abbc")
    assert Pattern("é").is_found_in("café")


@given(st.text(alphabet="ab01.-", max_size=300))
def test_results_are_those_of_python_where_the_syntax_is_the_same(text: str) -> None:
    for expression in ("^a.*b$", "(a|b)+[0-9]", r"\.", "^$"):
        assert Pattern(expression).is_found_in(text) == (re.search(expression.replace("$", r"\Z"), text) is not None)


def test_an_expression_that_takes_exponential_time_elsewhere_ends_at_once() -> None:
    started = time.process_time()
    assert not Pattern("^(x+x+)+y").is_found_in("x" * 10_000_000)
    assert time.process_time() - started < 5  # Python's `re` would need years


def test_only_the_beginning_of_a_long_text_is_read() -> None:
    assert Pattern("end").is_found_in("x" * 65_000 + "end")
    assert not Pattern("end").is_found_in("x" * 65_536 + "end")


def test_groups_have_names_and_a_group_without_a_part_is_empty() -> None:
    pattern = Pattern("(?P<kind>gpu|cpu)(?P<unit>\\.W)?(.)")
    assert pattern.names == ("kind", "unit", "")
    assert pattern.groups_in("my cpu!") == ("cpu!", "cpu", "", "!")
    assert pattern.groups_in("disk") is None


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("a.$1.$2", "a.x.y"),
        ("${1}z${last}", "xzy"),
        ("$1z", ""),  # as in Go, the name is as long as possible
        ("$$1 $0 $9", "$1 x-y "),
        ("plain", "plain"),
    ],
)
def test_a_template_is_expanded_as_in_go(template: str, expected: str) -> None:
    assert expand(template, ("", "last"), ("x-y", "x", "y")) == expected


def test_every_match_is_replaced() -> None:
    assert Pattern("user=(\\w+)").replace_in("user=ann user=bob", "user=<$1>") == "user=<ann> user=<bob>"
    assert Pattern("x").replace_in("abc", "y") == "abc"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, ""),
        (True, "true"),
        (12, "12"),
        (1.5, "1.5"),
        (3.0, "3"),
        (0.000001, "0.000001"),
        (1e-7, "1e-7"),
        (1e20, "100000000000000000000"),
        (b"\x01", "AQ=="),
        (["a", 1, b"\x01"], '["a",1,"AQ=="]'),
        ({"k": {"x": None}}, '{"k":{"x":null}}'),
        (float("nan"), "NaN"),
        (float("-inf"), "-Inf"),
    ],
)
def test_a_value_is_written_as_the_collector_writes_it(value: object, text: str) -> None:
    assert text_of(value) == text


re2 = pytest.importorskip("re2")
PIECES = (  # noqa: SIM905  # a list would take 50 lines
    r"a b 0 _ \x20 - . \. \d \w \s \S \D \W \n \x41 ^ $ \A \z \b [ab] [^a] []a] [a-z0-9] [\w.-] [[a] (?i) (?i:A) "
    r"(?s:.) ( (?: (?P<n> (?<m> ) | * + ? {2} {1,} {,2} {0,3} {x *? é \pL (?=a) \1 ] \ }"
).split(" ")
EXPRESSIONS = st.lists(st.sampled_from(PIECES), max_size=8).map("".join)
TEXTS = st.text(alphabet="aAbB01_ -.\n\x0b{x,]}é", max_size=12)


@pytest.fixture
def without_re2(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "re2", None)


def quiet() -> object:
    options = re2.Options()
    options.log_errors = False
    return options


@given(EXPRESSIONS, st.lists(TEXTS, min_size=1, max_size=5))
def test_an_expression_that_is_taken_has_the_matches_of_re2(expression: str, texts: list[str]) -> None:
    try:
        python = bounded(expression, LONGEST_TEXT)
    except (MalformedPattern, PatternNeedsRe2):
        assume(False)
    reference = re2.compile(expression, quiet())
    assert dict(python.regexp.groupindex) == dict(reference.groupindex)
    for text in texts:
        ours, theirs = python.regexp.search(text), reference.search(text)
        assert (ours is None) == (theirs is None), (expression, text)
        if ours and theirs:
            assert ours.span() == theirs.span(), (expression, text)
            assert ours.groups("") == tuple(group or "" for group in theirs.groups()), (expression, text)


@given(EXPRESSIONS)
def test_what_is_malformed_is_so_in_re2(expression: str) -> None:
    try:
        bounded(expression, LONGEST_TEXT)
    except MalformedPattern:
        with pytest.raises(re2.error):
            re2.compile(expression, quiet())
    except PatternNeedsRe2:
        pass


@pytest.mark.parametrize(
    ("expression", "longest"),
    [
        ("^hw\\.", 65_536),
        ("gpu|cpu", 65_536),
        ("hw.*", 4096),
        ("^system\\.cpu\\..*_total$", 1024),
        ("(\\d{1,3}\\.){3}\\d{1,3}", 1024),
        ("(.*)-(.*)", 256),
        ("a.*b.*c.*d", 64),
    ],
)
def test_usual_expressions_see_texts_of_some_length(expression: str, longest: int) -> None:
    assert bounded(expression, LONGEST_TEXT).longest >= longest


@pytest.mark.parametrize(
    "expression",
    [
        "(x+x+)+y",
        "(a|a)*b",
        "(a?){30}a{30}",
        "(.*a){20}b",
        ".*.*.*.*.*x",
        "((a{1,9}){9}){9}",
        "(a|b|ab)+c",
        "(?:a{0,1000}){1000}",
    ],
)
def test_an_expression_with_too_many_ways_is_refused(expression: str, without_re2: None) -> None:
    with pytest.raises(InvalidPattern) as refused:
        Pattern(expression)
    assert f'the regular expression "{expression}" needs google-re2: ' in str(refused.value)
    assert "pip install 'otel-zernel[gateway]'" in str(refused.value)


@pytest.mark.parametrize("expression", ["x*y", "x*x*y", "x*x*x*y", "(?:xx)*y", "x{0,9}x{0,9}x{0,9}y", "(x|x|x){3}x*y"])
def test_the_worst_text_takes_a_bounded_time(expression: str, without_re2: None) -> None:
    pattern = Pattern(expression)
    started = time.process_time()
    assert not pattern.is_found_in("x" * 1_000_000)
    assert time.process_time() - started < 30  # the bound is 0.2 s; without one it would be hours


def test_a_malformed_expression_has_the_sentence_of_re2(without_re2: None) -> None:
    with pytest.raises(InvalidPattern, match=r'^not a regular expression of RE2: "\(a": missing \)$'):
        Pattern("(a")


def test_groups_and_replacements_work(without_re2: None) -> None:
    pattern = Pattern("(?P<kind>gpu|cpu)(?P<unit>\\.W)?(.)")
    assert pattern.names == ("kind", "unit", "")
    assert pattern.groups_in("my cpu!") == ("cpu!", "cpu", "", "!")
    assert Pattern("user=(\\w+)").replace_in("user=ann user=bob", "user=<$1>") == "user=<ann> user=<bob>"
