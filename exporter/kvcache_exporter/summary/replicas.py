"""One target for the summary: figures by model, read once from its collector's latest samples."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from kvcache_exporter import catalogue as c
from kvcache_exporter.hit_rates import RequestIncreases
from kvcache_exporter.model import Distribution, Sample
from kvcache_exporter.scrape.collector import TargetCollector
from kvcache_exporter.scrape.derive import Increases

_MODEL = c.ENG.index("model_name")
_REQUEST_MODEL = c.REQ.index("model_name")


@dataclass(slots=True)
class ModelPart:
    """One model of one target, over all ranks."""

    usage: float | None = None
    """Usage of the fullest rank's device tier, from 0 to 1."""
    threshold: float | None = None
    """Maximum of computed tokens for a request to count as a hit."""
    running: float | None = None
    waiting: float | None = None
    increases: dict[str, list[Increases]] = field(default_factory=dict)
    """By window, one element per rank."""
    ttft: dict[tuple[str, str], Distribution] = field(default_factory=dict)
    """By rank and phase."""
    requests: dict[str, RequestIncreases] = field(default_factory=dict)
    """By window; only if the plugin runs in the engine, like the next two."""
    outcomes: dict[str, float] = field(default_factory=dict)
    request_ttft: dict[str, Distribution] = field(default_factory=dict)
    """By outcome."""


@dataclass(frozen=True, slots=True)
class View:
    """One target."""

    collector: TargetCollector
    samples: list[Sample]
    """The samples that this view was read from."""
    up: bool
    models: Mapping[str, ModelPart]
    """By model_name; while the target is down, its last models without figures."""

    @property
    def name(self) -> str:
        return self.collector.who.target

    @property
    def engine(self) -> str:
        return self.collector.engine.name if self.collector.engine else ""

    @property
    def serves(self) -> bool:
        """Whether it is a replica, not a router or a separate cache."""
        return self.collector.engine is None or self.collector.engine.serves

    @property
    def phase(self) -> str:
        return self.collector.cold.lifecycle.phase

    @property
    def basis(self) -> str:
        return self.collector.plan.basis if self.collector.plan else ""

    def increases(self, window: str) -> list[Increases]:
        return [found for part in self.models.values() for found in part.increases.get(window, ())]


def view(collector: TargetCollector) -> View:
    plan, up, samples = collector.plan, collector.up, collector.samples
    parts: dict[str, ModelPart] = defaultdict(ModelPart)
    for key in plan.keys if plan else ():
        parts[key.model_name]
    for window, by_key in collector.recent.items():
        for key, found in by_key.items():
            parts[key.model_name].increases.setdefault(window, []).append(found)
    for window, by_model in collector.recent_requests.items():
        for model, gained in by_model.items():
            parts[model].requests[window] = gained
    for sample in samples:
        _read(sample, parts)
    return View(collector, samples, up, dict(parts))


def _read(sample: Sample, parts: Mapping[str, ModelPart]) -> None:
    metric, labels, value = sample
    if isinstance(value, Distribution):
        if metric is c.ENGINE_TTFT:
            *_, rank, phase = labels
            parts[labels[_MODEL]].ttft[rank, phase] = value
        elif metric is c.REQUEST_TTFT:
            parts[labels[_REQUEST_MODEL]].request_ttft[labels[-1]] = value
    elif metric is c.REQUESTS:
        parts[labels[_REQUEST_MODEL]].outcomes[labels[-1]] = value
    elif metric is c.USAGE_RATIO and labels[-1] == "device":
        part = parts[labels[_MODEL]]
        part.usage = largest((part.usage, value))
    elif metric is c.REQUEST_HIT_THRESHOLD:
        part = parts[labels[_MODEL]]
        part.threshold = largest((part.threshold, value))
    elif metric is c.RUNNING_REQUESTS:
        part = parts[labels[_MODEL]]
        part.running = total((part.running, value))
    elif metric is c.WAITING_REQUESTS:
        part = parts[labels[_MODEL]]
        part.waiting = total((part.waiting, value))


def largest(values: Iterable[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)


def total(values: Iterable[float | None]) -> float | None:
    """None if no value is known."""
    known = [value for value in values if value is not None]
    return sum(known) if known else None
