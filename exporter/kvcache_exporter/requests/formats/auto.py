"""`format: auto`: recognises a file's format by its first entries.

A gateway may write the replies of many providers into one file: an entry of a provider with another format,
or in which the chosen format finds no cached tokens, is decoded by the format that recognises it.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from kvcache_exporter.errors import START_OVER, RecordError, StateError
from kvcache_exporter.model import RequestColumns, RequestRecord
from kvcache_exporter.requests.formats.base import Decoder, DecoderOptions, Entry, Format
from kvcache_exporter.requests.formats.envelope import EnvelopeFormat
from kvcache_exporter.requests.formats.lines import (
    FAILURES,
    LineDecoder,
    bare_json,
    decode_snapshot,
    unwrapped,
)

_MAX_WRAPPERS = 4
_REMEMBERED = 1000
_NOTHING, _UNKNOWN, _CERTAIN = range(3)


class _Saved(msgspec.Struct):
    chosen: str
    held_back: bytes


class _Nothing(msgspec.Struct):
    """An object that no format recognised."""


class _Unrecognised(LineDecoder):
    """Reports why a line has no record while no format is chosen."""

    def __init__(self) -> None:
        super().__init__(_Nothing)

    def _take(self, row: Any, line: bytes, entries: list[Entry]) -> None:  # noqa: ARG002
        raise RecordError("no_usage", "no format recognises this entry")


class AutoDecoder:
    """Chooses once; lines before that are counted as not recognised, not held back."""

    def __init__(self, formats: Sequence[Format], options: DecoderOptions) -> None:
        self._formats = formats
        self._options = options
        self._decoder: Decoder = _Unrecognised()
        self._format: Format | None = None
        self._foreign: dict[str, bool] = {}
        self.chosen = ""
        """Name of the chosen format; "" until a line is recognised."""
        self.also: dict[str, Decoder] = {}
        """Decoders of other formats that occurred in the file, by name."""

    def decode(self, lines: Sequence[bytes]) -> list[Entry]:
        """Entries that these lines finish."""
        if self.chosen:
            return self._decode(lines)
        for place, line in enumerate(lines):
            recognised = self._recognise(line)
            if recognised is not None:
                before = self._decoder.decode(lines[:place])
                self._choose(recognised)
                return [*before, *self._decode(lines[place:])]
        return self._decoder.decode(lines)

    def columns(self, lines: Sequence[bytes]) -> list[Entry | RequestColumns]:
        """The chosen format's columns, unless another format gets more out of a line."""
        if not self.chosen or not _holds_nothing(self._decoder):
            return [*self.decode(lines)]
        entries = self._decoder.columns(lines)
        return entries if self._settled(entries) else [*self.decode(lines)]

    def _decode(self, lines: Sequence[bytes]) -> list[Entry]:
        entries = self._decoder.decode(lines)
        if not _holds_nothing(self._decoder) or self._settled(entries):
            return entries
        return [entry for line in lines for entry in self._reconsidered(line)]

    def _reconsidered(self, line: bytes) -> list[Entry]:
        entries = self._decoder.decode([line])
        if self._settled(entries):
            return entries
        other = self._recognise(line)
        if other is None or other.name == self.chosen:
            return entries
        decoder = self.also.get(other.name) or other.decoder(self._options)
        better = decoder.decode([line]) if _holds_nothing(decoder) else entries
        if (_worth(better), self._has_foreign(entries)) <= (_worth(entries), False):
            return entries
        self.also[other.name] = decoder
        return better

    def _settled(self, entries: Sequence[Entry | RequestColumns]) -> bool:
        return _worth(entries) == _CERTAIN and not self._has_foreign(entries)

    def _has_foreign(self, entries: Sequence[Entry | RequestColumns]) -> bool:
        providers = {entry.provider for entry in entries if isinstance(entry, RequestRecord | RequestColumns)}
        return any(map(self._is_foreign, providers))

    def _is_foreign(self, provider: str) -> bool:
        """Whether the provider's format is another than the chosen one."""
        known = self._foreign.get(provider)
        if known is None:
            if len(self._foreign) >= _REMEMBERED:
                self._foreign.clear()
            known = self._foreign[provider] = _claimed_by_another(provider, self._format, self._formats)
        return known

    def _recognise(self, line: bytes) -> Format | None:
        for sample in _samples(line):
            for candidate in self._formats:
                if candidate.recognises(sample):
                    return candidate
        return None

    def _choose(self, format_: Format) -> None:
        self.chosen, self._format = format_.name, format_
        self._decoder = format_.decoder(self._options)

    def flush(self) -> list[Entry]:
        """Entries that the chosen format held back."""
        return self._decoder.flush()

    def snapshot(self) -> bytes:
        """The choice, and the entries that the chosen format holds back."""
        if not self.chosen:
            return b""
        return msgspec.json.encode(_Saved(self.chosen, self._decoder.snapshot()))

    def restore(self, snapshot: bytes) -> None:
        """Raises StateError if the snapshot is not one of this format."""
        if not snapshot:
            return
        saved = decode_snapshot(snapshot, _Saved, "auto")
        chosen = next((form for form in self._formats if form.name == saved.chosen), None)
        if chosen is None:
            raise StateError(f"the saved state names an unknown log format {saved.chosen!r}; {START_OVER}")
        self._choose(chosen)
        self._decoder.restore(saved.held_back)


def _claimed_by_another(provider: str, chosen: Format | None, formats: Sequence[Format]) -> bool:
    if not isinstance(chosen, EnvelopeFormat) or provider == chosen.provider or chosen.claims(provider):
        return False
    return any(isinstance(other, EnvelopeFormat) and other.claims(provider) for other in formats)


def _holds_nothing(decoder: Decoder) -> bool:
    """Whether the decoder has no state, so that lines may be decoded again and out of order."""
    return type(decoder).snapshot is LineDecoder.snapshot


def _worth(entries: Sequence[Entry | RequestColumns]) -> int:
    """How much a format gets out of lines, by its least informative entry."""
    worth = _CERTAIN
    for entry in entries:
        if isinstance(entry, RequestRecord):
            if entry.cached_tokens is None and entry.prompt_tokens is not None:
                worth = min(worth, _UNKNOWN)
        elif isinstance(entry, RequestColumns):
            if None in entry.cached_tokens:
                worth = min(worth, _UNKNOWN)
        elif isinstance(entry, RecordError) and entry.reason == "no_usage":
            return _NOTHING
    return worth


def _samples(line: bytes) -> list[Mapping[str, object]]:
    """The entry itself, then those wrapped in it; of an array the first element."""
    samples: list[Mapping[str, object]] = []
    inner: bytes | None = bare_json(line)
    for _ in range(_MAX_WRAPPERS):
        try:
            sample = msgspec.json.decode(inner or b"")
        except FAILURES:
            sample = None if samples else _columns(line)
        if isinstance(sample, list):
            sample = sample[0] if sample else None
            inner = msgspec.json.encode(sample)
        if not isinstance(sample, dict):
            break
        samples.append(sample)
        inner = unwrapped(inner or b"")
    return samples


def _columns(line: bytes) -> dict[str, object]:
    """A text line as columns: CSV logs are recognised by their header."""
    text = line.decode(errors="replace").removeprefix("\ufeff")
    return dict.fromkeys(text.strip().split(","))


class Auto:
    """The format."""

    name = "auto"

    def __init__(self, formats: Sequence[Format]) -> None:
        self._formats = tuple(formats)

    def recognises(self, sample: Mapping[str, object]) -> bool:  # noqa: ARG002
        """False: `auto` is not one of the formats that it chooses from."""
        return False

    def decoder(self, options: DecoderOptions) -> AutoDecoder:
        """A decoder that has not chosen yet."""
        return AutoDecoder(self._formats, options)
