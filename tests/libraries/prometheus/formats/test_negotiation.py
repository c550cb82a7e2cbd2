"""The choice of a format for a scraper."""

import pytest

from otel_zernel_libraries.prometheus import Format, negotiate
from otel_zernel_libraries.prometheus.formats import accepts_gzip

TEXT, OPENMETRICS, PROTOBUF = Format(), Format(openmetrics=True), Format(protobuf=True)
DELIMITED = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited"
PROMETHEUS_2_NATIVE = (
    f"{DELIMITED},application/openmetrics-text;version=1.0.0;q=0.8,application/openmetrics-text;version=0.0.1;q=0.75,"
    "text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
)
PROMETHEUS_3_NATIVE = (
    f"{DELIMITED};escaping=allow-utf-8;q=0.6,application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,"
    "text/plain;version=1.0.0;escaping=allow-utf-8;q=0.3,text/plain;version=0.0.4;q=0.2,*/*;q=0.1"
)
PROMETHEUS_3_16_NATIVE = PROMETHEUS_3_NATIVE.replace(f"{DELIMITED};escaping=allow-utf-8", DELIMITED)
PROMETHEUS_2 = (
    "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,"
    "text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
)
PROMETHEUS_3 = (
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,"
    "application/openmetrics-text;version=0.0.1;q=0.4,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.3,"
    "text/plain;version=0.0.4;q=0.2,*/*;q=0.1"
)


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        ("", TEXT),
        ("*/*", TEXT),
        ("application/json", TEXT),
        ("text/html,application/xhtml+xml;q=0.9,*/*;q=0.8", TEXT),
        (PROMETHEUS_2, OPENMETRICS),
        (PROMETHEUS_3, Format(openmetrics=True, utf8=True)),
        (PROMETHEUS_2_NATIVE, PROTOBUF),
        (PROMETHEUS_3_NATIVE, Format(protobuf=True, utf8=True)),
        (PROMETHEUS_3_16_NATIVE, Format(protobuf=True, utf8=True)),
        (PROMETHEUS_3_16_NATIVE.replace("delimited", "delimited;escaping=underscores"), PROTOBUF),
        (f"{DELIMITED};q=0.4,{PROMETHEUS_2}", OPENMETRICS),
        (f"{DELIMITED};q=0", TEXT),
        ("application/vnd.google.protobuf", TEXT),
        (DELIMITED.replace("delimited", "text"), TEXT),
        (DELIMITED.replace("MetricFamily", "Metric"), TEXT),
        ("text/plain;version=1.0.0;escaping=allow-utf-8", Format(utf8=True)),
        ("text/plain;version=0.0.4, application/openmetrics-text;version=1.0.0;q=0.5", TEXT),
        ("application/openmetrics-text", OPENMETRICS),
        ("application/openmetrics-text; version=2.0.0", TEXT),
        ("application/openmetrics-text;q=0", TEXT),
        ("application/openmetrics-text;q=nonsense,,;", TEXT),
    ],
)
def test_the_accept_header_chooses_the_format(accept: str, expected: Format) -> None:
    assert negotiate(accept) == expected


def test_openmetrics_is_not_served_when_it_is_off() -> None:
    assert negotiate(PROMETHEUS_2, openmetrics=False) == TEXT
    assert negotiate(PROMETHEUS_3, openmetrics=False) == Format(utf8=True)


@pytest.mark.parametrize("format_", [TEXT, OPENMETRICS, PROTOBUF, Format(protobuf=True, utf8=True)])
def test_the_content_type_of_a_format_requests_it(format_: Format) -> None:
    assert negotiate(format_.content_type.replace("0.0.4", "1.0.0")) == format_


@pytest.mark.parametrize(
    ("accept_encoding", "expected"),
    [("gzip", True), ("br, GZIP;q=0.5", True), ("gzip;q=0", False), ("", False), ("identity", False)],
)
def test_gzip_is_used_only_if_the_client_accepts_it(accept_encoding: str, expected: bool) -> None:
    assert accepts_gzip(accept_encoding) is expected
