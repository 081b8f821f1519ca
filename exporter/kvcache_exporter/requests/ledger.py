"""All counters of one source of requests: tallies by group, bounded in number, and the health of its log."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import repeat

import msgspec

from kvcache_exporter import catalogue as c
from kvcache_exporter.errors import START_OVER, RecordError, StateError
from kvcache_exporter.hit_rates import RequestIncreases, hit_rates
from kvcache_exporter.model import Aggregate, RequestColumns, Sample, Skipped
from kvcache_exporter.requests.columns import in_columns
from kvcache_exporter.requests.formats.base import Entry
from kvcache_exporter.requests.outcome import FullHit
from kvcache_exporter.requests.prices import Prices
from kvcache_exporter.requests.tally import Gained, Histogram, Money, Tally, merge
from kvcache_exporter.windows import History, Terms

OVERFLOW = "other"
_HEALTH = "health"
_AHEAD_SECONDS = 3600.0
"""How far ahead the clock of a log's writer may be."""

Group = tuple[str, str, str]
"""provider, model_name, group."""


class Health(msgspec.Struct):
    """Counters of the log itself."""

    lines: int = 0
    failures: dict[str, int] = {}
    skipped: dict[str, int] = {}
    rotations: int = 0
    newest: float | None = None
    """Largest timestamp of a record, Unix seconds."""
    missed: dict[str, int] = {}
    """Offsets of a Kafka topic that gave no message, by the catalogue's MISSED_OFFSET_REASONS."""

    def miss(self, reason: str, count: int) -> None:
        if count:
            self.missed[reason] = self.missed.get(reason, 0) + count


class ModelTotals:
    """Requests of one model since the exporter started, for windows that /metrics leaves to Prometheus."""

    def __init__(self) -> None:
        self.outcomes: Counter[str] = Counter()
        self.ttft: dict[str, Histogram] = {}
        self.money = Money()

    def add(self, gained: Gained) -> None:
        self.outcomes.update(gained.outcomes)
        merge(self.ttft, gained.ttft)
        if gained.money:
            self.money.merge(gained.money)


class Ledger:
    """Counts the entries of one source; `changes` go into the state file."""

    def __init__(self, source: str, full_hit: FullHit, *, models: int = 200, groups: int = 200) -> None:
        self.source = source
        self.health = Health()
        self.tallies: dict[Group, Tally] = {}
        self.models: dict[str, ModelTotals] = {}
        """By model_name."""
        self.recent: Mapping[str, Mapping[Group, RequestIncreases]] = {}
        """What the windows hold as of the last `samples`, by window."""
        self._full_hit = full_hit
        self._most_models, self._most_groups = models, groups
        self._models: set[tuple[str, str]] = set()
        self._groups: set[str] = set()
        self._admitted: dict[Group, Group] = {}
        self._changed: set[Group] = set()
        self._pending: list[tuple[str, Gained]] = []
        """What is added to `models` once it is committed."""
        self.prices: Prices | None = None
        """Applied to new requests only."""
        self.now = float("inf")
        """Unix seconds; timestamps in the future do not count as the newest record."""
        self._history = History(max(c.WINDOWS.values()))
        self._begun = False

    def add(self, entries: Iterable[Entry | RequestColumns]) -> None:
        """Count decoded entries; each record in exactly one tally."""
        for entry in in_columns(entries):
            if isinstance(entry, RequestColumns):
                self._add_columns(entry)
            else:
                self._add_other(entry)

    def _add_columns(self, columns: RequestColumns) -> None:
        group = columns[:3]
        place = self._place(group)
        tally = self._tally(place)
        gained = tally.add(columns, self._full_hit)
        if self.prices:
            # By the requests' own model: a tally of `other` holds many.
            price = self.prices.of(*group[:2])
            bills = price.bills(columns) if price else repeat(None, len(columns.prompt_tokens))
            gained = gained._replace(money=tally.money.add(bills))
        self._pending.append((place[1], gained))
        self._note_newest(columns.times)

    def _add_other(self, entry: Aggregate | Skipped | RecordError) -> None:
        if isinstance(entry, RecordError):
            self.fail(entry.reason)
        elif isinstance(entry, Aggregate):
            place = self._place((entry.provider, entry.model_name, entry.group))
            self._tally(place).add_aggregate(entry)
            self._note_newest((entry.timestamp,))
        elif entry.reason in c.REQUEST_ERROR_REASONS:
            place = self._place((entry.provider, entry.model_name, entry.group))
            self._tally(place).add_error(entry.reason)
            self._note_newest((entry.timestamp,))
        else:
            self.health.skipped[entry.reason] = self.health.skipped.get(entry.reason, 0) + 1

    def fail(self, reason: str, count: int = 1) -> None:
        if count:
            self.health.failures[reason] = self.health.failures.get(reason, 0) + count

    def _note_newest(self, timestamps: Iterable[float | None]) -> None:
        # A timestamp in the future would hide, for good, that the log has stopped.
        latest = self.now + _AHEAD_SECONDS
        newest = max((at for at in timestamps if at is not None and at <= latest), default=None)
        if newest is not None:
            self.health.newest = max(newest, self.health.newest or newest)

    def _place(self, group: Group) -> Group:
        """Where a group's requests are counted."""
        return self._admitted.get(group) or self._admit(group)

    def _tally(self, admitted: Group) -> Tally:
        self._changed.add(admitted)
        return self.tallies.setdefault(admitted, Tally())

    def _admit(self, wanted: Group) -> Group:
        """The group itself while there is room for its names, else with `other` instead of them."""
        provider, model, group = wanted
        if (provider, model) not in self._models and len(self._models) >= self._most_models:
            provider, model = OVERFLOW, OVERFLOW
        if group not in self._groups and len(self._groups) >= self._most_groups:
            group = OVERFLOW
        admitted = (provider, model, group)
        self._keep(admitted)
        if admitted == wanted:
            self._admitted[wanted] = admitted
        return admitted

    def _keep(self, group: Group) -> None:
        """Admit names for good, also those that `restore` brings in beyond the limits."""
        if group[1] != OVERFLOW:
            self._models.add(group[:2])
        if group[2] != OVERFLOW:
            self._groups.add(group[2])

    def changes(self) -> dict[str, bytes]:
        """What changed since `committed`, as bytes by key, in the form that `restore` takes."""
        changed = {_key(group): msgspec.msgpack.encode(self.tallies[group]) for group in self._changed}
        return {**changed, _HEALTH: msgspec.msgpack.encode(self.health)}

    def committed(self) -> None:
        """Confirm that the state file holds what `changes` last returned."""
        self._changed.clear()
        for model, gained in self._pending:
            self.models.setdefault(model, ModelTotals()).add(gained)
        self._pending.clear()

    def rollback(self, saved: Mapping[str, bytes]) -> None:
        """Forget what was added since `committed`; `saved` is everything in the state file."""
        self._pending.clear()
        self._changed.clear()
        self._admitted.clear()
        self._models, self._groups = set(), set()
        self.health, self.tallies = Health(), {}
        self.restore(saved)

    def restore(self, saved: Mapping[str, bytes]) -> None:
        """Raises StateError if `changes` did not write this."""
        try:
            for key, data in saved.items():
                self._restore(key, data)
        except (msgspec.DecodeError, UnicodeError) as error:
            raise StateError(
                f"the saved counters of {self.source} cannot be read ({error}); {START_OVER}"
            ) from error

    def _restore(self, key: str, data: bytes) -> None:
        if key == _HEALTH:
            self.health = msgspec.msgpack.decode(data, type=Health)
            return
        group = msgspec.json.decode(key, type=Group)
        self._keep(group)
        self.tallies[group] = msgspec.msgpack.decode(data, type=Tally)

    def begin(self, now: float) -> None:
        """Count in the windows all that is added from now on; without it, from the first `tick` on."""
        if not self._begun:
            self.tick(now)

    def tick(self, now: float) -> None:
        """Add the present counts to the history that windows are made from."""
        self._begun = True
        pairs: list[tuple[int, float]] = []
        for group, tally in self.tallies.items():
            full, known = tally.hits
            values = (tally.cached_tokens, tally.prompt_tokens, full, known)
            columns = self._columns(group)
            pairs += [(terms.plus[0], float(v)) for terms, v in zip(columns, values, strict=True)]
        self._history.add(now, pairs)

    def _columns(self, group: Group) -> tuple[Terms, Terms, Terms, Terms]:
        def column(name: str) -> Terms:
            return Terms((self._history.column((group, name)),))

        return column("cached"), column("prompt"), column("full"), column("known")

    def samples(self) -> Iterator[Sample]:
        source = (self.source,)
        yield Sample(c.LOG_LINES, source, float(self.health.lines))
        yield Sample(c.LOG_ROTATIONS, source, float(self.health.rotations))
        for reason in c.PARSE_FAILURE_REASONS:
            yield Sample(
                c.LOG_PARSE_FAILURES, (self.source, reason), float(self.health.failures.get(reason, 0))
            )
        for reason in c.SKIP_REASONS:
            yield Sample(c.LOG_SKIPPED, (self.source, reason), float(self.health.skipped.get(reason, 0)))
        if self.health.newest is not None:
            yield Sample(c.LOG_LAST_RECORD, source, self.health.newest)
        for group, tally in sorted(self.tallies.items()):
            yield from tally.samples((self.source, *group))
        yield from self._windowed()

    def _increases(self) -> dict[str, dict[Group, RequestIncreases]]:
        spans = {window: self._history.span(seconds) for window, seconds in c.WINDOWS.items()}
        return {
            window: {
                group: RequestIncreases(*map(span.increase, self._columns(group)))
                for group in sorted(self.tallies)
            }
            for window, span in spans.items()
            if span is not None
        }

    def _windowed(self) -> Iterator[Sample]:
        self.recent = self._increases()
        for window, groups in self.recent.items():
            for group, found in groups.items():
                yield from hit_rates(found, (self.source, *group), window)


def _key(group: Group) -> str:
    return msgspec.json.encode(group).decode()
