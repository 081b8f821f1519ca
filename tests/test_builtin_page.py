"""The built-in page as HTML: complete, escaped, bounded, in colours that boards share."""

import re
from dataclasses import replace
from hashlib import sha256
from html.parser import HTMLParser
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest

from fleet import BEGAN, Demo, Watched, vllm_page
from kvcache_dashboards import style
from kvcache_exporter.builtin_page import assets, formats
from kvcache_exporter.builtin_page.render import page
from kvcache_exporter.builtin_page.terms import TERMS
from kvcache_exporter.errors import ScrapeError
from kvcache_exporter.events.source import EventOptions, EventSource
from kvcache_exporter.model import RequestRecord
from kvcache_exporter.requests.prices import load_prices
from kvcache_exporter.summary.figures import Cost

SOURCES = Path(assets.__file__).parent
HOSTILE = '</script><script>alert(1)</script><img src=x onerror="alert(2)">'
MOST_BYTES = 150_000


class Ratios(NamedTuple):
    token_hit_ratio: float | None
    request_hit_ratio: float | None
    gap: float | None = None


def bill(spent: float | None, unpriced: int = 0) -> Cost:
    """Of what would have cost a dollar without a cache."""
    return Cost(
        cost_usd=spent,
        cost_without_cache_usd=None if spent is None else 1.0,
        savings_usd=None if spent is None else 1.0 - spent,
        savings_ratio=None if spent is None else 1.0 - spent,
        priced_requests=0 if spent is None else 1,
        unpriced_requests=unpriced,
    )


class Parsed(HTMLParser):
    """Elements by name, and every text."""

    def __init__(self, html: bytes) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(html.decode())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (formats.percent(None), "no traffic"),
        (formats.percent(0.0), "0.0 %"),
        (formats.percent(0.45678), "45.7 %"),
        (formats.points(-0.1), "-10.0 pp"),
        (formats.gap(Ratios(0.5, 0.25, 0.25)), "+25.0 pp"),
        (formats.gap(Ratios(None, None)), "no traffic"),
        (formats.gap(Ratios(0.5, None)), "not reported"),
        (formats.by_requests(Ratios(None, None)), "no traffic"),
        (formats.by_requests(Ratios(0.5, None)), "not reported"),
        (formats.usage(0.999), "100 %"),
        (formats.number(None), "not reported"),
        (formats.number(0), "0"),
        (formats.number(999.4), "999"),
        (formats.number(999.6), "1 k"),
        (formats.number(1234567), "1.23 M"),
        (formats.number(-1500), "-1.5 k"),
        (formats.rate(0.0123), "0.0123/s"),
        (formats.rate(52_100.0), "52.1 k/s"),
        (formats.rate(None), "not reported"),
        (formats.rate(52.0, "blocks"), "52 blocks/s"),
        (formats.count(12345), "12,345"),
        (formats.dollars(0.0), "$0.00"),
        (formats.dollars(1234.567), "$1,234.57"),
        (formats.dollars(0.1), "$0.10"),
        (formats.dollars(0.0999), "$0.0999"),
        (formats.dollars(0.000123456), "$0.000123"),
        (formats.dollars(-0.25), "-$0.25"),
        (formats.spent(bill(None, unpriced=0)), "no traffic"),
        (formats.spent(bill(None, unpriced=2)), "no price"),
        (formats.saved(bill(None, unpriced=2)), "no price"),
        (formats.spent(bill(0.75)), "$0.75"),
        (formats.without_cache(bill(0.75)), "$1.00"),
        (formats.saved(bill(0.75)), "$0.25 (25.0 %)"),
        (formats.saved(bill(1.5)), "-$0.50 (-50.0 %)"),
        (formats.size(0), "0 B"),
        (formats.size(2048), "2.05 kB"),
        (formats.at_most(0.075, 300.0), "≤ 75 ms"),
        (formats.at_most(1.5, 300.0), "≤ 1.5 s"),
        (formats.at_most(None, 300.0), "> 300 s"),
        (formats.duration(None), "unknown"),
        (formats.duration(59.6), "1 min"),
        (formats.duration(61), "1 min 1 s"),
        (formats.duration(3600), "1 h"),
        (formats.duration(90_061), "1 d 1 h"),
        (formats.clock(86399.0), "23:59:59"),
    ],
)
def test_numbers_have_units_and_nothing_has_words(written: str, expected: str) -> None:
    assert written == expected


def test_the_shipped_library_is_the_recorded_one() -> None:
    folder = SOURCES / "vendor" / "uplot"
    source = (folder / "SOURCE.md").read_text()
    recorded = dict(re.findall(r"^\| (\S+) \| ([0-9a-f]{64}) \|$", source, re.MULTILINE))
    assert sorted(recorded) == ["uPlot.iife.min.js", "uPlot.min.css"]
    for name, digest in recorded.items():
        assert sha256((folder / name).read_bytes()).hexdigest() == digest
    version = re.search(rb"uPlot \(v([\d.]+)\)", (folder / "uPlot.iife.min.js").read_bytes())
    assert version is not None
    assert f"uPlot {version[1].decode()} " in source
    assert "MIT License" in (folder / "LICENSE").read_text()


def test_the_path_of_an_asset_holds_the_hash_of_what_is_served() -> None:
    assert sorted(path.partition("/")[2] for path in assets.ASSETS) == sorted(assets.PATHS)
    for path, asset in assets.ASSETS.items():
        assert sha256(asset.body).hexdigest().startswith(path.partition("/")[0])


def test_the_page_stands_without_a_script_and_holds_none() -> None:
    parsed = Parsed(page(Watched().summary()))
    assert {attributes.get("type") or attributes["src"] for attributes in parsed.all("script")} == {
        f"assets/{assets.PATHS['uPlot.js']}",
        f"assets/{assets.PATHS['page.js']}",
        "application/json",
    }
    assert not parsed.all("style")
    for _, attributes in parsed.tags:
        assert not [name for name in attributes if name == "style" or name.startswith("on")]
    assert parsed.all("meta")[-1] == {"http-equiv": "refresh", "content": "10"}
    assert "no targets and no logs yet" in parsed.text


def test_figures_of_the_demo_stand_in_the_tables_as_the_summary_has_them() -> None:
    summary = Demo().play(150).summary()
    text = re.sub(r"\s+", " ", Parsed(page(summary)).text)
    engines, requests = summary.fleet.engines, summary.fleet.requests
    assert engines is not None
    assert requests is not None
    windows = list(engines.windows.values())
    assert f"tokens, by engines{''.join(formats.percent(w.token_hit_ratio) for w in windows)}" in text
    assert f"gap, by engines{''.join(map(formats.gap, windows))}" in text
    assert f"preemptions{''.join(formats.rate(w.preemptions_per_second) for w in windows)}" in text
    for outcome, latency in requests.ttft["5m"].items():
        p99 = formats.at_most(latency.estimates.p99_at_most_seconds, latency.edges_seconds[-1])
        assert re.search(rf"{outcome} ?{requests.outcomes['5m'][outcome]}[\d. ]+%.*?{re.escape(p99)}", text)
    for group in summary.groups.shown:
        assert group.group in text


def tables(html: bytes) -> str:
    """All text, as without a script: rows run together."""
    return re.sub(r"\s+", " ", Parsed(html).text)


def priced_and_heard() -> Watched:
    """A vLLM that evicts and re-warms, by its events alone, and a log with prices."""
    watched = Watched(events=[EventSource(EventOptions("a", "tcp://127.0.0.1:1"))])
    ledger = watched.events[0].ledgers[0]
    stored = {"type": "BlockStored", "block_hashes": [1, 2, 3, 4, 5, 6, 7, 8]}
    removed = {"type": "BlockRemoved", "block_hashes": [1, 2, 3, 4, 5, 6]}
    again = {"type": "BlockStored", "block_hashes": [1, 2], "medium": "GPU"}
    on_host = {"type": "BlockStored", "block_hashes": [1], "medium": "CPU"}
    watched.ledger("api").prices = load_prices(SOURCES.parents[2] / "docs" / "prices-example.json")
    for at in (0, 20):
        watched.collector("a").page(vllm_page(at, at / 2), BEGAN + at)
        watched.tick(BEGAN + at)
    ledger.add(msgspec.msgpack.encode([BEGAN, [stored, removed, again, on_host], 0]))
    ledger.lost = 3
    request = RequestRecord(10_000, 6_000, output_tokens=100, provider="openai", model_name="gpt-5.1")
    watched.ledger("api").add([request, request._replace(model_name="unheard-of")])
    watched.collector("a").page(vllm_page(40, 20), BEGAN + 40)
    watched.tick(BEGAN + 40)
    return watched


def test_events_and_costs_stand_in_the_tables() -> None:
    text = tables(page(priced_and_heard().summary()))
    assert "evicted tokensnot reportednot reportednot reported" in text
    assert "evicted blocks0.15/s0.15/s0.15/s" in text
    assert "stored blocks0.25/s0.25/s0.25/s" in text
    assert "stored blocks host0.025/s0.025/s0.025/s" in text
    assert "re-warmed blocks0.05/s0.05/s0.05/s" in text
    assert "re-warmed share20.0 %20.0 %20.0 %" in text
    assert "lost batches of events333" in text
    assert "resident blocks 4 on device, 1 on host" in text
    assert "spent$0.00675$0.00675" in text
    assert "without a cache$0.0135$0.0135" in text
    assert "saved by the cache$0.00675 (50.0 %)$0.00675 (50.0 %)" in text
    assert "requests without a price11" in text
    assert "a vllmm0 tokens/s50.0 %\N{EN DASH}0/s0.15 blocks/s" in text
    assert "3 batches of KV events lost in the last hour" in text
    assert "a: 3 batches lost" in text


def test_without_events_and_prices_nothing_of_them_is_shown() -> None:
    """But how an engine that counts no evictions could tell them."""
    watched = Watched()
    for at in (0, 20):
        watched.collector("a").page(vllm_page(at, at / 2), BEGAN + at)
        watched.ledger("api").add([RequestRecord(10, 5, model_name="m")])
        watched.tick(BEGAN + at)
    html = re.sub(rb"<details>.*?</details>", b"", page(watched.summary()), flags=re.DOTALL)
    text = tables(html)
    for words in ("evicted blocks", "re-warmed", "resident", "Cost of", "spent", "$", "lost"):
        assert words not in text.partition('{"generated_at"')[0]
    assert "These engines' pages do not count evictions, their KV events do." in text


def test_a_source_that_cannot_listen_or_heard_nothing_says_so() -> None:
    watched = priced_and_heard()
    watched.events.append(EventSource(EventOptions("b", "tcp://127.0.0.1:2")))
    watched.events[0].problem = HOSTILE
    watched.tick(BEGAN + 60)
    html = page(watched.summary())
    text = tables(html)
    assert f"KV events of a cannot be heard: {HOSTILE}." in text
    assert "b: nothing heard yet" in text
    assert b"<img" not in html


def test_every_word_that_is_explained_is_explained_where_it_is_used() -> None:
    """Over the word for who points, and in a list below for who does not."""
    html = page(priced_and_heard().summary())
    parsed = Parsed(html)
    titles = {attributes["title"] for _, attributes in parsed.tags if attributes.get("title")}
    lists = Parsed(b"".join(re.findall(rb"<details>.*?</details>", html, re.DOTALL))).text
    assert titles <= set(TERMS.values())
    for term, meaning in TERMS.items():
        assert term in lists
        assert meaning in lists


def test_the_first_target_without_a_page_is_named_at_the_top() -> None:
    watched = Watched()
    for name in ("a", "b", "c"):
        watched.collector(name).failed(ScrapeError("connection", "refused"))
    watched.tick(BEGAN)
    assert "3 of 3 targets without a usable page: a and 2 more." in tables(page(watched.summary()))


def test_what_nobody_answers_or_takes_two_pages_is_told_from_what_no_engine_counts() -> None:
    watched = Watched()
    collector = watched.collector("a")
    collector.page(vllm_page(0, 0), BEGAN)
    watched.tick(BEGAN)
    assert "preemptionsnot yetnot yetnot yet" in tables(page(watched.summary()))
    collector.page(vllm_page(10, 5), BEGAN + 10)
    watched.tick(BEGAN + 10)
    text = tables(page(watched.summary()))
    assert "preemptions0/s0/s0/s" in text
    assert "evicted tokensnot reportednot reportednot reported" in text
    assert "1 of 1 replicas answers" in text
    collector.failed(ScrapeError("connection", "refused"))
    watched.tick(BEGAN + 20)
    text = tables(page(watched.summary()))
    assert "0 of 1 replicas answer" in text
    assert "tokens, by enginesno answerno answerno answer" in text
    assert "preemptionsno answerno answerno answer" in text
    assert "m 0 of 1no answerno answer" in text
    assert "no replica answers" in text


def test_an_incident_stands_at_the_top_with_its_runbooks() -> None:
    watched = Watched()
    for at in (0, 60):
        for name, preemptions in (("a", 6), ("b", 60), ("c", 0)):
            page_of = vllm_page(at, at / 2, preemptions=preemptions * at / 60, usage=0.99, waiting=at / 30)
            watched.collector(name).page(page_of, BEGAN + at)
        watched.tick(BEGAN + at)
    html = page(watched.summary())
    text = tables(html)
    assert "Running requests are preempted, most on b and 1 more. what to do" in text
    assert "The cache is full while requests wait: a and 2 more. what to do" in text
    for runbook in ("KVCachePreemptionSpike", "KVCacheUsageHigh"):
        assert f"alerts/runbooks/{runbook}.md" in html.decode()


def test_a_shard_says_that_it_shows_its_share_only() -> None:
    summary = Watched().summary()
    assert "only this exporter's share" not in Parsed(page(summary)).text
    shard = replace(summary, exporter=replace(summary.exporter, shard_index=1, shard_count=3))
    assert "Shard 2 of 3: only this exporter's share of the targets and logs." in Parsed(page(shard)).text


def hostile_fleet() -> Watched:
    watched = Watched()
    for at in (0, 60):
        watched.collector("10.0.0.1:8000").page(vllm_page(at, at / 2, model=HOSTILE), BEGAN + at)
        watched.collector("10.0.0.2:8000").failed(ScrapeError("not_metrics", HOSTILE))
        watched.ledger("app").add([RequestRecord(9, 0, model_name=HOSTILE, group=HOSTILE, ttft_seconds=1.0)])
        watched.tick(BEGAN + at)
    return watched


@pytest.mark.parametrize("model", [None, HOSTILE])
def test_names_from_pages_and_logs_are_text_wherever_they_stand(model: str | None) -> None:
    html = page(hostile_fleet().summary(model, problems=[HOSTILE]))
    parsed = Parsed(html)
    assert b"<img" not in html
    assert len(parsed.all("script")) == 3
    assert parsed.text.count("alert(1)") >= 4
    data = html.rpartition(b'id="data">')[2].partition(b"</script>")[0]
    assert b"<" not in data
    links = [attributes["href"] or "" for attributes in parsed.all("a")]
    assert all(not href.startswith("javascript:") and "<" not in href for href in links)


@pytest.fixture(scope="module")
def big_fleet() -> Watched:
    """1,000 targets of 40 models, of which 300 are down, and 400 groups; an hour of history."""
    watched = Watched()
    for at in (0, 60):
        for number in range(1000):
            collector = watched.collector(f"inference/vllm-{number:04}.llm.svc.cluster.local:8000")
            if number % 10 < 3 and at:
                collector.failed(ScrapeError("connection", "refused; check that it runs " * 20))
            else:
                name = f"organisation/some-model-{number % 40}"
                collector.page(vllm_page(at * 100, at * (number % 90), model=name), BEGAN + at)
        watched.ledger("app").add(
            [RequestRecord(900, 0, model_name="m", group=f"route-{n}", ttft_seconds=1.0) for n in range(400)]
        )
        watched.tick(BEGAN + at)
    for step in range(1, 300):
        watched.recorder.tick(BEGAN + 60 + 15 * step, (), [watched.ledger("app")], [])
    return watched


def test_a_big_fleet_gives_a_bounded_page_that_counts_the_rest(big_fleet: Watched) -> None:
    html = page(big_fleet.summary())
    text = Parsed(html).text
    assert "680 more replicas not shown" in text
    assert "290 more targets not shown" in text
    assert "181 more groups not shown" in text
    assert text.count("organisation/some-model-") <= 32 + 20
    everything = len(html) + sum(len(asset.body) for asset in assets.ASSETS.values())
    assert everything < MOST_BYTES


def _colors() -> dict[str, dict[str, str]]:
    css = (SOURCES / "page.css").read_text()
    light, dark = (
        dict(re.findall(r"--([\w-]+): ([^;]+);", block))
        for block in re.findall(r":root \{(.*?)\}", css, re.DOTALL)
    )
    return {"light": light, "dark": {**light, **dark}}


def _resolved(colors: dict[str, str], name: str) -> str:
    value = colors[name]
    return _resolved(colors, value[6:-1]) if value.startswith("var(") else value


def _luminance(color: str) -> float:
    channels = [int(color[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _contrast(one: str, other: str) -> float:
    low, high = sorted((_luminance(one), _luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_colour_of_text_and_of_lines_stands_out_from_its_ground(scheme: str) -> None:
    colors = _colors()[scheme]
    names = set(colors) - {"bg", "panel", "border"}
    assert {"text", "muted", "link", "good", "warn", "bad", *style.OUTCOMES, *style.PHASES} <= names
    for name in names:
        for ground in ("bg", "panel"):
            assert _contrast(_resolved(colors, name), colors[ground]) >= 4.5, (name, ground)


def test_outcomes_and_phases_have_the_colours_of_the_boards() -> None:
    colors = _colors()["light"]
    for name, board in {**style.OUTCOMES, **style.PHASES}.items():
        assert colors[name] == f"var(--{board})"
    assert [colors[name] for name in ("good", "warn", "bad")] == [
        f"var(--{board})" for board in (style.GOOD, style.WARN, style.BAD)
    ]


def test_colours_stand_in_one_place() -> None:
    css = re.sub(r":root \{.*?\}", "", (SOURCES / "page.css").read_text(), flags=re.DOTALL)
    everywhere = css + (SOURCES / "page.js").read_text() + (SOURCES / "page.html.jinja").read_text()
    assert re.findall(r"#[0-9a-fA-F]{3,8}\b(?!\w)|rgba?\(", everywhere.replace("#main", "")) == []
