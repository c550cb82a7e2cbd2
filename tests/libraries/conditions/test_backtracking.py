"""Without RE2, an expression means the same in Python's `re` and ends soon, or it is refused with what to install."""

import sys
import time

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from otel_zernel_libraries.conditions import Pattern
from otel_zernel_libraries.conditions.backtracking import MalformedPattern, PatternNeedsRe2, bounded
from otel_zernel_libraries.conditions.errors import InvalidPattern
from otel_zernel_libraries.conditions.patterns import LONGEST_TEXT

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
