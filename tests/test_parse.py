"""The page parser against prometheus_client's, on arbitrary and on broken pages."""

import gc
import math
import weakref
from contextlib import suppress
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.parser import text_string_to_metric_families

from kvcache_exporter.errors import ScrapeError
from kvcache_exporter.scrape.lines import parse_line
from kvcache_exporter.scrape.parse import Layouts, PageParser

Made = list[GaugeMetricFamily | CounterMetricFamily | HistogramMetricFamily]
Values = dict[tuple[str, tuple[tuple[str, str], ...]], float]

_values = st.floats(allow_nan=True, allow_infinity=True)
_label_values = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r"), max_size=12)
_labels = st.dictionaries(
    st.sampled_from(["model_name", "engine", "le_x", "reason"]), _label_values, max_size=3
)
_names = st.sampled_from(["vllm:a", "vllm:b_c", "sglang:x", "other", "vllm:a_b"])


@st.composite
def families(draw: st.DrawFn) -> "Made":
    made = []
    for name in draw(st.lists(_names, unique=True, max_size=5)):
        labels = draw(st.lists(_labels, max_size=4, unique_by=lambda d: tuple(sorted(d.items()))))
        kind = draw(st.sampled_from([GaugeMetricFamily, CounterMetricFamily]))
        family = kind(name, "some help\nwith \\ escapes")
        for item in labels:
            family.add_sample(name + ("_total" if kind is CounterMetricFamily else ""), item, draw(_values))
        made.append(family)
    return made


class _Given:
    def __init__(self, made: Made) -> None:
        self._made = made

    def collect(self) -> Made:
        return self._made


def _page(made: Made) -> bytes:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Given(made))
    return generate_latest(registry)


def _wanted(page: bytes) -> frozenset[bytes]:
    names = {s.name for family in text_string_to_metric_families(page.decode()) for s in family.samples}
    return frozenset(name.encode() for name in names if name != "other")


def _read(parser: PageParser, data: bytes) -> Values:
    page = parser.parse(data)
    return {tuple(s): v for s, v in zip(page.layout.series, page.values, strict=True)}  # type: ignore[misc]


def _reference(page: bytes) -> Values:
    return {
        (s.name, tuple(sorted(s.labels.items()))): s.value
        for family in text_string_to_metric_families(page.decode())
        for s in family.samples
        if s.name != "other"
    }


def _same(left: Values, right: Values) -> bool:
    return left.keys() == right.keys() and all(
        left[k] == right[k] or (math.isnan(left[k]) and math.isnan(right[k])) for k in left
    )


@given(families())
def test_reads_every_page_as_the_reference_parser_does(made: Made) -> None:
    page = _page(made)
    assert _same(_read(PageParser(_wanted(page)), page), _reference(page))


@given(st.lists(families(), min_size=2, max_size=5))
def test_a_remembered_layout_never_changes_what_is_read(sequence: list[Made]) -> None:
    """Parsers that share their layouts read changing pages like one that never saw another."""
    pages = [_page(made) for made in sequence]
    wanted = frozenset[bytes]().union(*map(_wanted, pages))
    layouts = Layouts()
    parsers = [PageParser(wanted, layouts) for _ in range(3)]
    for parser, page in product(parsers, (*pages, *pages)):
        assert _same(_read(parser, page), _read(PageParser(wanted, Layouts()), page))


def test_a_page_of_the_same_shape_keeps_its_layout_object() -> None:
    parser = PageParser(frozenset([b"a_total"]))
    first = parser.parse(b'# TYPE a counter\na_total{x="1"} 1.0\n')
    second = parser.parse(b'# TYPE a counter\na_total{x="1"} 2.5\n')
    assert second.layout is first.layout
    assert second.values == [2.5]


def test_targets_with_pages_of_one_shape_share_a_layout() -> None:
    layouts, wanted = Layouts(), frozenset([b"a_total"])
    one, other, third = (PageParser(wanted, layouts) for _ in range(3))
    first = one.parse(b'# TYPE a counter\na_total{x="1"} 1.0\n')
    second = other.parse(b'# TYPE a counter\na_total{x="1"} 2.5\n')
    assert second.layout is first.layout
    assert second.values == [2.5]
    assert third.parse(b'# TYPE a counter\na_total{x="2"} 2.5\n').layout is not first.layout


def test_a_layout_goes_with_the_last_target_that_has_it() -> None:
    layouts, wanted = Layouts(), frozenset([b"a"])
    parser = PageParser(wanted, layouts)
    for number in range(3):
        gone = weakref.ref(parser.parse(b'a{x="%d"} 1\n' % number).layout)
        parser.parse(b"a 1\na 2\n" * (number + 1))
        gc.collect()
        assert gone() is None


def test_a_wanted_line_that_takes_an_unwanted_ones_place_is_seen() -> None:
    parser = PageParser(frozenset([b"a", b"b"]))
    parser.parse(b"# TYPE a gauge\na 1\n# TYPE c gauge\nc 1\n")
    page = parser.parse(b"# TYPE a gauge\na 1\n# TYPE b gauge\nb 7\n")
    assert page.values == [1.0, 7.0]


@pytest.mark.parametrize(
    ("line", "value"),
    [
        (b'a{x="1"} 1', 1.0),
        (b'a{x="1",} 1 1700000000000', 1.0),
        (b'  a { x = "1" , }  +1e3 ', 1000.0),
        (b'a{x="1"} 1 # {trace_id="b"} 0.5 1.0', 1.0),
        (b'a{x="1"} 1 1.5 # {trace_id="b"} 0.5', 1.0),
        (b'{"a",x="1"} 4', 4.0),
        (b'a{"x"="1"} 4', 4.0),
        (b'a{x="1"} +Inf', math.inf),
        (b'a{x="1"} -inf', -math.inf),
        (b'a{x="1"} .5', 0.5),
    ],
)
def test_tolerated_spellings(line: bytes, value: float) -> None:
    parsed = parse_line(line)
    assert parsed is not None
    assert parsed.series == ("a", (("x", "1"),))
    assert parsed.value == value


@pytest.mark.parametrize(
    "line",
    [b"a", b"a{", b'a{x="1} 1', b"a 1_000", b"a 0x10", b"a one", b'a{x="1"x="2"} 1', b'a{x="1",x="1"} 1',
     b"a 1 then", b'a{x="\xff"} 1', b"{} 1", b"a{x=1} 1", b"1a 1"],
)  # fmt: skip
def test_lines_that_are_no_sample(line: bytes) -> None:
    assert parse_line(line) is None


def test_label_values_keep_spaces_braces_and_escapes() -> None:
    parsed = parse_line(rb'a{x="a b } # { , \"q\" \\ \n \x"} 1')
    assert parsed is not None
    assert parsed.series.labels == (("x", 'a b } # { , "q" \\ \n \\x'),)


def test_a_broken_wanted_line_is_counted_and_costs_no_other() -> None:
    page = PageParser(frozenset([b"a", b"b"])).parse(b"a 1\nb one\nc broken\nb 2\nb 3\n")
    assert (page.values, page.malformed, page.duplicates) == ([1.0, 2.0], 1, 1)


def test_a_value_that_only_python_can_read_is_malformed_also_on_a_remembered_layout() -> None:
    parser = PageParser(frozenset([b"a"]))
    parser.parse(b"# TYPE a gauge\na 1000\n")
    assert parser.parse(b"# TYPE a gauge\na 1_000\n").malformed == 1


def test_windows_line_ends_duplicate_type_lines_and_a_missing_last_newline() -> None:
    page = PageParser(frozenset([b"a"])).parse(b'# TYPE a gauge\r\n# TYPE a gauge\r\n\r\na 1\r\na{x="2"} 2')
    assert page.values == [1.0, 2.0]


def test_an_openmetrics_page_of_a_real_registry() -> None:
    registry = CollectorRegistry()
    family = HistogramMetricFamily("h", "help", buckets=[("1.0", 1), ("+Inf", 2)], sum_value=3.0)
    registry.register(_Given([family]))
    data = openmetrics.generate_latest(registry)
    page = PageParser(frozenset([b"h_bucket", b"h_sum", b"h_count"])).parse(data)
    assert page.values == [1.0, 2.0, 2.0, 3.0]


@pytest.mark.parametrize(
    "body", [b"<!doctype html><p>hi", b'{"status":"ok"}', b"\x00\x01\x02a 1\n", b"hello there, world\n"]
)
def test_a_body_that_is_no_page_fails_with_a_reason(body: bytes) -> None:
    with pytest.raises(ScrapeError) as caught:
        PageParser(frozenset([b"a"])).parse(body)
    assert caught.value.reason == "not_metrics"


def test_an_empty_body_is_an_empty_page() -> None:
    assert PageParser(frozenset([b"a"])).parse(b"").values == []


def test_a_page_with_too_many_series_fails_instead_of_filling_memory() -> None:
    data = b"".join(b'a{x="%d"} 1\n' % i for i in range(50_002))
    with pytest.raises(ScrapeError) as caught:
        PageParser(frozenset([b"a"])).parse(data)
    assert caught.value.reason == "too_large"


@given(st.binary(max_size=300))
def test_arbitrary_bytes_give_a_page_or_a_scrape_error(data: bytes) -> None:
    parser = PageParser(frozenset([b"a", b"b"]))
    for _ in range(2):
        with suppress(ScrapeError):
            parser.parse(data)
