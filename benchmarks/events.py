"""Decoding and indexing of KV events, with batches like those of vLLM and SGLang under eviction."""

import random
from collections.abc import Iterator
from functools import partial
from typing import Any

import msgspec

from benchmarks.timing import Row, cpu_seconds
from kvcache_exporter.events.ledger import RankLedger

BLOCKS = 500_000
CACHE = 20_000
BLOCK_TOKENS = 16


def events() -> Iterator[Row]:
    for what, per_batch, per_removal, as_maps in (
        ("KV events, vLLM arrays, 64 blocks a batch", 64, 1, False),
        ("KV events, vLLM maps, 64 blocks a batch", 64, 1, True),
        ("KV events, SGLang maps, 256 blocks a batch", 256, 64, True),
    ):
        batches = make_batches(per_batch, per_removal, as_maps=as_maps)
        blocks = sum(count(batches).values())
        size = sum(map(len, batches)) // blocks
        speed = blocks / cpu_seconds(partial(count, batches))
        yield Row(f"{what}, {size} B a block", f"{speed:,.0f} blocks/s", "", 0.0, ">= 1,000,000 blocks/s")


def count(batches: list[bytes]) -> dict[str, int]:
    ledger = RankLedger(1_000_000)
    for batch in batches:
        ledger.add(batch)
    return {"stored": ledger.stored.total(), "removed": ledger.removed.total()}


def make_batches(per_batch: int, per_removal: int, *, as_maps: bool) -> list[bytes]:
    """Batches of a full cache that evicts as many blocks as it stores; one block in five is stored again."""
    chance = random.Random(1)
    live: list[int] = []
    gone: list[int] = []
    batches = []
    for step in range(BLOCKS // per_batch // 2):
        stored = [_hash(chance, gone) for _ in range(per_batch)]
        removed, live = live[: max(0, len(live) - CACHE)], live[max(0, len(live) - CACHE) :] + stored
        gone = (gone + removed)[-CACHE:]
        parts = [removed[at : at + per_removal] for at in range(0, len(removed), per_removal)]
        events = [_stored(chance, stored, as_maps=as_maps), *(_removed(p, as_maps=as_maps) for p in parts)]
        batches.append(msgspec.msgpack.encode([1.8e9 + step / 20, events, 0]))
    return batches


def _hash(chance: random.Random, gone: list[int]) -> int:
    again = gone and chance.random() < 0.2
    return gone.pop(chance.randrange(len(gone))) if again else chance.getrandbits(64)


def _stored(chance: random.Random, hashes: list[int], *, as_maps: bool) -> Any:
    fields = {
        "type": "BlockStored",
        "block_hashes": hashes,
        "parent_block_hash": chance.getrandbits(64),
        "token_ids": [chance.randrange(128_000) for _ in range(len(hashes) * BLOCK_TOKENS)],
        "block_size": BLOCK_TOKENS,
        "lora_id": None,
        "medium": "GPU",
    }
    return fields if as_maps else list(fields.values())


def _removed(hashes: list[int], *, as_maps: bool) -> Any:
    fields = {"type": "BlockRemoved", "block_hashes": hashes, "medium": "GPU"}
    return fields if as_maps else list(fields.values())
