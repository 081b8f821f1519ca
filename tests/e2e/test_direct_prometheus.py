"""One Prometheus reads recorded engines both ways, by itself and through the exporter: the series are equal.

Engines stand still at a page until both ways have read it, so values must be the same to the last bit. The
label `way` tells the two apart, also in what the recording rules make of them.
"""

import json
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest
import requests
from processes import Engine, free_port, prometheus, query, running, start_exporter, wait_until

from kvcache_alerts.recording import RULES
from kvcache_alerts.write import files
from kvcache_dashboards.write import files as board_files
from kvcache_exporter import catalogue as c
from kvcache_exporter.catalogue import CATALOGUE
from kvcache_exporter.direct import direct_rules
from kvcache_exporter.direct.left_out import AREAS, LEFT_OUT

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(180),
    pytest.mark.filterwarnings("ignore:Prefer using dashboardv2:DeprecationWarning"),
]

RECORDINGS = Path(__file__).parents[1] / "fixtures" / "recordings"
# Lookups, computed tokens, prompt tokens, ranks; SGLang's generations, ranks, tiers, retractions.
PLAYED = (
    "vllm-0.10.2",
    "vllm-0.13.0",
    "vllm-0.32.0",
    "vllm-0.32.0-dp2",
    "sglang-0.5.1-a",
    "sglang-0.5.18-a",
    "sglang-0.5.23-dp2",
    "sglang-0.5.23-hicache",
    "sglang-0.5.23-c",
)
TWINS = "sglang-0.5.23-c"
STEPS = 5
CLOCKS = {c.AGE.name, c.TARGET_SCRAPE_DURATION.name, c.TARGET_LAST_SUCCESS.name}
"""Gauges that move with time, or are of the scrape itself."""
_LAST_OF_GROUPS = ('kvcache_target_missing_families{job=""}', "model:kvcache_engine_prefill_seconds:rate5m")
"""Series of the direct group's last rule, and of a late one of the recording group."""
_EVALUATIONS = 5
_PART = re.compile("_(bucket|sum|count)$")
_HISTOGRAMS = {m.name for m in CATALOGUE if m.kind == "histogram"}
# The recorded pages were thinned by these buckets; without buckets the exporter has no histogram.
_THINNED = {c.ENGINE_TTFT.name}

Key = tuple[str, frozenset[tuple[str, str]]]
Series = Mapping[Key, float]


class Both(NamedTuple):
    """What the two ways say at one instant, by name and labels."""

    direct: Series
    exporter: Series


def _pages(recording: str) -> list[bytes]:
    """Pages spread over the recording, its first and last among them; a restart's too, where it has one."""
    paths = sorted((RECORDINGS / recording).glob("*.prom"))
    chosen = [paths[round(step * (len(paths) - 1) / (STEPS - 1))].read_bytes() for step in range(STEPS)]
    return [_with_twins(page) for page in chosen] if recording == TWINS else chosen


def _with_twins(page: bytes) -> bytes:
    """As a page with two tensor-parallel ranks, of which the second is a moment ahead."""
    twins = [
        re.sub(rb"(\S+)$", lambda m: b"%f" % (float(m[1]) + 1), line.replace(b'tp_rank="0"', b'tp_rank="1"'))
        for line in page.splitlines()
        if b'tp_rank="0"' in line
    ]
    assert twins
    return b"\n".join([*page.splitlines(), *twins, b""])


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, list[float]]]:
    """Prometheus' URL and an instant within each step at which nothing moves."""
    folder = tmp_path_factory.mktemp("direct")
    pages = {name: _pages(name) for name in PLAYED}
    with ExitStack() as stack:
        engines = {name: stack.enter_context(closing(Engine(RECORDINGS / name))) for name in PLAYED}
        for name, engine in engines.items():
            engine.page = pages[name][0]
        addresses = [engine.address for engine in engines.values()]
        config, port = folder / "kvcache.yaml", free_port()
        config.write_text(
            "scrape: {interval: 500ms, timeout: 500ms, max_age: 250ms}\n"
            f"targets: [{{engine: auto, static: {addresses}, labels: {{way: exporter}}}}]\n"
        )
        stack.enter_context(running(start_exporter(config, port, folder / "exporter.log")))
        scraped = f"{{targets: {addresses}, labels: {{way: direct}}}}"
        jobs = f"  - job_name: engines\n    static_configs: [{scraped}]\n"
        url = stack.enter_context(prometheus(folder, port, rules="rules-*.yaml", jobs=jobs))
        instants = []
        for step in range(STEPS):
            for name, engine in engines.items():
                engine.page = pages[name][step]
            has_read = partial(_has_read, url, len(engines), time.time())
            wait_until(f"both ways reading page {step}", has_read, 60)
            if not step:
                _load_rules(folder, url)
            for late in _LAST_OF_GROUPS:
                evaluated = partial(_is_newer, url, late, time.time())
                wait_until(f"the rules being evaluated on page {step}", evaluated, 30)
            instants.append(time.time())
        yield url, instants


def _has_read(url: str, engines: int, since: float) -> bool:
    """Whether every target has been scraped either way, by a scrape that began after `since`."""
    direct = [float(r["value"][1]) for r in query(url, "timestamp(up{way='direct'}) and up == 1")]
    newest = (
        "kvcache_target_last_success_timestamp_seconds{way='exporter'} and on (target) kvcache_target_up == 1"
    )
    exporter = [float(r["value"][1]) for r in query(url, newest)]
    return all(len(times) == engines and min(times) > since for times in (direct, exporter))


def _load_rules(folder: Path, url: str) -> None:
    """All rules begin on pages that are there: one that missed a first sample has other rates for minutes."""
    rules = files({"interval": "1s", "keep_labels": "way"}, direct_rules)
    for name in ("direct.yaml", "recording.yaml"):
        (folder / f"rules-{name}").write_text(rules[name])
    requests.post(f"{url}/-/reload", timeout=30).raise_for_status()


def _is_newer(url: str, series: str, since: float) -> bool:
    """Whether all series of the name have been recorded by an evaluation that began after `since`."""
    recorded = [float(r["value"][1]) for r in query(url, f"timestamp({series})")]
    return min(recorded, default=0) > since


def _said(url: str, at: float) -> Both:
    ways: dict[str, dict[Key, float]] = {"direct": {}, "exporter": {}}
    for found in query(url, '{__name__=~"(.+:)?kvcache_.+", way!=""}', at):
        labels = dict(found["metric"])
        name, way = labels.pop("__name__"), labels.pop("way")
        for of_the_scrape in ("job", "instance"):
            labels.pop(of_the_scrape, None)
        ways[way][name, frozenset(labels.items())] = float(found["value"][1])
    return Both(ways["direct"], ways["exporter"])


def _metric(name: str) -> str:
    bare = _PART.sub("", name)
    return bare if bare in _HISTOGRAMS else name


def _on_pages(name: str) -> bool:
    area = next((m.area for m in CATALOGUE if m.name == _metric(name)), "")
    return area in AREAS and _metric(name) not in {m.name for m in LEFT_OUT} | _THINNED


def test_every_series_is_the_same_either_way(played: tuple[str, list[float]]) -> None:
    url, instants = played
    compared: set[str] = set()
    for at in instants:
        direct, exporter = (
            {key: value for key, value in way.items() if _on_pages(key[0])} for way in _said(url, at)
        )
        of_labels = {key for key in exporter if key[0] in (c.CAPACITY_TOKENS.name, c.USED_TOKENS.name)}
        vllm = {key for key in of_labels - set(direct) if ("model_name", "tiny") in key[1]}
        # SGLang's pages do not have the process's start: only who was there knows it.
        ages = {key for key in exporter if key[0] == c.AGE.name} - set(direct)
        assert set(direct) == set(exporter) - vllm - ages
        moving = {key for key in direct if key[0] in CLOCKS}
        wrong = {key: (direct[key], exporter[key]) for key in direct if direct[key] != exporter[key]}
        assert not {key: pair for key, pair in wrong.items() if key not in moving}
        compared |= {name for name, _ in direct}
    assert {_metric(name) for name in compared} >= {
        m.name
        for m in (
            c.PROMPT_TOKENS, c.CACHED_PROMPT_TOKENS, c.PREFIX_QUERY_TOKENS, c.PREFIX_HIT_TOKENS,
            c.EVICTED_TOKENS, c.STORED_TOKENS, c.LOADED_TOKENS, c.PREEMPTIONS, c.USAGE_RATIO, c.USED_TOKENS,
            c.CAPACITY_TOKENS, c.RUNNING_REQUESTS, c.WAITING_REQUESTS, c.ENGINE_REQUESTS,
            c.ENGINE_PREFILL_SECONDS, c.ENGINE_PROMPT_TOKENS, c.ENGINE_COMPUTED_PROMPT_TOKENS,
            c.REQUEST_HIT_THRESHOLD, c.PREFIX_CACHING_ENABLED, c.TARGET_UP, c.TARGET_INFO, c.TARGET_MISSING,
            c.TARGET_DEPRECATED, c.CACHE_RESETS,
        )
    }  # fmt: skip


def test_recorded_series_on_top_are_the_same(played: tuple[str, list[float]]) -> None:
    """Sums and maxima exactly, ratios of rates within 1 %, rates as far as two scrapes of twenty go.

    An evaluation may see one series a scrape ahead of another, the next one sees both.
    """
    url, _ = played
    by_phase = {rule.record for rule in RULES if c.ENGINE_TTFT.name in rule.record}
    for _ in range(_EVALUATIONS):
        found = _recorded(url, time.time())
        assert len({name for name, _ in set(found.direct) & set(found.exporter)}) > 20
        only = {name for name, _ in set(found.exporter) ^ set(found.direct)}
        missed = only - {"target_model:kvcache_capacity_tokens:sum"} - by_phase
        wrong = {key: pair for key, pair in _pairs(found) if not _is_close(key[0], *pair)}
        if not missed and not wrong:
            return
        time.sleep(1)
    pytest.fail(f"different in {_EVALUATIONS} evaluations: {missed or wrong}")


def _recorded(url: str, at: float) -> Both:
    names = {rule.record for rule in RULES}
    direct, exporter = ({key: v for key, v in way.items() if key[0] in names} for way in _said(url, at))
    return Both(direct, exporter)


def _pairs(found: Both) -> Iterator[tuple[Key, tuple[float, float]]]:
    for key in set(found.direct) & set(found.exporter):
        yield key, (found.direct[key], found.exporter[key])


def _is_close(record: str, direct: float, exporter: float) -> bool:
    return direct == pytest.approx(exporter, rel=_tolerance(record), abs=1e-9)


def _tolerance(record: str) -> float:
    """rate() reaches out to the ends of its window by up to a scrape at each side, of about twenty."""
    if "rate5m" not in record:
        return 0.0
    return 0.01 if "ratio" in record else 0.25


def test_queries_of_the_boards_have_data_either_way(played: tuple[str, list[float]]) -> None:
    url, instants = played
    lacking = {m.name for m in LEFT_OUT}
    asked = 0
    for name, text in board_files({}).items():
        for panel in json.loads(text)["panels"]:
            for target in panel.get("targets", []):
                expression = target["expr"].replace("$__rate_interval", "15s").replace("$__range", "60s")
                expression = re.sub(r"\$\w+", ".*", expression)
                ways = {way: _has_data(url, expression, way, instants[-1]) for way in ("direct", "exporter")}
                if ways["exporter"] and not any(metric in expression for metric in lacking):
                    asked += 1
                    assert ways["direct"], (name, panel["title"], expression)
    assert asked > 20


def _has_data(url: str, expression: str, way: str, at: float) -> bool:
    one_way = re.sub(r"(?<=[\w:])\{", f'{{way="{way}", ', expression)
    return any(found["value"][1] != "NaN" for found in query(url, one_way, at))
