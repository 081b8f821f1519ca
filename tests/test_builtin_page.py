"""The built-in page as HTML: complete, escaped, bounded, in colours that boards share."""

import re
from dataclasses import replace
from hashlib import sha256
from html.parser import HTMLParser
from pathlib import Path
from typing import NamedTuple

import pytest

from fleet import BEGAN, Demo, Watched, vllm_page
from kvcache_dashboards import style
from kvcache_exporter.builtin_page import assets, formats
from kvcache_exporter.builtin_page.render import page
from kvcache_exporter.errors import ScrapeError
from kvcache_exporter.model import RequestRecord

SOURCES = Path(assets.__file__).parent
HOSTILE = '</script><script>alert(1)</script><img src=x onerror="alert(2)">'
MOST_BYTES = 150_000


class Ratios(NamedTuple):
    token_hit_ratio: float | None
    request_hit_ratio: float | None
    gap: float | None = None


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
        (formats.gap(Ratios(0.5, None)), "not told"),
        (formats.by_requests(Ratios(None, None)), "no traffic"),
        (formats.by_requests(Ratios(0.5, None)), "not told"),
        (formats.usage(0.999), "100 %"),
        (formats.number(None), "not told"),
        (formats.number(0), "0"),
        (formats.number(999.4), "999"),
        (formats.number(999.6), "1 k"),
        (formats.number(1234567), "1.23 M"),
        (formats.number(-1500), "-1.5 k"),
        (formats.rate(0.0123), "0.0123/s"),
        (formats.rate(52_100.0), "52.1 k/s"),
        (formats.rate(None), "not told"),
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
        watched.recorder.tick(BEGAN + 60 + 15 * step, (), [watched.ledger("app")])
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
