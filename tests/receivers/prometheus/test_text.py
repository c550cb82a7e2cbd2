"""The text formats: strict about what a line means, tolerant of lines that mean nothing."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families

from otel_zernel_receivers.prometheus.pages.labels import read_labels
from otel_zernel_receivers.prometheus.pages.page import NotAPage, SampleKey, ScrapedPage
from otel_zernel_receivers.prometheus.pages.text import TextReader


def read(text: str | bytes, *, openmetrics: bool = False) -> ScrapedPage:
    body = text if isinstance(text, bytes) else text.encode()
    return TextReader().read(body, openmetrics=openmetrics, known=())


def samples(text: str, *, openmetrics: bool = False) -> dict[tuple[tuple[str, str], ...], float]:
    page = read(text, openmetrics=openmetrics)
    keys = [tuple(sorted(read_labels(key).items())) for key in page.keys if isinstance(key, bytes)]
    return dict(zip(keys, page.values, strict=True))


@pytest.mark.parametrize(
    ("line", "labels", "value"),
    [
        ("a 1", {}, 1),
        ("a{} 1", {}, 1),
        ('a{b="c"} 1e3', {"b": "c"}, 1000),
        ('a { b = "c" , d="e", } 0x', None, 0),
        ('a { b = "c" , d="e", } 2', {"b": "c", "d": "e"}, 2),
        ('a{b="x y } z # {"} -Inf', {"b": "x y } z # {"}, -math.inf),
        (r'a{b="\\ \" \n \q"} 1', {"b": '\\ " \n \\q'}, 1),
        ('a{b="grüß"} 1', {"b": "grüß"}, 1),
        ("a\t1", {}, 1),
        ("a  1  ", {}, 1),
        ("a 1\r", {}, 1),
        ('{"a",b="c"} 1', {"b": "c"}, 1),
        ('{"a","b.c"="d"} 1', {"b.c": "d"}, 1),
        ("a 1_0", None, 0),
        ("a one", None, 0),
        ('a{b="c} 1', None, 0),
        ("a{b=c} 1", None, 0),
        ('a{b="c""d"="e"} 1', None, 0),
        ('a{b="c",,d="e"} 1', None, 0),
        ('a{,b="c"} 1', None, 0),
        ('a{b="c",b="d"} 1', None, 0),
        ("1a 1", None, 0),
        ("a", None, 0),
        ("a 1 2 3", None, 0),
    ],
)
def test_a_line_is_read_or_skipped_and_counted(line: str, labels: dict[str, str] | None, value: float) -> None:
    page = read(f"good 1\n{line}\n")
    found: dict[tuple[tuple[str, str], ...], float] = {}
    skipped = page.malformed
    for key, number in zip(page.keys, page.values, strict=True):
        try:
            assert isinstance(key, bytes)
            found[tuple(sorted(read_labels(key).items()))] = number
        except ValueError:
            skipped += 1
    del found[(("__name__", "good"),)]
    if labels is None:
        assert (found, skipped) == ({}, 1)
    else:
        assert (found, skipped) == ({tuple(sorted({"__name__": "a", **labels}.items())): value}, 0)


def test_times_are_milliseconds_in_text_and_seconds_in_openmetrics() -> None:
    assert read("a 1 1500\n").times_ns == {0: 1_500_000_000}
    assert read("a 1 1.5\n# EOF\n", openmetrics=True).times_ns == {0: 1_500_000_000}


def test_a_line_with_a_bad_number_takes_nothing_from_its_neighbours() -> None:
    page = read("a 1 1000\nb x 2000\nc 3 3000\n")
    assert (page.keys, page.values, page.malformed) == ([b"a", b"c"], [1, 3], 1)
    assert page.times_ns == {0: 1_000_000_000, 1: 3_000_000_000}
    assert "x" in page.problem


def test_the_first_bad_line_is_named() -> None:
    assert read("a 1\nb{ 2\nc{ 3\n").problem == 'line 2: "b{ 2"'


def test_metadata_belongs_to_its_family() -> None:
    page = read('# HELP a One\\nline.\n# TYPE a counter\n# UNIT a seconds\n# TYPE "b.c" gauge\n# other\na 1\n')
    family = page.families["a"]
    assert (family.type, family.unit, family.help) == ("counter", "seconds", "One\nline.")
    assert page.families["b.c"].type == "gauge"


def test_an_unknown_type_is_counted_and_its_samples_stay() -> None:
    page = read("# TYPE a odd\na 1\n")
    assert (page.values, page.malformed) == ([1], 1)


def test_families_that_stay_are_the_same_object() -> None:
    reader = TextReader()
    first, second = (reader.read(b"# TYPE a gauge\na %d\n" % n, openmetrics=False, known=()) for n in (1, 2))
    assert first.families is second.families


def test_an_exemplar_has_labels_value_and_time() -> None:
    page = read('a_total 1 # {trace_id="ab"} 0.5 1.25\nb_total 2 # {} 3\n# EOF\n', openmetrics=True)
    first, second = page.exemplars[0], page.exemplars[1]
    assert (first.labels, first.value, first.time_ns) == ({"trace_id": "ab"}, 0.5, 1_250_000_000)
    assert (second.labels, second.time_ns) == ({}, None)


@pytest.mark.parametrize("text", ["a 1\n", "a 1\n# EO", ""])
def test_an_openmetrics_page_without_its_end_is_refused(text: str) -> None:
    with pytest.raises(NotAPage, match="not complete"):
        read(text, openmetrics=True)


def test_a_web_page_is_refused_with_its_first_line() -> None:
    with pytest.raises(NotAPage, match="<html>"):
        read("<html>\n<body>Hello</body>\n")


def test_an_empty_page_is_a_page() -> None:
    assert read("").keys == []


@pytest.mark.parametrize(
    ("text", "times", "malformed"),
    [
        (b'# TYPE a gauge\na{b="c d"} 1\na{b="e"} 2 5000\nf 3\n', {1: 5_000_000_000}, 0),
        (b'a{b="c d"} 1 1500\na{b="e"} 2 x\nf 3 -5\ng 4 99999999999999999999\n', {0: 1_500_000_000}, 3),
    ],
)
def test_known_samples_take_the_short_way_and_give_the_same(text: bytes, times: dict[int, int], malformed: int) -> None:
    known: dict[SampleKey, None] = dict.fromkeys([b'a{b="c d"}', b'a{b="e"}', b"f", b"g"])
    fresh, again = read(text), TextReader().read(text, openmetrics=False, known=known)
    assert (fresh.keys, fresh.values) == (again.keys, again.values)
    for page in (fresh, again):
        assert (page.times_ns, page.malformed) == (times, malformed)


def test_lines_beyond_one_piece_are_read() -> None:
    text = "".join(f'a{{n="{n}"}} {n}\n' for n in range(50_000))
    page = read(text)
    assert (len(page.keys), page.values[-1], page.malformed) == (50_000, 49_999, 0)


@given(st.binary(max_size=400))
def test_any_bytes_are_a_page_or_refused(body: bytes) -> None:
    for openmetrics in (False, True):
        try:
            page = read(body, openmetrics=openmetrics)
        except NotAPage:
            continue
        assert len(page.keys) == len(page.values)


_NAMES = st.from_regex(r"[a-zA-Z_][a-zA-Z0-9_]{0,6}", fullmatch=True)
_VALUES = st.text(st.characters(codec="utf-8", exclude_characters="\r\x85"), max_size=8)


@given(st.dictionaries(_NAMES, _VALUES, max_size=4), st.floats(), st.sampled_from([False, True]))
def test_labels_and_values_are_those_of_prometheus_client(
    labels: dict[str, str], value: float, openmetrics: bool
) -> None:
    escaped = {
        name: text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"") for name, text in labels.items()
    }
    inside = ",".join(f'{name}="{text}"' for name, text in escaped.items())
    number = "NaN" if math.isnan(value) else f"{value:+}".replace("inf", "Inf").removeprefix("+")
    text = f"# TYPE good_name gauge\ngood_name{{{inside}}} {number}\n" + ("# EOF\n" if openmetrics else "")
    parse = parse_openmetrics if openmetrics else text_string_to_metric_families
    try:
        ((sample,),) = [family.samples for family in parse(text)]
    except ValueError:  # it splits at line breaks of Unicode
        return
    ((found, number_read),) = samples(text, openmetrics=openmetrics).items()
    assert dict(found) == {"__name__": "good_name", **sample.labels}
    assert number_read == sample.value or math.isnan(value)
