"""Reads the text formats: Prometheus 0.0.4 and 1.0.0, OpenMetrics 0.0.1 and 1.0.0.

Almost every line of a page was on the last page too, with another value. So a line is cut at its last space, and if the
part before it is a known sample, nothing else needs to be read. That takes 0.3 us; reading the labels takes 5 us.
"""

import re
from collections.abc import Container, Iterator, Mapping

from otel_zernel.text import quoted
from otel_zernel_receivers.prometheus.pages.labels import read_labels, unescape
from otel_zernel_receivers.prometheus.pages.page import (
    TYPES,
    NotAPage,
    PageExemplar,
    PageFamily,
    SampleKey,
    ScrapedPage,
)

_PIECE = 256 * 1024
"""Bytes that are cut into lines at once. The interpreter is locked meanwhile, for about 0.2 ms."""
_LABELS = rb'\{(?:[^"{}]++|"(?:[^"\\]++|\\.)*+")*+\}'
_SAMPLE = re.compile(
    rb"([a-zA-Z_:][a-zA-Z0-9_:]*+(?:[ \t]*+" + _LABELS + rb")?|" + _LABELS + rb")[ \t]*+([^ \t{}\"#]++)"
    rb"(?:[ \t]++([-+0-9.eE]++))?(?:[ \t]++#[ \t]*+(" + _LABELS + rb")[ \t]++([^ \t]++)(?:[ \t]++([-+0-9.eE]++))?)?\s*+"
)
_COMMENT = re.compile(r'#[ \t]+(TYPE|HELP|UNIT)[ \t]+(?:"((?:[^"\\]++|\\.)*+)"|([^ \t]++))(?:[ \t]+(.*))?', re.DOTALL)
_EOF = b"# EOF"
_LATEST = 2**63 / 1e9
"""Seconds. OTLP holds later times too, but no page means them."""


class TextReader:
    """Reads the pages of one target."""

    def __init__(self) -> None:
        self._comments: list[bytes] = []
        self._families: Mapping[str, PageFamily] = {}
        self._bad_comments: list[str] = []

    def read(self, body: bytes, *, openmetrics: bool, known: Container[SampleKey]) -> ScrapedPage:
        """The page in `body`. `known` has the keys of samples that were read before.

        Lines that cannot be read are skipped and counted. Raises `NotAPage` if no line can be read, or if the end of
        an OpenMetrics page is missing.
        """
        if openmetrics and not body.rstrip().endswith(_EOF):
            raise NotAPage("the page is not complete: an OpenMetrics page ends with # EOF")
        page = _PageInProgress(openmetrics)
        for lines in _pieces(body):
            page.add(lines, known)
        if page.comments != self._comments:
            self._comments = page.comments
            self._families, self._bad_comments = _families(page.comments, openmetrics=openmetrics)
        scraped = page.finish()
        scraped.families = self._families
        for problem in self._bad_comments:
            scraped.skip(problem)
        if scraped.malformed and not scraped.keys:
            raise NotAPage(f"not a metrics page: {scraped.problem}")
        return scraped


class _PageInProgress:
    """The lines that were read so far."""

    def __init__(self, openmetrics: bool) -> None:
        self.comments: list[bytes] = []
        self._openmetrics = openmetrics
        self._page = ScrapedPage()
        self._texts: list[bytes] = []
        """The values of this piece."""
        self._bad: set[int] = set()
        """Positions of values that are no numbers."""
        self._line = 0
        """Lines before this piece."""

    def add(self, lines: list[bytes], known: Container[SampleKey]) -> None:
        """Reads lines. This loop takes most of the time of a scrape."""
        keys, texts, read_other = self._page.keys, self._texts, self._other
        for number, line in enumerate(lines, self._line + 1):
            key, _, text = line.rpartition(b" ")
            if key in known:
                keys.append(key)
                texts.append(text)
            elif not self._timed(key, text, known):
                read_other(line, number)
        self._line += len(lines)
        self._page.values += self._convert(texts)
        texts.clear()

    def finish(self) -> ScrapedPage:
        """The page, without the samples whose values are no numbers."""
        page = self._page
        if self._bad:
            kept = [old for old in range(len(page.keys)) if old not in self._bad]
            new = {old: position for position, old in enumerate(kept)}
            page.keys = [page.keys[old] for old in kept]
            page.values = [page.values[old] for old in kept]
            page.times_ns = {new[old]: time for old, time in page.times_ns.items() if old in new}
            page.exemplars = {new[old]: exemplar for old, exemplar in page.exemplars.items() if old in new}
        return page

    def _convert(self, texts: list[bytes]) -> list[float]:
        """The values of the next samples. One that is no number is counted, and marked by its position."""
        try:
            if b"_" not in b"".join(texts):  # Python would read 1_0 as 10
                return list(map(float, texts))
        except ValueError:
            pass
        first = len(self._page.values)
        numbers = [_number(text) for text in texts]
        for position, number in enumerate(numbers, first):
            if number is None:
                self._bad.add(position)
                self._page.skip(f"{quoted(texts[position - first].decode(errors='replace'))} is not a number")
        return [0.0 if number is None else number for number in numbers]

    def _timed(self, sample: bytes, time: bytes, known: Container[SampleKey]) -> bool:
        """Takes a known sample with a time of its own. Returns whether it is one."""
        key, _, text = sample.rpartition(b" ")
        if key not in known or not time.isdigit():
            return False
        try:
            self._page.times_ns[len(self._page.keys)] = self._time_ns(time)
        except ValueError:
            return False
        self._page.keys.append(key)
        self._texts.append(text)
        return True

    def _other(self, line: bytes, number: int) -> None:
        """A comment, a line with a time or an exemplar, or a sample that is new."""
        if line.startswith(b"#"):
            self.comments.append(line)
        elif match := _SAMPLE.fullmatch(line):
            try:
                self._sample(*match.groups())
            except ValueError:
                self._skip(line, number)
        elif line.strip():
            self._skip(line, number)

    def _skip(self, line: bytes, number: int) -> None:
        self._page.skip(f"line {number}: {quoted(line.decode(errors='replace'))}")

    def _sample(
        self,
        key: bytes,
        text: bytes,
        time: bytes | None,
        labels: bytes | None,
        value: bytes | None,
        taken: bytes | None,
    ) -> None:
        position = len(self._page.keys)
        time_ns = self._time_ns(time) if time else None
        exemplar = _exemplar(labels, value, taken) if labels and value and self._openmetrics else None
        self._page.keys.append(key)
        self._texts.append(text)
        if time_ns is not None:
            self._page.times_ns[position] = time_ns
        if exemplar:
            self._page.exemplars[position] = exemplar

    def _time_ns(self, text: bytes) -> int:
        """OpenMetrics has seconds, the text format milliseconds. Raises `ValueError`."""
        return _nanoseconds(text) if self._openmetrics else _checked_ns(int(text) * 1_000_000)


def _pieces(body: bytes) -> Iterator[list[bytes]]:
    start = 0
    while start < len(body):
        end = body.find(b"\n", start + _PIECE)
        end = len(body) if end < 0 else end
        yield body[start:end].split(b"\n")
        start = end + 1


def _number(text: bytes) -> float | None:
    try:
        return None if b"_" in text else float(text)
    except ValueError:
        return None


def _nanoseconds(seconds: bytes) -> int:
    number = float(seconds)
    if not 0 <= number < _LATEST:
        raise ValueError("not a time")
    return round(number * 1e6) * 1000  # a double holds microseconds of today's times, not nanoseconds


def _checked_ns(time_ns: int) -> int:
    if not 0 <= time_ns < _LATEST * 1e9:
        raise ValueError("not a time")
    return time_ns


def _exemplar(labels: bytes, value: bytes, taken: bytes | None) -> PageExemplar:
    pairs = read_labels(b"exemplar" + labels)
    del pairs["__name__"]
    return PageExemplar(pairs, float(value), _nanoseconds(taken) if taken else None)


def _families(comments: list[bytes], *, openmetrics: bool) -> tuple[dict[str, PageFamily], list[str]]:
    """The families by name, and the comments that cannot be read."""
    parts: dict[str, dict[str, str]] = {}
    problems: list[str] = []
    for comment in comments:
        match = _COMMENT.fullmatch(comment.decode(errors="replace").rstrip("\r"))
        if not match:
            continue
        keyword, quoted_name, bare_name, text = match.groups()
        name = bare_name if quoted_name is None else unescape(quoted_name)
        if keyword == "TYPE" and (text or "").strip() not in TYPES:
            problems.append(f"unknown type: {quoted(comment.decode(errors='replace'))}")
            continue
        parts.setdefault(name, {}).setdefault(keyword, text or "")
    return {name: _family(part) for name, part in parts.items()}, problems


def _family(part: Mapping[str, str]) -> PageFamily:
    type_ = TYPES[part.get("TYPE", "unknown").strip()]
    return PageFamily(type_, part.get("UNIT", "").strip(), unescape(part.get("HELP", "")))
