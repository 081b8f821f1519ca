"""Parses Prometheus text pages fast: only wanted families are decoded, and a page's layout is remembered.

Pages of one target keep their layout from scrape to scrape. The first page is parsed line by line; for later
ones it is enough to check that every comment line and every wanted line is still in its place, and to convert
the values. Since a family's lines follow its own comments, no wanted line can be missed.
"""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from operator import itemgetter
from threading import Lock
from types import MappingProxyType
from typing import NamedTuple
from weakref import WeakSet

from kvcache_exporter.errors import ScrapeError
from kvcache_exporter.model import RawSeries
from kvcache_exporter.scrape.lines import parse_known, parse_line, sample_name

MAX_SERIES = 50_000
_MOST_TRIED = 8
_MOST_REMEMBERED = 1000


class Page(NamedTuple):
    """One page's wanted values: `values[i]` belongs to `layout.series[i]`; NaN and infinities are kept."""

    layout: "Layout"
    values: list[float]
    malformed: int
    """Wanted lines that could not be read; they are left out."""
    duplicates: int
    """Wanted lines that repeat a series; the first one counts."""


class Layout:
    """Positions of the wanted lines; the same object for as long as a target's pages keep their layout."""

    def __init__(
        self,
        lines: list[bytes],
        wanted: AbstractSet[bytes],
        known: Mapping[bytes, RawSeries] = MappingProxyType({}),
    ) -> None:
        self.line_count = len(lines)
        self.series: tuple[RawSeries, ...] = ()
        self.malformed = 0
        self.duplicates = 0
        self._reusable = True
        self._positions: list[int] = []
        self._prefixes: list[bytes] = []
        self.first_values = self._learn(lines, wanted, known)
        self._lengths = [len(prefix) for prefix in self._prefixes]
        self._comment_positions = [i for i, line in enumerate(lines) if not line or line[0] == 0x23]
        self._comments = [lines[i] for i in self._comment_positions]

    @property
    def known(self) -> dict[bytes, RawSeries]:
        """Series by the bytes before their value, to learn the target's next layout faster."""
        return dict(zip(self._prefixes, self.series, strict=True))

    def _learn(
        self, lines: list[bytes], wanted: AbstractSet[bytes], known: Mapping[bytes, RawSeries]
    ) -> list[float]:
        seen: dict[RawSeries, None] = {}
        values: list[float] = []
        for position, line in enumerate(lines):
            if not line or line[0] == 0x23 or sample_name(line) not in wanted:
                continue
            parsed = parse_known(line, known) or parse_line(line)
            if parsed is None:
                self.malformed += 1
            elif parsed.series in seen:
                self.duplicates += 1
            else:
                seen[parsed.series] = None
                values.append(parsed.value)
                self._positions.append(position)
                self._prefixes.append(parsed.prefix)
                self._reusable &= parsed.bare
            if len(seen) > MAX_SERIES:
                raise ScrapeError("too_large", f"page has more than {MAX_SERIES} series of known families")
        # A malformed line may become readable in place, so only clean pages are remembered.
        self._reusable &= not (self.malformed or self.duplicates)
        self.series = tuple(seen)
        return values

    def read(self, lines: list[bytes]) -> list[float] | None:
        """The values of a later page, or None if it does not have this layout."""
        if not self._reusable or len(lines) != self.line_count or not self._positions:
            return None
        if _pick(lines, self._comment_positions) != self._comments:
            return None
        picked = _pick(lines, self._positions)
        if not all(map(bytes.startswith, picked, self._prefixes)):
            return None
        texts = [line[length:] for line, length in zip(picked, self._lengths, strict=True)]
        # Python reads 1_000 as a number, the exposition format does not.
        if b"_" in b"".join(texts):
            return None
        try:
            return list(map(float, texts))
        except ValueError:
            return None


def _pick(lines: list[bytes], positions: list[int]) -> list[bytes]:
    if len(positions) == 1:
        return [lines[positions[0]]]
    return list(itemgetter(*positions)(lines)) if positions else []


class Layouts:
    """The layouts in use, shared by replicas of one engine and model. Thread-safe."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._in_use: dict[tuple[AbstractSet[bytes], int], WeakSet[Layout]] = {}

    def read(self, wanted: AbstractSet[bytes], lines: list[bytes]) -> tuple[Layout, list[float]] | None:
        """The layout of the page and its values; None if no known layout fits."""
        with self._lock:
            known = list(self._in_use.get((wanted, len(lines)), ()))
        found = ((layout, layout.read(lines)) for layout in known[:_MOST_TRIED])
        return next(((layout, values) for layout, values in found if values is not None), None)

    def add(self, wanted: AbstractSet[bytes], layout: Layout) -> None:
        with self._lock:
            self._in_use.setdefault((wanted, layout.line_count), WeakSet()).add(layout)
            if len(self._in_use) > _MOST_REMEMBERED:
                self._in_use = {key: layouts for key, layouts in self._in_use.items() if layouts}


_LAYOUTS = Layouts()


class PageParser:
    """Parses the pages of one target; `wanted` holds the sample names worth decoding."""

    def __init__(self, wanted: AbstractSet[bytes], layouts: Layouts = _LAYOUTS) -> None:
        self._wanted = wanted
        self._layouts = layouts
        self._layout: Layout | None = None

    def parse(self, data: bytes) -> Page:
        """Raises ScrapeError(not_metrics) for a body that is not an exposition; an empty body is valid."""
        if b"\r" in data:
            data = data.replace(b"\r\n", b"\n")
        lines = data.split(b"\n")
        layout = self._layout
        if layout is not None:
            values = layout.read(lines)
            if values is not None:
                return Page(layout, values, 0, 0)
        shared = self._layouts.read(self._wanted, lines)
        if shared is not None:
            self._layout, values = shared
            return Page(self._layout, values, 0, 0)
        _check_is_exposition(data, lines)
        layout = self._layout = Layout(lines, self._wanted, layout.known if layout else {})
        self._layouts.add(self._wanted, layout)
        return Page(layout, layout.first_values, layout.malformed, layout.duplicates)


def _check_is_exposition(data: bytes, lines: list[bytes]) -> None:
    head = data[:256].lstrip().lower()
    if head.startswith((b"<", b"{\n", b'{"status')):
        raise ScrapeError("not_metrics", f"the body is not a metrics page, it begins with {head[:16]!r}")
    content = [line for line in lines[:200] if line.strip()]
    if content and not any(line[:1] == b"#" or parse_line(line) for line in content):
        raise ScrapeError(
            "not_metrics", "the body is not a metrics page: no line of it is a sample or a comment"
        )
