"""Fleets for tests of the summary: the demo's recording under a virtual clock, and many synthetic targets."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from kvcache_exporter.demo.playback import RecordedEngine, load_recording
from kvcache_exporter.engines import ENGINES
from kvcache_exporter.errors import ScrapeError
from kvcache_exporter.events.source import EventSource
from kvcache_exporter.requests.formats import AUTO
from kvcache_exporter.requests.formats.base import DecoderOptions
from kvcache_exporter.requests.ledger import Ledger
from kvcache_exporter.requests.outcome import FullHit
from kvcache_exporter.scrape.collector import TargetCollector
from kvcache_exporter.scrape.fleet import Fleet
from kvcache_exporter.summary.recorder import Recorder
from kvcache_exporter.summary.schema import Exporter, Summary

BEGAN = 1_795_950_000.0
ABOUT = Exporter(
    version="1.2.3",
    python_version="3.11.7",
    shard_index=0,
    shard_count=1,
    started_at=BEGAN,
    config_reload_ok=True,
    config_loaded_at=BEGAN,
)


@dataclass
class Log:
    """A followed log, without the file."""

    ledger: Ledger
    lag_bytes: int = 0
    lag_messages: int = 0
    problems: tuple[str, ...] = ()


@dataclass
class Watched:
    """Targets and logs with the recorder that watches them; time is what the test says."""

    recorder: Recorder = field(default_factory=lambda: Recorder(BEGAN))
    collectors: dict[str, TargetCollector] = field(default_factory=dict)
    logs: dict[str, Log] = field(default_factory=dict)
    fleet: Fleet = field(default_factory=Fleet)
    events: list[EventSource] = field(default_factory=list)
    """Fed by the test through their ledgers; their threads do not run."""
    now: float = BEGAN

    def collector(self, name: str) -> TargetCollector:
        found = self.collectors.get(name)
        if found is None:
            found = self.collectors[name] = TargetCollector(name, ENGINES, fleet=self.fleet)
        return found

    def ledger(self, name: str) -> Ledger:
        return self.logs.setdefault(name, Log(Ledger(name, FullHit()))).ledger

    def tick(self, now: float) -> None:
        self.now = now
        for log in self.logs.values():
            log.ledger.committed()
            log.ledger.tick(now)
            list(log.ledger.samples())
        for source in self.events:
            source.publish()
        ledgers = [log.ledger for log in self.logs.values()]
        self.recorder.tick(now, self.collectors.values(), ledgers, self.events)

    def summary(self, model: str | None = None, problems: Iterable[str] = ()) -> Summary:
        found = self.recorder.summary(
            self.now,
            self.collectors.values(),
            list(self.logs.values()),
            self.events,
            model=model,
            exporter=ABOUT,
            problems=problems,
        )
        assert found is not None
        return found


class Demo:
    """The demo's recording, as far as it was played."""

    def __init__(self) -> None:
        self.watched = Watched()
        self.engines = load_recording()
        self._logs = {engine.name: RecordedLines(engine) for engine in self.engines}

    def play(self, until: int, start: int = 0) -> Watched:
        """Second by second, up to the recording's second `until`."""
        for second in range(start, until + 1):
            for engine in self.engines:
                self._page(engine, second)
                log, ledger = self._logs[engine.name], self.watched.ledger(engine.name)
                lines = log.due(second)
                ledger.add(log.decoder.decode(lines))
                ledger.health.lines += len(lines)
            self.watched.tick(BEGAN + second)
        return self.watched

    def _page(self, engine: RecordedEngine, second: int) -> None:
        collector = self.watched.collector(engine.name)
        if (page := engine.page_at(second)) is None:
            collector.failed(ScrapeError("http_status", "HTTP status 503, expected 200"))
        else:
            collector.page(page, BEGAN + second)


class RecordedLines:
    """One engine's log lines in the order in which they are written."""

    def __init__(self, engine: RecordedEngine) -> None:
        self.decoder = AUTO.decoder(DecoderOptions(model_name="tiny-llama"))
        self._waiting = list(engine.lines)

    def due(self, second: float) -> list[bytes]:
        count = sum(at <= second for at, _ in self._waiting)
        lines = [line for _, line in self._waiting[:count]]
        del self._waiting[:count]
        return lines


VLLM_PAGE = """\
# TYPE vllm:prompt_tokens_total counter
vllm:prompt_tokens_total{{engine="0",model_name="{model}"}} {prompt}
# TYPE vllm:prompt_tokens_cached_total counter
vllm:prompt_tokens_cached_total{{engine="0",model_name="{model}"}} {cached}
# TYPE vllm:num_preemptions_total counter
vllm:num_preemptions_total{{engine="0",model_name="{model}"}} {preemptions}
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{{engine="0",model_name="{model}"}} {usage}
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{{engine="0",model_name="{model}"}} {waiting}
"""


def vllm_page(
    prompt: float,
    cached: float,
    *,
    model: str = "m",
    preemptions: float = 0,
    usage: float = 0.5,
    waiting: float = 0,
) -> bytes:
    """A page with the few families that tests of sums need; label values are escaped as the format asks."""
    escaped = model.replace("\\", "\\\\").replace('"', '\\"')
    return VLLM_PAGE.format(
        model=escaped, prompt=prompt, cached=cached, preemptions=preemptions, usage=usage, waiting=waiting
    ).encode()
