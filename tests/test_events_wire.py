"""Recorded frames of every wire shape give exactly their counts; nothing else is kept or raised."""

import base64
import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvcache_exporter.events.ledger import RankLedger, tier_of
from kvcache_exporter.events.replay import Replay
from kvcache_exporter.events.sockets import shared_context
from kvcache_exporter.events.subscribe import Stream
from kvcache_exporter.events.wire import BatchDecoder

FIXTURES = Path(__file__).parent / "fixtures" / "events"
EXPECTED: dict[str, dict[str, int]] = json.loads((FIXTURES / "expected.json").read_text())
encode = msgspec.msgpack.encode


def frames(name: str) -> Iterator[list[bytes]]:
    with gzip.open(FIXTURES / f"{name}.jsonl.gz") as lines:
        for line in lines:
            row = json.loads(line)
            yield [b"kv", row["seq"].to_bytes(8, "big"), base64.b64decode(row["payload"])]


def counted(messages: Iterator[list[bytes]] | list[list[bytes]]) -> RankLedger:
    ledger = RankLedger(1_000_000)
    stream = Stream(Replay(shared_context(), None), ledger)
    for message in messages:
        stream.accept(message)
    return ledger


def counts(ledger: RankLedger) -> dict[str, int]:
    found = {f"stored_{tier}": n for tier, n in ledger.stored.items()}
    found |= {f"removed_{tier}": n for tier, n in ledger.removed.items()}
    found |= {f"resident_{tier}": n for tier, n in ledger.index.resident().items()}
    found |= {"rewarmed": ledger.index.rewarmed, "cleared": ledger.events["cleared"]}
    return {name: n for name, n in found.items() if n}


@pytest.mark.parametrize("name", EXPECTED)
def test_a_recording_gives_exactly_its_counts(name: str) -> None:
    expected = {key: n for key, n in EXPECTED[name].items() if key not in ("batches", "whole", "restarts")}
    ledger = counted(frames(name))
    assert counts(ledger) == expected
    assert ledger.events["unreadable"] == 0


@pytest.mark.parametrize("name", ["vllm-0.16.0", "vllm-0.29.0", "sglang-0.5.23-hicache"])
def test_hashes_as_bytes_give_the_same_counts_as_integers(name: str) -> None:
    def in_bytes(event: Any) -> Any:
        place = "block_hashes" if isinstance(event, dict) else 1
        if event not in (["AllBlocksCleared"], {"type": "AllBlocksCleared"}):
            event[place] = [b"hash%d" % key for key in event[place]]
        return event

    messages = list(frames(name))
    for message in messages:
        moment, events, rank = msgspec.msgpack.decode(message[2])
        message[2] = encode([moment, [in_bytes(event) for event in events], rank])
    assert counts(counted(messages)) == counts(counted(frames(name)))


def test_an_upgrade_from_arrays_to_maps_is_followed() -> None:
    ledger = RankLedger(1_000)
    ledger.add(encode([1.0, [["BlockStored", [1, 2], None, [5], 16, None]]]))
    ledger.add(encode([2.0, [{"type": "BlockRemoved", "block_hashes": [1], "medium": "GPU"}], 0]))
    ledger.add(encode([3.0, [["BlockStored", [1], 2, [5], 16, None, "GPU"]], 0]))
    expected = {"stored_device": 3, "removed_device": 1, "resident_device": 2, "rewarmed": 1}
    assert counts(ledger) == expected


def test_an_event_of_an_unknown_kind_is_counted_and_costs_no_other() -> None:
    stored = {"type": "BlockStored", "block_hashes": [1, 2]}
    batch = [1.0, [stored, {"type": "BlockMoved", "block_hashes": [1]}, 7, stored | {"medium": 4}], 0]
    ledger = RankLedger(1_000)
    assert ledger.add(encode(batch))
    assert (ledger.events["stored"], ledger.events["unreadable"]) == (1, 3)
    assert ledger.index.resident() == {"device": 2}


def test_blocks_of_two_cache_groups_with_one_hash_are_two_blocks() -> None:
    stored = [{"type": "BlockStored", "block_hashes": [1], "group_idx": group} for group in (0, 1)]
    ledger = RankLedger(1_000)
    ledger.add(encode([1.0, stored]))
    ledger.add(encode([2.0, [{"type": "BlockRemoved", "block_hashes": [1], "group_idx": 1}]]))
    assert ledger.index.resident() == {"device": 1}


@pytest.mark.parametrize(
    ("medium", "tier"),
    [
        (None, "device"), ("GPU", "device"), ("CPU_PINNED", "host"), ("CPU", "host"), ("DISK", "disk"),
        ("disk", "disk"), ("EXTERNAL", "remote"),
    ],
)  # fmt: skip
def test_every_medium_is_one_of_the_tiers(medium: str | None, tier: str) -> None:
    assert tier_of(medium) == tier


def test_token_ids_are_not_in_what_is_decoded() -> None:
    token = 987_654_321
    for event in (
        {"type": "BlockStored", "block_hashes": [1], "token_ids": [token], "block_size": 1},
        ["BlockStored", [1], None, [token], 1, None],
    ):
        batch = BatchDecoder().decode(encode([1.0, [event]]))
        assert batch is not None
        assert batch.events[0].block_hashes == [1]
        assert str(token) not in repr(batch)
        assert not hasattr(batch.events[0], "token_ids") or isinstance(event, list)


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text(max_size=8)
    | st.binary(max_size=8) | st.sampled_from(["BlockStored", "BlockRemoved", "AllBlocksCleared", "GPU"]),
    lambda inner: st.lists(inner, max_size=9)
    | st.dictionaries(st.sampled_from(["type", "block_hashes", "medium", "group_idx"]), inner, max_size=4),
    max_leaves=30,
)  # fmt: skip


@settings(max_examples=120, deadline=None)
@given(messages=st.lists(st.lists(st.binary(max_size=40) | ANYTHING.map(encode), max_size=5), max_size=5))
def test_whatever_arrives_is_counted_and_never_raised(messages: list[list[bytes]]) -> None:
    ledger = counted(messages)
    unread = ledger.events["unreadable"]
    assert unread or ledger.started or not messages


@settings(max_examples=120, deadline=None)
@given(batches=st.lists(st.tuples(st.floats(), st.lists(ANYTHING, max_size=4), ANYTHING), max_size=6))
def test_batches_with_anything_in_them_are_read_as_far_as_they_make_sense(batches: list[Any]) -> None:
    ledger = counted([[b"", n.to_bytes(8, "big"), encode(batch)] for n, batch in enumerate(batches)])
    assert ledger.events.total() >= ledger.lost


@pytest.mark.parametrize(
    "payload",
    [
        b"\x93\xcb" + bytes(8) + b"\xdd\xff\xff\xff\xff",
        b"\x92\xcb" + bytes(8) + b"\x91\x91\xdd\xff\xff\xff\xff",
        b"\x91" * 200_000,
        encode([float("nan"), []]),
        encode([float("inf"), [["BlockStored", [1]]]]),
        encode({"ts": 1.0}),
        b"",
    ],
    ids=["claims 4 Gi events", "claims 4 Gi hashes", "nested", "no time", "no time either", "map", "empty"],
)
def test_a_batch_that_cannot_be_read_counts_as_unreadable_and_lost(payload: bytes) -> None:
    ledger = counted([[b"", bytes(8), payload]])
    assert (ledger.events["unreadable"], ledger.lost, ledger.index.entries) == (1, 1, 0)


@pytest.mark.parametrize(
    "message",
    [[], [b""], [b"", bytes(8)], [b"", bytes(7), b""], [b"", b"\xff" * 8, b""], [b"", bytes(8), b"", b""]],
)
def test_a_message_of_another_form_is_unreadable_and_leaves_the_sequence_alone(message: list[bytes]) -> None:
    good = [b"", bytes(8), encode([1.0, [["BlockStored", [1]]]])]
    after = [b"", (1).to_bytes(8, "big"), encode([2.0, [["BlockStored", [2]]]])]
    ledger = counted([good, message, after])
    assert (ledger.events["unreadable"], ledger.lost, ledger.index.resident()) == (1, 0, {"device": 2})
