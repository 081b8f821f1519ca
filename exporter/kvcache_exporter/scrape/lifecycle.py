"""Starts of one engine: when it started, whether its cache is cold, and how long it took to warm up.

A restart is detected by the process's start time, by counters that decreased, by a new process id or by
another model; any one is enough, and several that belong to one restart count once. An engine that only
empties its cache is cold as well. A target is cold until its hit rate reaches a share of that of the model's
warm replicas, else of its own before the start, or until the maximum duration has passed.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import msgspec

Phase = Literal["cold", "warm"]
START_JITTER = 2.0
"""Seconds by which the start time of one process may appear to move."""
_RECENT = 20
MIN_PROMPT_TOKENS = 1000
"""Prompt tokens below which a hit rate is too noisy to show recovery."""


@dataclass(frozen=True, slots=True)
class ColdRule:
    """When a target counts as warm again."""

    recovered_ratio: float = 0.8
    """Share of the reference hit rate."""
    max_duration: float = 900.0
    """Seconds after which a target counts as warm, whatever its hit rate."""


class Traffic(NamedTuple):
    """Increases of cached and of prompt tokens over a window."""

    cached: float
    prompt: float

    @property
    def ratio(self) -> float | None:
        """The hit rate; None if there is too little traffic."""
        return min(1.0, self.cached / self.prompt) if self.prompt >= MIN_PROMPT_TOKENS else None


@dataclass(frozen=True, slots=True)
class Signs:
    """What one page shows of the process behind it."""

    start: float | None
    """Unix time at which the process started, if the page shows it."""
    went_back: bool
    """Whether counters decreased as they do at a restart."""
    pids: Mapping[str, frozenset[str]]
    """Process ids by rank; another id for the same rank is a new process."""
    models: frozenset[str]
    served: Mapping[str, float] = field(default_factory=dict)
    """Counters of requests and of their tokens, over all ranks."""
    goes_on: bool = False
    """Whether the counters of some ranks did not decrease with the others."""
    emptied: bool = False
    """Whether the engine emptied its prefix cache without a restart."""
    returned: bool = False
    """Whether the page is of another process than the last, one of several behind the same address."""

    @property
    def untouched(self) -> bool:
        """Whether the engine has served nothing yet."""
        return not any(value > 0 for value in self.served.values())


class ColdStart(msgspec.Struct):
    """One start of the engine, or of its cache alone; seconds since the epoch."""

    at: float
    reason: str
    warm_at: float | None = None


class Life(msgspec.Struct):
    """What must survive a restart of the exporter."""

    start: float | None = None
    """By the page, not by when we noticed."""
    began: float | None = None
    """When the process started, as far as known; None if that was before the first scrape."""
    cold_since: float | None = None
    """When the cache was last known to be empty: the start of the process, or a reset after it."""
    phase: Phase = "warm"
    restarts: int = 0
    resets: int = 0
    """Times the cache was emptied without a restart."""
    warmup: float | None = None
    """Seconds that the last cold start took."""
    showing: float | None = None
    """Token-weighted hit rate since the start, as of the last traffic."""
    last_ratio: float | None = None
    """Token-weighted hit rate of the previous process at its end."""
    pids: dict[str, list[str]] = {}
    models: list[str] = []
    served: dict[str, float] = {}
    """As of the last page; smaller values on the next one reveal a restart while the exporter was down."""
    seen: bool = False
    counters_due: bool = False
    """Counters of the previous process have yet to restart: the page that showed its end lacked them."""
    recent: list[ColdStart] = []


@dataclass(slots=True)
class Lifecycle:
    """Follows one target page by page."""

    rule: ColdRule = field(default_factory=ColdRule)
    life: Life = field(default_factory=Life)
    recovery: float | None = None
    """Hit rate of a cold target as a share of its goal; None without a reference or traffic."""
    resumed: bool = False
    """Whether `life` was restored from the state file and no page has been seen since."""

    @property
    def phase(self) -> Phase:
        return self.life.phase

    def observe(self, signs: Signs, now: float) -> bool:
        """Process a page; True if the cache is empty since this page."""
        life = self.life
        reason = self.restarted(signs)
        if reason:
            life.restarts += 1
            started = signs.start if reason == "start time" else None
            self._begin(signs, now if started is None else min(started, now), now, reason)
        elif not life.seen and self._is_young(signs, now):
            self._begin(signs, now if signs.start is None else min(signs.start, now), now, "first seen")
        emptied = signs.emptied and not (reason or signs.returned)
        if emptied:
            life.resets += 1
            self._turn_cold(now, "cache reset")
        self._remember(signs)
        return bool(reason) or emptied

    def judge(self, recent: Traffic, longer: Traffic, reference: float | None, now: float) -> bool:
        """Whether a cold target is warm from now on.

        `recent` decides on recovery, `longer` is kept as the hit rate since the start; both begin after it.
        """
        life = self.life
        life.showing = longer.ratio if longer.ratio is not None else life.showing
        if life.phase == "warm":
            self.recovery = None
            return False
        began = next((at for at in (life.cold_since, life.began) if at is not None), now)
        # After the clock was set back, a cold phase would last until the clock has caught up.
        began = life.cold_since = min(began, now)
        self.recovery = self._recovery(recent, reference)
        recovered = self.recovery is not None and self.recovery >= 1.0
        if not recovered and now - began < self.rule.max_duration:
            return False
        # Pages may be far apart, or the exporter was down: the cold phase ended at its maximum all the same.
        self._turn_warm(min(now, began + self.rule.max_duration))
        self.recovery = None
        return True

    def _recovery(self, recent: Traffic, reference: float | None) -> float | None:
        measure = reference if reference is not None else self.life.last_ratio
        if measure is None or recent.ratio is None:
            return None
        wanted = self.rule.recovered_ratio * measure
        return recent.ratio / wanted if wanted > 0 else 1.0

    def age(self, now: float) -> float | None:
        began = self.life.start if self.life.start is not None else self.life.began
        return None if began is None else max(0.0, now - began)

    def restarted(self, signs: Signs) -> str:
        """The reason to take the page's process for a new one; "" if it is not."""
        life = self.life
        if not life.seen or signs.returned:
            return ""
        if life.start is not None and signs.start is not None and signs.start - life.start > START_JITTER:
            return "start time"
        if (signs.went_back and not life.counters_due) or self._has_served_less(signs):
            return "counters went back"
        if any(life.pids.get(rank) and not ids <= set(life.pids[rank]) for rank, ids in signs.pids.items()):
            return "new process id"
        if life.models and signs.models and not signs.models & set(life.models):
            return "another model"
        return ""

    def begins_at_zero(self, signs: Signs) -> bool:
        """Whether every counter restarts at zero, so that values above the last ones are new, too."""
        reason = self.restarted(signs)
        if reason == "new process id":
            return signs.untouched or not self._keeps_process_ids(signs)
        if reason == "another model":
            same_start = signs.start is not None and signs.start == self.life.start
            return not (same_start or self._keeps_process_ids(signs))
        return bool(reason) and not (reason == "counters went back" and signs.goes_on)

    def _keeps_process_ids(self, signs: Signs) -> bool:
        """Whether a known process id is on the page; in a kept multiprocess folder, dead ones still are."""
        known = self.life.pids
        return any(ids & set(known.get(rank, ())) for rank, ids in signs.pids.items())

    def _has_served_less(self, signs: Signs) -> bool:
        """Whether counters are lower than in the state file, on the first page after the exporter's start.

        Counters that are not on the page count as lower if none of them is: SGLang has none after a restart.
        """
        before = {name: old for name, old in self.life.served.items() if old > 0}
        lower = all(signs.served[name] < old for name, old in before.items() if name in signs.served)
        return self.resumed and bool(before) and lower

    def _is_young(self, signs: Signs, now: float) -> bool:
        """A new target is cold if it has just started or has served nothing."""
        if signs.start is not None:
            return now - signs.start < self.rule.max_duration
        return signs.untouched

    def _begin(self, signs: Signs, at: float, now: float, reason: str) -> None:
        life = self.life
        life.began, life.start = at, signs.start
        life.counters_due = signs.untouched and not signs.went_back
        # Process ids that appear later belong to this start: SGLang shows them once they count something.
        life.pids = {}
        self._turn_cold(at, reason)
        if now - at >= self.rule.max_duration:
            # Nobody saw it cold.
            self._turn_warm(at + self.rule.max_duration)

    def _turn_cold(self, at: float, reason: str) -> None:
        life = self.life
        life.phase, life.cold_since = "cold", at
        life.last_ratio = life.showing if life.showing is not None else life.last_ratio
        life.showing = None
        life.recent = [*life.recent, ColdStart(at, reason)][-_RECENT:]

    def _turn_warm(self, at: float) -> None:
        life = self.life
        life.phase = "warm"
        if life.cold_since is not None:
            life.warmup = at - life.cold_since
        if life.recent:
            life.recent[-1].warm_at = at

    def _remember(self, signs: Signs) -> None:
        life = self.life
        life.seen, self.resumed = True, False
        life.served = dict(signs.served)
        life.counters_due = life.counters_due and signs.untouched
        life.start = signs.start if signs.start is not None else life.start
        for rank, ids in signs.pids.items():
            life.pids[rank] = sorted({*life.pids.get(rank, []), *ids})
        if signs.models:
            life.models = sorted(signs.models)
