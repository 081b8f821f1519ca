"""Content negotiation, with the headers that scrapers really send."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcache_exporter.web.negotiation import accepts_gzip, prefers_openmetrics

# As captured from Prometheus 2.42, and as Prometheus 3.x builds them from its default scrape protocols.
PROMETHEUS_2_42 = (
    "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,"
    "text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
)
PROMETHEUS_3 = (
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,"
    "application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,"
    "text/plain;version=0.0.4;q=0.3,*/*;q=0.2"
)
PROMETHEUS_3_PROTOBUF = (
    "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited;q=0.6,"
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,"
    "application/openmetrics-text;version=0.0.1;q=0.4,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.3,"
    "text/plain;version=0.0.4;q=0.2,*/*;q=0.1"
)
PROMETHEUS_3_TEXT_FIRST = "text/plain;version=0.0.4;q=0.6,application/openmetrics-text;version=1.0.0;q=0.5"
BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"


@pytest.mark.parametrize(
    ("accept", "openmetrics"),
    [
        (PROMETHEUS_2_42, True),
        (PROMETHEUS_3, True),
        (PROMETHEUS_3_PROTOBUF, True),
        (PROMETHEUS_3_TEXT_FIRST, False),
        (BROWSER, False),
        ("", False),
        ("*/*", False),
        ("text/plain;version=0.0.4;q=1,*/*;q=0.1", False),
        ("application/openmetrics-text", True),
        ('application/openmetrics-text; version="1.0.0"; charset=utf-8', True),
        ("APPLICATION/OpenMetrics-Text;Version=1.0.0, */*", True),
        ("application/openmetrics-text;version=0.0.1", False),
        ("application/openmetrics-text;version=0.0.1,text/plain;version=0.0.4;q=0.5,*/*;q=0.1", False),
        ("application/openmetrics-text;version=1.0.0;q=0", False),
        ("application/openmetrics-text;version=1.0.0;q=0,*/*", False),
        ("application/openmetrics-text;version=1.0.0;q=0.4,text/plain;q=0.5", False),
        ("application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4", False),
        ("application/*", True),
        ("application/vnd.google.protobuf", False),
        ("application/openmetrics-text;q=nan", False),
        (";;,,q=;=", False),
    ],
)
def test_openmetrics_goes_to_those_who_prefer_it(accept: str, openmetrics: bool) -> None:
    assert prefers_openmetrics(accept) == openmetrics


@pytest.mark.parametrize(
    ("encoding", "packed"),
    [
        ("gzip", True),
        ("gzip, deflate, br", True),
        ("GZIP;q=0.1", True),
        ("*", True),
        ("", False),
        ("identity", False),
        ("gzip;q=0", False),
        ("*, gzip;q=0.000", False),
        ("gzip;q=x", False),
        ("deflate", False),
    ],
)
def test_gzip_goes_to_those_who_take_it(encoding: str, packed: bool) -> None:
    assert accepts_gzip(encoding) == packed


@given(st.text(st.characters(max_codepoint=255)))
def test_no_header_breaks_negotiation(header: str) -> None:
    assert prefers_openmetrics(header) in (True, False)
    assert accepts_gzip(header) in (True, False)
