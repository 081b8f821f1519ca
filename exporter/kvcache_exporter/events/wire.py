"""Decodes batches of KV events in every form that vLLM and SGLang have published; skips prompt tokens.

A batch is an array `[time, [event, ...], rank?]`. Its events are arrays with the tag first (vLLM up to 0.23,
SGLang up to 0.5.18) or maps with a `type` (later); hashes are integers or bytes.
"""

import math
from collections.abc import Sequence
from typing import ClassVar, Literal, NamedTuple, TypeAlias

from msgspec import DecodeError, Raw, Struct
from msgspec.msgpack import Decoder

Hash: TypeAlias = int | bytes
Kind = Literal["stored", "removed", "cleared"]

_UNREADABLE = (DecodeError, RecursionError, UnicodeDecodeError, MemoryError)


class StoredMap(Struct, tag="BlockStored", gc=False):
    kind: ClassVar[Kind] = "stored"
    block_hashes: list[Hash]
    medium: str | None = None
    group_idx: int | None = None


class RemovedMap(Struct, tag="BlockRemoved", gc=False):
    kind: ClassVar[Kind] = "removed"
    block_hashes: list[Hash]
    medium: str | None = None
    group_idx: int | None = None


class ClearedMap(Struct, tag="AllBlocksCleared", gc=False):
    kind: ClassVar[Kind] = "cleared"
    block_hashes: ClassVar[tuple[Hash, ...]] = ()
    medium: ClassVar[None] = None
    group_idx: ClassVar[None] = None


class StoredArray(Struct, tag="BlockStored", array_like=True, gc=False):
    """Fields before the last one needed must be listed; as Raw they are skipped, not decoded."""

    kind: ClassVar[Kind] = "stored"
    block_hashes: list[Hash]
    parent_block_hash: Raw = Raw()
    token_ids: Raw = Raw()
    block_size: Raw = Raw()
    lora_id: Raw = Raw()
    medium: str | None = None
    lora_name: Raw = Raw()
    extra_keys: Raw = Raw()
    group_idx: int | None = None


class RemovedArray(Struct, tag="BlockRemoved", array_like=True, gc=False):
    kind: ClassVar[Kind] = "removed"
    block_hashes: list[Hash]
    medium: str | None = None
    group_idx: int | None = None


class ClearedArray(Struct, tag="AllBlocksCleared", array_like=True, gc=False):
    kind: ClassVar[Kind] = "cleared"
    block_hashes: ClassVar[tuple[Hash, ...]] = ()
    medium: ClassVar[None] = None
    group_idx: ClassVar[None] = None


MapEvent: TypeAlias = StoredMap | RemovedMap | ClearedMap
ArrayEvent: TypeAlias = StoredArray | RemovedArray | ClearedArray
Event: TypeAlias = MapEvent | ArrayEvent


class MapBatch(Struct, array_like=True, gc=False):
    time: float
    events: list[MapEvent]


class ArrayBatch(Struct, array_like=True, gc=False):
    time: float
    events: list[ArrayEvent]


class LooseBatch(Struct, array_like=True, gc=False):
    time: float
    events: list[Raw]


class Batch(NamedTuple):
    time: float
    """Unix seconds by the engine's clock."""
    events: Sequence[Event]
    unreadable: int = 0
    """Events of the batch that are damaged or of an unknown kind."""


class BatchDecoder:
    """Decodes one publisher's batches; tries the encoding of the last one first, as it rarely changes."""

    def __init__(self) -> None:
        self._batches: list[Decoder[MapBatch] | Decoder[ArrayBatch]] = [
            Decoder(MapBatch),
            Decoder(ArrayBatch),
        ]
        self._events: list[Decoder[MapEvent] | Decoder[ArrayEvent]] = [
            Decoder(MapEvent),
            Decoder(ArrayEvent),
        ]
        self._loose = Decoder(LooseBatch)

    def decode(self, payload: bytes) -> Batch | None:
        """None if the bytes are not a batch."""
        for decoder in self._batches:
            try:
                found = decoder.decode(payload)
            except _UNREADABLE:
                continue
            if decoder is not self._batches[0]:
                self._batches.reverse()
            return Batch(found.time, found.events) if math.isfinite(found.time) else None
        return self._event_by_event(payload)

    def _event_by_event(self, payload: bytes) -> Batch | None:
        try:
            loose = self._loose.decode(payload)
        except _UNREADABLE:
            return None
        if not math.isfinite(loose.time):
            return None
        events = [event for raw in loose.events if (event := self._event(raw)) is not None]
        return Batch(loose.time, events, len(loose.events) - len(events))

    def _event(self, raw: Raw) -> Event | None:
        for decoder in self._events:
            try:
                return decoder.decode(raw)
            except _UNREADABLE:
                continue
        return None
