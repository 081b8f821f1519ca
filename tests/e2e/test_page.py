"""The built-in page in a real browser, on the playing demo and on hostile targets."""

import re
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import requests
from axe_playwright_python.sync_playwright import Axe
from demo import playing
from playwright.sync_api import Browser, Page
from processes import Engine, free_port, running, start_exporter, wait_until

from browser.page import chromium
from event_publisher import Publisher
from fleet import vllm_page
from kvcache_exporter.builtin_page import formats

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]

DOCS = Path(__file__).parents[2] / "docs"
SPEED = 3.0
CHARTS = ("hits", "outcomes", "p95", "usage", "phases")
USAGE = [
    b'{"model":"%s","usage":{"prompt_tokens":10000,"completion_tokens":100,'
    b'"prompt_tokens_details":{"cached_tokens":6000}}}\n' % model
    for model in (b"gpt-5.1", b"gpt-5.1", b"unheard-of")
]
HOSTILE = "</script><script>window.hacked=1</script><img src=x onerror=window.hacked=2>" + "x" * 60
# Coloured pixels of a chart's canvas: grid and text are grey.
COLOURED = """(id) => {
  const canvas = document.querySelector(`#${id} canvas`);
  if (!canvas) return 0;
  const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  let count = 0;
  for (let i = 0; i < data.length; i += 4)
    count += data[i + 3] > 128 && Math.max(...data.slice(i, i + 3)) - Math.min(...data.slice(i, i + 3)) > 60;
  return count;
}"""
# What is written on canvases.
WRITTEN = """window.written = [];
const fillText = CanvasRenderingContext2D.prototype.fillText;
CanvasRenderingContext2D.prototype.fillText = function (text, ...rest) {
  window.written.push(text);
  return fillText.call(this, text, ...rest);
};"""
ROWS = """(id) => Object.fromEntries([...document.querySelectorAll(`#${id} tbody tr`)].map((row) =>
  [row.cells[0].innerText.trim(), [...row.cells].slice(1).map((cell) => cell.innerText.trim())]))"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with playing(SPEED) as url:
        wait_until("traffic in the demo", lambda: _has_traffic(url), 15.0)
        yield url


def _has_traffic(url: str) -> bool:
    fleet = requests.get(f"{url}api/v1/summary", timeout=5).json()["fleet"]
    return bool(
        fleet["engines"] and fleet["engines"]["ttft"]["1h"] and fleet["requests"]["ttft"]["5m"].get("full")
    )


@contextmanager
def opened(browser: Browser, url: str, *, width: int = 1400, **options: Any) -> Iterator[Page]:
    """A tab of its own; whatever the page's console or a script complains of fails the test."""
    context = browser.new_context(viewport={"width": width, "height": 900}, **options)
    page = context.new_page()
    complaints: list[str] = []
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.goto(url)
    try:
        yield page
    finally:
        context.close()
    # Chromium's remark is on COLOURED, not on the page.
    assert [text for text in complaints if not text.startswith("Canvas2D: Multiple readback")] == []


@contextmanager
def priced_and_heard(folder: Path) -> Iterator[tuple[str, Publisher]]:
    """An exporter of a vLLM that publishes its KV events, and of an API's log with prices."""
    port, events_port = free_port(), free_port()
    log, config = folder / "usage.jsonl", folder / "kvcache.yaml"
    log.write_bytes(b"".join(USAGE))
    with closing(Engine(folder)) as engine, Publisher(events_port) as publisher:
        engine.page = vllm_page(1000, 500)
        config.write_text(
            f"scrape: {{interval: 1s, timeout: 1s}}\ntargets: [{{static: ['{engine.address}']}}]\n"
            f"requests: [{{name: api, format: openai_chat, paths: ['{log}'], start_at: beginning}}]\n"
            f"events: [{{target: '{engine.address}', endpoint: 'tcp://127.0.0.1:{events_port}'}}]\n"
            f"prices: {{file: '{DOCS / 'prices-example.json'}'}}\n"
        )
        with running(start_exporter(config, port, folder / "log")):
            publisher.subscribed()
            yield f"http://127.0.0.1:{port}/", publisher


def drawn(page: Page, chart: str) -> None:
    wait_until(f"lines in the chart {chart}", lambda: page.evaluate(COLOURED, f"chart-{chart}") > 30)


def _of_one_moment(page: Page, url: str, *parts: str) -> tuple[dict[str, Any], ...]:
    """The summary and the cells of the parts' rows by name."""

    def found() -> tuple[dict[str, Any], ...] | None:
        page.reload()
        summary = requests.get(f"{url}api/v1/summary", timeout=5).json()
        at = page.evaluate("JSON.parse(document.getElementById('data').textContent).generated_at")
        rows = (page.evaluate(ROWS, part) for part in parts)
        return (summary, *rows) if at == summary["generated_at"] else None

    return wait_until("page and summary of one moment", found)


def refresh(page: Page) -> None:
    """As when the tab is shown again: at once."""
    page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")


def test_figures_on_the_page_equal_the_summary(browser: Browser, url: str) -> None:
    with opened(browser, url) as page:
        summary, hit, cost = _of_one_moment(page, url, "hit", "cost")
    fleet = summary["fleet"]
    for kind in ("engines", "requests"):
        windows = fleet[kind]["windows"].values()
        by = "engines" if kind == "engines" else "logs"
        assert hit[f"tokens, by {by}"] == [formats.percent(w["token_hit_ratio"]) for w in windows]
        assert next(row for name, row in hit.items() if name.startswith(f"requests, by {by}")) == [
            formats.percent(w["request_hit_ratio"]) for w in windows
        ]
        assert hit[f"gap, by {by}"] == [formats.points(w["gap"]) for w in windows]
    assert cost.keys() >= {"full", "partial", "miss"}
    for outcome, latency in fleet["requests"]["ttft"]["5m"].items():
        bounds = [formats.at_most(v, latency["edges_seconds"][-1]) for v in latency["estimates"].values()]
        assert cost[outcome][0] == str(fleet["requests"]["outcomes"]["5m"][outcome])
        assert cost[outcome][2:] == bounds


def test_events_and_costs_on_the_page_equal_the_summary(browser: Browser, tmp_path: Path) -> None:
    with priced_and_heard(tmp_path) as (url, publisher):
        publisher.store(*range(100))
        publisher.remove(*range(60))
        publisher.store(*range(30))

        def told() -> dict[str, Any] | None:
            fleet: dict[str, Any] = requests.get(f"{url}api/v1/summary", timeout=5).json()["fleet"]
            heard = fleet["events"]["windows"]["1h"]["rewarmed_blocks_per_second"]
            return fleet if heard and fleet["requests"] and fleet["requests"]["costs"] else None

        wait_until("events and costs", told)
        with opened(browser, url) as page:
            drawn(page, "pressure")
            legend = page.inner_text("#chart-pressure .u-legend")
            assert "evicted blocks/s" in legend
            assert "evicted tokens/s" not in legend
            # This log tells no times: no empty charts of them.
            assert page.locator("#chart-p95").is_hidden()
            summary, pressure, cost = _of_one_moment(page, url, "pressure", "cost")
    events, costs = summary["fleet"]["events"]["windows"], summary["fleet"]["requests"]["costs"].values()
    blocks = [w["evicted_blocks_per_second"]["device"] for w in events.values()]
    assert pressure["evicted blocks"] == [formats.rate(value) for value in blocks]
    assert pressure["re-warmed share"] == [formats.percent(w["rewarmed_ratio"]) for w in events.values()]
    assert pressure["re-warmed share"][0] == "23.1 %"
    assert cost["spent"] == [formats.dollars(each["cost_usd"]) for each in costs]
    assert cost["without a cache"] == [formats.dollars(each["cost_without_cache_usd"]) for each in costs]
    assert cost["requests without a price"] == [str(each["unpriced_requests"]) for each in costs]


def test_charts_are_drawn_and_go_on_by_themselves(browser: Browser, url: str) -> None:
    with opened(browser, url) as page:
        for name in CHARTS:
            drawn(page, name)
        before = page.inner_text("#at")
        wait_until("new figures", lambda: page.inner_text("#at") != before)
        assert page.inner_text("#status") == "Live"


def test_a_history_of_seconds_has_times_of_day_on_its_axis(browser: Browser, tmp_path: Path) -> None:
    """Not months: the first page that a newcomer sees has one moment on it."""
    port, config = free_port(), tmp_path / "kvcache.yaml"
    with closing(Engine(tmp_path)) as engine:
        engine.page = vllm_page(1000, 500)
        config.write_text(f"targets: [{{static: ['{engine.address}']}}]\n")
        with running(start_exporter(config, port, tmp_path / "log")):
            url = f"http://127.0.0.1:{port}/"
            wait_until(
                "history", lambda: requests.get(f"{url}api/v1/summary", timeout=5).json()["history"]["at"]
            )
            context = browser.new_context()
            context.add_init_script(WRITTEN)
            page = context.new_page()
            page.goto(url)
            written = wait_until("an axis", lambda: page.evaluate("window.written"))
            context.close()
    times = [text for text in written if re.fullmatch(r"\d\d:\d\d", text)]
    assert len(times) > 3
    assert not [text for text in written if re.match("[A-Z]", text)], written


def test_without_javascript_the_tables_stand(browser: Browser, url: str) -> None:
    with opened(browser, url, java_script_enabled=False) as page:
        assert page.locator("#hit tbody tr").count() == 8
        assert " %" in page.inner_text("#hit")
        assert page.locator("figure").first.is_hidden()
        assert page.locator("noscript meta").count() or page.locator("head meta[http-equiv=refresh]").count()


def test_the_page_follows_the_colour_scheme(browser: Browser, url: str) -> None:
    grounds = {}
    for scheme in ("light", "dark"):
        with opened(browser, url, color_scheme=scheme) as page:
            grounds[scheme] = page.evaluate("getComputedStyle(document.body).backgroundColor")
            drawn(page, "hits")
    assert grounds == {"light": "rgb(244, 245, 247)", "dark": "rgb(17, 18, 23)"}


@pytest.mark.parametrize("width", [360, 768, 2560])
def test_nothing_sticks_out(browser: Browser, url: str, width: int) -> None:
    with opened(browser, url, width=width) as page:
        drawn(page, "hits")
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_tab_goes_through_links_and_tables_in_the_order_of_the_page(browser: Browser, url: str) -> None:
    with opened(browser, url) as page:
        wanted = page.evaluate("[...document.querySelectorAll('a, summary, [tabindex]')].length")
        found = []
        for _ in range(wanted):
            page.keyboard.press("Tab")
            found.append(
                page.evaluate(
                    "[...document.querySelectorAll('a, summary, [tabindex]')].indexOf(document.activeElement)"
                )
            )
        assert found == list(range(wanted))
        page.evaluate("document.activeElement.blur()")
        page.locator(".skip").focus()
        page.keyboard.press("Enter")
        assert page.evaluate("location.hash") == "#main"


def test_arrow_keys_go_through_the_points_of_a_chart(browser: Browser, url: str) -> None:
    with opened(browser, url) as page:
        drawn(page, "hits")
        history = page.evaluate("JSON.parse(document.getElementById('data').textContent).history")
        legend = "#chart-hits .u-legend .u-value"
        page.route("**/*", lambda route: route.abort())
        page.locator("#chart-hits").focus()
        for back in (1, 2):
            page.keyboard.press("ArrowLeft")
            at = datetime.fromtimestamp(history["at"][-back], UTC)
            assert page.locator(legend).first.inner_text() == f"{at:%H:%M:%S}"
        page.keyboard.press("ArrowRight")
        ratio = history["token_hit_ratio"][-1]
        assert page.locator(legend).nth(1).inner_text() == f"{round(100 * ratio, 1):g} %"
        page.keyboard.press("Tab")
        newest = datetime.fromtimestamp(history["at"][-1], UTC)
        assert page.locator(legend).first.inner_text() == f"{newest:%H:%M:%S}"
        page.unroute("**/*")


def test_the_focus_survives_new_figures(browser: Browser, url: str) -> None:
    with opened(browser, url) as page:
        page.locator("#replicas a").first.focus()
        href, before = page.evaluate("document.activeElement.href"), page.inner_text("#replicas")

        def changed() -> bool:
            refresh(page)
            return bool(page.inner_text("#replicas") != before)

        wait_until("new figures", changed)
        assert page.evaluate("document.activeElement.href") == href


@pytest.mark.parametrize(
    "options", [{}, {"color_scheme": "dark"}, {"java_script_enabled": True, "width": 360}]
)
def test_axe_finds_nothing(browser: Browser, url: str, options: dict[str, Any]) -> None:
    with opened(browser, url, **options) as page:
        drawn(page, "hits")
        results = Axe().run(page)
        assert results.violations_count == 0, results.generate_report()


def test_a_page_without_its_exporter_says_so_and_comes_back(browser: Browser, url: str) -> None:
    context = browser.new_context()
    page = context.new_page()
    page.goto(url)
    page.route("**/*", lambda route: route.abort())
    refresh(page)
    wait_until("the notice", lambda: page.inner_text("#status").startswith("Stale since "))
    assert page.inner_text("#status").endswith(" UTC: the exporter cannot be reached")
    assert page.get_attribute("#status", "aria-live") == "polite"
    assert page.locator("body.stale").count() == 1
    page.unroute("**/*")
    refresh(page)
    wait_until("live figures", lambda: page.inner_text("#status") == "Live")
    context.close()


def test_a_hidden_page_asks_nothing(browser: Browser, url: str) -> None:
    with opened(browser, url) as page:
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        page.clock.install()
        page.evaluate("Object.defineProperty(document, 'hidden', { value: true, configurable: true })")
        refresh(page)
        assert page.inner_text("#status") == "Paused"
        page.clock.run_for(60_000)
        assert asked == []
        page.evaluate("delete document.hidden")
        refresh(page)
        wait_until("live figures", lambda: page.inner_text("#status") == "Live")
        assert asked == [url]


def test_everything_the_page_loads_is_small_and_the_exporters_own(browser: Browser, url: str) -> None:
    context = browser.new_context()
    page, sizes = context.new_page(), {}
    page.on("response", lambda response: sizes.update({response.url: len(response.body())}))
    page.goto(url)
    page.wait_for_load_state("networkidle")
    context.close()
    assert len(sizes) == 5
    assert all(loaded.startswith(url) for loaded in sizes)
    assert sum(sizes.values()) < 150_000


def test_labels_of_a_target_are_shown_and_never_run(browser: Browser, tmp_path: Path) -> None:
    port, config = free_port(), tmp_path / "kvcache.yaml"
    with closing(Engine(tmp_path)) as engine:
        engine.page = vllm_page(1000, 500, model=HOSTILE)
        config.write_text(
            f"scrape: {{interval: 1s, timeout: 1s}}\ntargets: [{{static: ['{engine.address}']}}]\n"
        )
        with running(start_exporter(config, port, tmp_path / "log")):
            url = f"http://127.0.0.1:{port}/"
            wait_until(
                "the model", lambda: requests.get(f"{url}api/v1/summary", timeout=5).json()["models"]["total"]
            )
            with opened(browser, url, width=360) as page:
                link = page.locator("#models a")
                assert link.inner_text() == HOSTILE
                link.click()
                page.wait_for_load_state()
                assert page.inner_text("h1 span") == HOSTILE
                refresh(page)
                wait_until("live figures", lambda: page.inner_text("#status") == "Live")
                assert page.evaluate("window.hacked") is None
                assert page.evaluate("document.documentElement.scrollWidth") <= 360
