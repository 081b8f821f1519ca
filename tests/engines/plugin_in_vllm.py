"""The plugin inside real vLLM on CPU, against what the clients saw: `make test-engines` (gigabytes, minutes).

Not collected by an ordinary run of pytest: its name says so. Pages and clients' records stay in --basetemp.
"""

import json
import random
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import requests
from processes import wait_until
from prometheus_client.parser import text_string_to_metric_families

from engines.load import Seen, ask, ask_all, leave_after_first_token, prompts, words
from engines.server import BLOCK as BLOCK_TOKENS
from engines.server import BLOCKS, log_lines, vllm
from kvcache_exporter.catalogue import SECONDS_BUCKETS
from kvcache_exporter.cli import main
from kvcache_exporter.engines import ENGINES, candidates
from kvcache_exporter.model import OUTCOMES
from kvcache_exporter.scrape.collector import TargetCollector
from kvcache_exporter.scrape.version import EngineVersion

LATER, EARLIER = 0.25, 0.05
"""Seconds by which a client may see a first token later than the plugin (HTTP, its own threads), or earlier:
the plugin takes the last token to reach the API server as fast as the first did. Two cores do all of that."""
MEAN, MEAN_SHARE = 0.05, 0.15
"""Seconds, or the share, that the means of an outcome may differ: eight requests on a busy machine."""
OUTLIERS = 1
"""Requests of an outcome that may be further off: a client thread that got no processor for a while."""
OWN = 0.02
"""Seconds that vLLM's own mean TTFT may differ from ours."""
NEWEST, OLDER = "0.32.0", "0.16.0"

pytestmark = pytest.mark.timeout(900)


class Page(NamedTuple):
    """An engine's page as the parser of prometheus_client reads it, ranks added up."""

    values: dict[tuple[str, ...], float]
    """By name and, if it has one, its outcome and its bucket's edge."""

    def __sub__(self, before: "Page") -> "Page":
        return Page({key: value - before.values.get(key, 0.0) for key, value in self.values.items()})

    def __call__(self, *key: str) -> float:
        return self.values.get(key, 0.0)


def parse(text: str) -> Page:
    values: defaultdict[tuple[str, ...], float] = defaultdict(float)
    for family in text_string_to_metric_families(text):
        for name, labels, value, *_ in family.samples:
            own = (labels[label] for label in ("outcome", "reason", "le") if label in labels)
            values[name, *own] += value
    return Page(dict(values))


def fetch(address: str, file: Path) -> Page:
    text = requests.get(f"http://{address}/metrics", timeout=10).text
    file.write_text(text)
    return parse(text)


@pytest.fixture(scope="session")
def plugin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The plugin as it is mounted into an engine's pod."""
    path = tmp_path_factory.mktemp("plugin") / "kvcache-plugin.zip"
    assert main(["plugin", "--out", str(path)]) == 0
    return path


def compare(address: str, folder: Path) -> None:
    """One load, and everything that the plugin says of it."""
    for prompt in (words(random.Random(seed), 300) for seed in range(4)):
        ask(address, prompt)  # the engine compiles and warms up in its first requests
    before = fetch(address, folder / "0_before_1795950000.prom")
    seen = ask_all(address, prompts())
    after = settled(address, folder / "1_after_1795950060.prom", before, len(seen))
    (folder / "seen.json").write_text(json.dumps(seen))
    counts_equal(after - before, seen)
    times_agree(after - before, seen)
    through_the_exporter(folder, seen)


def settled(address: str, file: Path, before: Page, finished: int) -> Page:
    """The page once the engine has counted all: its statistics come a moment after a request's last token."""

    def look() -> Page | None:
        page = fetch(address, file)
        done = sum((page - before)("kvcache_requests_total", outcome) for outcome in OUTCOMES)
        return page if done >= finished else None

    return wait_until(f"the plugin counting {finished} requests", look)


def counts_equal(page: Page, seen: list[Seen]) -> None:
    outcomes = {outcome: page("kvcache_requests_total", outcome) for outcome in OUTCOMES}
    assert outcomes == {**dict.fromkeys(OUTCOMES, 0.0), **Counter(request.outcome for request in seen)}
    assert page("kvcache_request_prompt_tokens_total") == sum(request.prompt_tokens for request in seen)
    assert page("kvcache_request_cached_tokens_total") == sum(request.cached_tokens for request in seen)
    assert page("kvcache_request_output_tokens_total") == sum(request.output_tokens for request in seen)
    assert len({name for name, n in outcomes.items() if n}) >= 4, "the load has no variety"


def times_agree(page: Page, seen: list[Seen]) -> None:
    """At every edge of the histogram of every outcome; and with vLLM's own mean."""
    name = "kvcache_request_time_to_first_token_seconds"
    for outcome in {request.outcome for request in seen}:
        times = [request.ttft for request in seen if request.outcome == outcome]
        ours = page(f"{name}_sum", outcome) / page(f"{name}_count", outcome)
        theirs = sum(times) / len(times)
        print(f"{outcome:12} n={len(times):3}  TTFT here {ours:.4f} s  client {theirs:.4f} s")
        assert page(f"{name}_count", outcome) == len(times)
        assert ours == pytest.approx(theirs, abs=MEAN, rel=MEAN_SHARE)
        for edge in SECONDS_BUCKETS:
            least = sum(time <= edge - EARLIER for time in times)
            most = sum(time <= edge + LATER for time in times)
            assert least - OUTLIERS <= page(f"{name}_bucket", outcome, str(edge)) <= most + OUTLIERS, (
                outcome,
                edge,
            )
    own = page("vllm:time_to_first_token_seconds_sum") / page("vllm:time_to_first_token_seconds_count")
    ours = sum(page(f"{name}_sum", outcome) for outcome in OUTCOMES) / len(seen)
    print(f"all          n={len(seen):3}  TTFT here {ours:.4f} s  vLLM's own {own:.4f} s")
    assert abs(own - ours) < OWN


def through_the_exporter(folder: Path, seen: list[Seen]) -> None:
    """The windows of the exporter's page give the clients' own rates."""
    collector = TargetCollector("vllm-0", ENGINES)
    for file in sorted(folder.glob("*.prom")):
        collector.page(file.read_bytes(), float(file.stem.rpartition("_")[2]))
    found = {
        sample.metric.name: sample.value
        for sample in collector.samples
        if "source" in sample.metric.labels and sample.labels[-1] == "5m" and "vllm-0" in sample.labels[4:]
    }
    full = sum(request.outcome == "full" for request in seen)
    tokens = sum(request.cached_tokens for request in seen) / sum(r.prompt_tokens for r in seen)
    assert found == {
        "kvcache_token_hit_ratio": pytest.approx(tokens),
        "kvcache_request_hit_ratio": pytest.approx(full / len(seen)),
    }


@pytest.mark.parametrize("version", [NEWEST, OLDER])
def test_outcomes_equal_the_clients_usage_and_times_their_clocks(
    version: str, plugin: Path, tmp_path: Path
) -> None:
    with vllm(version, tmp_path, plugin) as address:
        asked = EngineVersion(f"http://{address}/metrics")
        assert asked.of(candidates("vllm")[0], 0).startswith(version)
        compare(address, tmp_path)
        special_requests(address, tmp_path)
    assert log_lines(tmp_path, f"blocks of {BLOCK_TOKENS} tokens")
    assert not log_lines(tmp_path, "switched off")


def special_requests(address: str, folder: Path) -> None:
    """Two answers, a client that leaves, a prompt that is refused, and preemption."""
    chance, file = random.Random(5), folder / "special.txt"
    before = fetch(address, file)
    ask(address, words(chance, 400), n=2)
    page = settled(address, file, before, 2) - before
    # As the engine counts them: each answer looks up, prefills and waits by itself.
    assert page("vllm:request_success_total") == 2
    assert sum(page("kvcache_requests_total", outcome) for outcome in OUTCOMES) == 2
    assert page("kvcache_request_prompt_tokens_total") == 800
    before = fetch(address, file)
    leave_after_first_token(address, words(chance, 400))
    with pytest.raises(requests.HTTPError):
        ask(address, words(chance, 4000))
    crowd = [words(chance, 1000) for _ in range(8)]
    output = (BLOCKS * BLOCK_TOKENS - 8 * 1000) // 8 + 40
    seen = ask_all(address, crowd, parallel=len(crowd), output=output)
    page = settled(address, file, before, len(seen)) - before
    assert page("vllm:num_preemptions_total") > 0
    counts = {outcome: page("kvcache_requests_total", outcome) for outcome in OUTCOMES}
    assert counts == {**dict.fromkeys(OUTCOMES, 0.0), **Counter(request.outcome for request in seen)}
    assert page("kvcache_request_output_tokens_total") == 8 * output


@pytest.mark.parametrize(
    "flags",
    [("--api-server-count", "2"), ("--data-parallel-size", "2")],
    ids=["two-api-servers", "two-ranks"],
)
def test_each_request_is_counted_once_by_several_processes(
    flags: tuple[str, ...], plugin: Path, tmp_path: Path
) -> None:
    with vllm(NEWEST, tmp_path, plugin, *flags) as address:
        compare(address, tmp_path)
    page = (tmp_path / "1_after_1795950060.prom").read_text()
    ranks = {
        sample.labels["engine"]
        for family in text_string_to_metric_families(page)
        for sample in family.samples
        if sample.name == "kvcache_requests_total" and sample.value
    }
    assert ranks == ({"0", "1"} if "--data-parallel-size" in flags else {"0"})


def test_a_setting_that_is_wrong_leaves_the_engine_serving(plugin: Path, tmp_path: Path) -> None:
    wrong: dict[str, Any] = {"KVCACHE_EXPORTER_FULL_HIT_FRACTION": "5%"}
    with vllm(NEWEST, tmp_path, plugin, **wrong) as address:
        assert ask(address, words(random.Random(1), 100)).output_tokens == 8
        page = requests.get(f"http://{address}/metrics", timeout=10).text
    assert "vllm:prompt_tokens_total" in page
    assert 'outcome="miss"' not in page
    (line,) = log_lines(tmp_path, "switched off")
    assert "KVCACHE_EXPORTER_FULL_HIT_FRACTION='5%' is not a number from 0 to 1; correct or unset it" in line
