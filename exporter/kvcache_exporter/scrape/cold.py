"""Tracks whether a target is cold or warm, page by page, and labels its samples with the phase."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet

import msgspec

from kvcache_exporter import catalogue as c
from kvcache_exporter.model import Distribution, Sample
from kvcache_exporter.scrape.derive import token_increases
from kvcache_exporter.scrape.fleet import Fleet
from kvcache_exporter.scrape.lifecycle import ColdRule, Life, Lifecycle, Phase, Signs, Traffic
from kvcache_exporter.scrape.phases import PhaseSplitter, Split
from kvcache_exporter.scrape.plan import Plan
from kvcache_exporter.scrape.watched import Watched
from kvcache_exporter.windows import History, Span

_COLD_WINDOW = c.WINDOWS["1m"]
_WARM_WINDOW = c.WINDOWS["5m"]
_KEEP_SECONDS = 86400.0
_SERVED = (c.PROMPT_TOKENS, c.ENGINE_REQUESTS)
_MOST_ABSENT = 100
FORGET_SECONDS = 7 * _KEEP_SECONDS
"""Seconds after which the state file drops a target that never came back."""


class Saved(msgspec.Struct):
    """What the state file keeps of one target."""

    at: float
    """Unix time at which it was written."""
    life: Life
    splits: dict[str, Split]


class ColdWatch:
    """The starts and cold phases of one target; `fleet` is shared by all targets."""

    def __init__(self, target: str, rule: ColdRule, fleet: Fleet) -> None:
        self.lifecycle = Lifecycle(rule)
        self._target = target
        self._fleet = fleet
        self._splitter = PhaseSplitter()
        self._shown: dict[str, Distribution] = {}
        self.life_base: float | None = None
        """Time of the last page before the latest start or cache reset."""
        self.beginnings = 0
        """How often the engine's counters restarted from zero since the exporter started."""
        self._kept, self._kept_at = b"", 0.0
        self._turned = False
        """Whether the target became warm with the last page."""

    def observe(self, signs: Signs, history: History, watched: Iterable[Watched], now: float) -> None:
        """Process the page that `history` has just added."""
        items = list(watched)
        before, restarts = self.lifecycle.phase, self.lifecycle.life.restarts
        anew = self.lifecycle.begins_at_zero(signs)
        if self.lifecycle.observe(signs, now):
            # Counters of a new process hold nothing older; after a cache reset they do.
            restarted = self.lifecycle.life.restarts > restarts
            self.life_base = history.time_before_last if restarted else history.time_of_last
            self._open(before, anew=anew)
        recent = _traffic(items, history.span_since(_COLD_WINDOW, self.life_base))
        longer = _traffic(items, history.span_since(_WARM_WINDOW, self.life_base))
        reference = self._fleet.hit_ratio(signs.models, self._target)
        self._turned = self.lifecycle.judge(recent, longer, reference, now)
        warm = self.lifecycle.phase == "warm"
        self._fleet.report(self._target, signs.models, *longer, warm=warm)

    @property
    def page_phase(self) -> Phase:
        """The phase of what the newest page added: the page that shows the recovery is still cold."""
        return "cold" if self._turned else self.lifecycle.phase

    def samples(self, now: float) -> Iterator[Sample]:
        name, life = (self._target,), self.lifecycle.life
        yield from self.counted()
        yield Sample(c.WARM, name, float(life.phase == "warm"))
        if (age := self.lifecycle.age(now)) is not None:
            yield Sample(c.AGE, name, age)
        if life.warmup is not None:
            yield Sample(c.WARMUP_DURATION, name, life.warmup)

    def counted(self) -> Iterator[Sample]:
        """Samples that stay true while the target is down."""
        life = self.lifecycle.life
        yield Sample(c.TARGET_RESTARTS, (self._target,), float(life.restarts))
        yield Sample(c.CACHE_RESETS, (self._target,), float(life.resets))

    def split(self, samples: Iterable[Sample]) -> Iterator[Sample]:
        """The same samples with the engine's TTFT split by phase; to be called once for each page."""
        phase = self.page_phase
        keys = set()
        for sample in samples:
            if sample.metric is not c.ENGINE_TTFT or not isinstance(sample.value, Distribution):
                yield sample
                continue
            key = msgspec.json.encode(sample.labels[1:-1]).decode()
            keys.add(key)
            if self._turned:
                self._splitter.turn(key, sample.value, "cold")
            self._shown[key] = sample.value
            for name, state in self._splitter.split(key, sample.value, phase):
                yield Sample(sample.metric, (*sample.labels[:-1], name), state)
        self._forget_absent(keys)

    def gone(self) -> None:
        """The target is down or removed: its hit rate is no longer a reference for others."""
        self._fleet.forget(self._target)

    def changes(self, now: float, *, again: bool = False) -> bytes | None:
        """Bytes for the state file if something worth keeping changed, once a day, and if `again`."""
        steady = msgspec.structs.replace(self.lifecycle.life, showing=None, served={})
        state = msgspec.json.encode(Saved(0.0, steady, self._splitter.splits))
        if not again and state == self._kept and now - self._kept_at < _KEEP_SECONDS:
            return None
        self._kept, self._kept_at = state, now
        return self.snapshot(now)

    def snapshot(self, now: float) -> bytes:
        """Everything, as `restore` takes it."""
        # Split at their current values, so that what they gain while nobody scrapes is kept apart.
        kept = PhaseSplitter(dict(self._splitter.splits))
        for key, shown in self._shown.items():
            kept.turn(key, shown, self.lifecycle.phase)
        return msgspec.json.encode(Saved(now, self.lifecycle.life, kept.splits))

    def restore(self, data: bytes) -> None:
        """Restore what `changes` returned; unreadable state counts as none."""
        try:
            saved = msgspec.json.decode(data, type=Saved)
        except msgspec.DecodeError:
            return
        self.lifecycle.life, self._splitter = saved.life, PhaseSplitter(saved.splits)
        self.lifecycle.resumed = True

    def _open(self, before: Phase, *, anew: bool) -> None:
        if anew:
            self.beginnings += 1
            self._splitter.restart()
        else:
            # Counters that did not restart: what they gain since the last page belongs to the cold phase.
            for key, shown in self._shown.items():
                self._splitter.turn(key, shown, before)
        self._shown.clear()

    def _forget_absent(self, keys: AbstractSet[str]) -> None:
        """Histograms missing from the page may come back, but only a bounded number of them is kept."""
        known = self._splitter.splits.keys() | self._shown.keys()
        if len(known) > _MOST_ABSENT + len(keys):
            for key in known - keys:
                self._splitter.splits.pop(key, None)
                self._shown.pop(key, None)


def signs(
    plan: Plan, values: list[float], *, went_back: bool = False, goes_on: bool = False, returned: bool = False
) -> Signs:
    """What a page shows of the process behind it; flags that need earlier pages are arguments."""
    served: defaultdict[str, float] = defaultdict(float)
    for scalar in plan.scalars:
        if scalar.metric in _SERVED:
            served[scalar.metric.name] += sum(max(values[i], 0.0) for i in scalar.terms.plus)
    models = frozenset(key.model_name for key in plan.keys if key.model_name)
    return Signs(
        started(plan, values), went_back, plan.pids, models, served, goes_on=goes_on, returned=returned
    )


def started(plan: Plan, values: list[float]) -> float | None:
    """Unix time at which the process behind the page started, if the page shows it."""
    return values[plan.start] if plan.start is not None and values[plan.start] > 0 else None


def _traffic(items: Iterable[Watched], span: Span | None) -> Traffic:
    return Traffic(*token_increases(items, span)) if span else Traffic(0.0, 0.0)


def forgotten(saved: Mapping[str, bytes], now: float) -> list[str]:
    """Targets in the state file that were not seen for a week."""
    return [name for name, data in saved.items() if now - _written_at(data) > FORGET_SECONDS]


def _written_at(data: bytes) -> float:
    try:
        return msgspec.json.decode(data, type=Saved).at
    except msgspec.DecodeError:
        return 0.0
