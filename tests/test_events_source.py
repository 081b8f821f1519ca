"""Sources against real ZeroMQ publishers that behave like engines: order, gaps, restarts, ranks, reload."""

import base64
import gzip
import json
import logging
import random
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from event_publisher import END, TOPIC, Publisher
from kvcache_exporter import catalogue as c
from kvcache_exporter.app import App
from kvcache_exporter.events import replay as replay_module
from kvcache_exporter.events.source import EventOptions, EventSource, endpoint_of

FIXTURES = Path(__file__).parent / "fixtures" / "events"


def free_port() -> int:
    """The first of two neighbours that are free, for two ranks."""
    while True:
        with socket.socket() as one, socket.socket() as two:
            one.bind(("127.0.0.1", 0))
            port = int(one.getsockname()[1])
            try:
                two.bind(("127.0.0.1", port + 1))
            except OSError:
                continue
            return port


def options(port: int, **more: Any) -> EventOptions:
    return EventOptions("a", f"tcp://127.0.0.1:{port}", max_blocks=1_000, **more)


@contextmanager
def running(chosen: EventOptions) -> Iterator[EventSource]:
    source = EventSource(chosen)
    source.start()
    try:
        yield source
    finally:
        source.stop()
        source.join()


def eventually(holds: Callable[[], bool], seconds: float = 15.0) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "did not happen in time"
        time.sleep(0.02)


def resident(source: EventSource, rank: int = 0) -> int:
    return source.ledgers[rank].index.resident().get("device", 0)


@pytest.mark.parametrize("connect", [False, True], ids=["the engine listens", "the engine connects"])
def test_batches_are_counted_and_shown_with_their_labels(connect: bool) -> None:
    port = free_port()
    chosen = options(port, model_name="tiny", bind=connect)
    with Publisher(port, connect=connect) as engine, running(chosen) as source:
        engine.subscribed()
        engine.store(1, 2, 3)
        engine.remove(2)
        engine.store(2, 4)
        eventually(lambda: "kvcache_rewarmed_blocks_total" in page(source) and resident(source) == 4)
        eventually(
            lambda: 'kvcache_resident_blocks{target="a",model_name="tiny",tier="device"} 4.0' in page(source)
        )
        text = page(source)
    assert 'kvcache_events_total{target="a",event="stored"} 2.0\n' in text
    assert 'kvcache_events_lost_total{target="a"} 0.0\n' in text
    assert 'kvcache_stored_blocks_total{target="a",model_name="tiny",tier="device"} 5.0\n' in text
    assert 'kvcache_evicted_blocks_total{target="a",model_name="tiny",tier="device"} 1.0\n' in text
    assert 'kvcache_rewarmed_blocks_total{target="a",model_name="tiny"} 1.0\n' in text
    assert 'kvcache_rewarm_delay_seconds_sum{target="a",model_name="tiny"} 1.0\n' in text


def page(source: EventSource) -> str:
    return "".join(chunk.text for chunk in source.block.values())


def test_a_source_that_heard_nothing_shows_counters_but_claims_no_empty_cache() -> None:
    source = EventSource(options(1))
    assert source.block[c.EVENTS_LOST].text == 'kvcache_events_lost_total{target="a"} 0.0\n'
    assert c.STORED_BLOCKS in source.block
    assert c.RESIDENT_BLOCKS not in source.block


@pytest.mark.parametrize("frames", [3, 4], ids=["up to vLLM 0.25", "from vLLM 0.26"])
def test_missed_batches_are_replayed_and_counted_once_in_their_order(frames: int) -> None:
    port, replay = free_port(), free_port()
    chosen = options(port, replay=f"tcp://127.0.0.1:{replay}")
    with Publisher(port, replay, frames=frames) as engine, running(chosen) as source:
        engine.subscribed()
        engine.store(1, 2)
        engine.remove(1, sent=False)
        engine.store(1, sent=False)
        engine.store(3)
        engine.store(4)
        eventually(lambda: resident(source) == 4)
        ledger = source.ledgers[0]
        assert (ledger.lost, ledger.index.rewarmed) == (0, 1)
        assert (ledger.stored["device"], ledger.removed["device"]) == (5, 1)


@pytest.mark.parametrize("name", ["vllm-0.10.2", "vllm-0.29.0"])
def test_a_recording_of_which_a_third_is_dropped_on_the_way_gives_its_exact_counts(name: str) -> None:
    expected = json.loads((FIXTURES / "expected.json").read_text())[name]
    port, replay = free_port(), free_port()
    chosen = replace(options(port, replay=f"tcp://127.0.0.1:{replay}"), max_blocks=100_000)
    chance = random.Random(4)
    with Publisher(port, replay) as engine, running(chosen) as source:
        engine.subscribed()
        with gzip.open(FIXTURES / f"{name}.jsonl.gz") as lines:
            for line in lines:
                at_an_end = engine.next in (0, expected["batches"] - 1)
                payload = base64.b64decode(json.loads(line)["payload"])
                engine.pass_on(payload, sent=at_an_end or chance.random() > 1 / 3)
        ledger = source.ledgers[0]
        eventually(lambda: ledger.stored["device"] == expected["stored_device"])
        assert ledger.lost == 0
        assert ledger.removed["device"] == expected["removed_device"]
        assert ledger.index.rewarmed == expected["rewarmed"]
        assert resident(source) == expected["resident_device"]


def test_batches_the_engine_no_longer_keeps_are_lost_and_the_rest_is_replayed() -> None:
    port, replay = free_port(), free_port()
    chosen = options(port, replay=f"tcp://127.0.0.1:{replay}")
    with Publisher(port, replay) as engine, running(chosen) as source:
        engine.subscribed()
        engine.store(1)
        for number in (2, 3, 4):
            engine.store(number, sent=False, keep=number == 3)
        engine.store(5)
        eventually(lambda: resident(source) == 3)
        assert source.ledgers[0].lost == 2


def test_without_replay_a_gap_is_lost() -> None:
    port = free_port()
    with Publisher(port) as engine, running(options(port)) as source:
        engine.subscribed()
        engine.store(1)
        engine.store(2, sent=False)
        engine.store(3, sent=False)
        engine.store(4)
        eventually(lambda: resident(source) == 2)
        assert source.ledgers[0].lost == 2


def test_a_replay_port_where_nobody_answers_costs_one_wait_and_not_the_live_batches(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(replay_module, "_ANSWER_SECONDS", 1.0)
    port = free_port()
    chosen = options(port, replay=f"tcp://127.0.0.1:{free_port()}")
    with Publisher(port) as engine, running(chosen) as source:
        engine.subscribed()
        for number in range(40):
            engine.store(number, sent=number % 2 == 0)
        engine.store(99)
        started = time.monotonic()
        eventually(lambda: resident(source) == 21)
        assert time.monotonic() - started < 10.0
        assert source.ledgers[0].lost == 20


def test_what_was_sent_before_we_came_fills_the_index_but_no_counter() -> None:
    port, replay = free_port(), free_port()
    chosen = options(port, replay=f"tcp://127.0.0.1:{replay}")
    with Publisher(port, replay) as engine:
        engine.store(1, 2, 3, sent=False)
        engine.remove(1, 2, sent=False)
        engine.store(2, sent=False)
        with running(chosen) as source:
            engine.subscribed()
            engine.store(1)
            eventually(lambda: resident(source) == 3)
            ledger = source.ledgers[0]
            assert (ledger.stored["device"], ledger.removed["device"], ledger.lost) == (1, 0, 0)
            assert ledger.index.rewarmed == 1


def test_after_a_restart_nothing_is_known_of_the_new_cache() -> None:
    port = free_port()
    with ExitStack() as stack:
        with Publisher(port) as first:
            source = stack.enter_context(running(options(port)))
            first.subscribed()
            first.store(1, 2)
            first.remove(1)
            eventually(lambda: resident(source) == 1)
        second = stack.enter_context(Publisher(port))
        second.subscribed()
        second.store(1)
        second.store(7)
        eventually(lambda: resident(source) == 2)
        assert (source.ledgers[0].lost, source.ledgers[0].index.rewarmed) == (0, 0)


def test_a_restart_whose_numbers_have_passed_the_last_one_is_seen_by_what_is_replayed() -> None:
    port, replay = free_port(), free_port()
    chosen = options(port, replay=f"tcp://127.0.0.1:{replay}")
    with ExitStack() as stack:
        with Publisher(port, replay) as first:
            source = stack.enter_context(running(chosen))
            first.subscribed()
            first.store(1, 2)
            first.store(3)
            eventually(lambda: resident(source) == 3)
        second = stack.enter_context(Publisher(port, replay))
        for number in range(10, 14):
            second.store(number, sent=False)
        second.subscribed()
        second.store(14)
        eventually(lambda: source.ledgers[0].stored["device"] == 8)
        assert (resident(source), source.ledgers[0].lost) == (5, 0)


def test_an_interrupted_connection_goes_on_where_it_was() -> None:
    """A network that fails is the engine's socket closing and coming back with the same numbers."""
    port, replay = free_port(), free_port()
    chosen = options(port, replay=f"tcp://127.0.0.1:{replay}")
    with ExitStack() as stack:
        with Publisher(port, replay) as first:
            source = stack.enter_context(running(chosen))
            first.subscribed()
            first.store(1)
            eventually(lambda: resident(source) == 1)
        again = stack.enter_context(Publisher(port, replay))
        again.kept, again.next = first.kept, first.next
        again.store(2, sent=False)
        again.subscribed()
        again.store(3)
        eventually(lambda: resident(source) == 3)
        assert source.ledgers[0].lost == 0


def test_each_rank_has_its_port_its_sequence_and_its_label() -> None:
    port, replay = free_port(), free_port()
    chosen = options(port, replay=f"tcp://127.0.0.1:{replay}", ranks=2)
    with (
        Publisher(port, replay) as zero,
        Publisher(port + 1, replay + 1) as one,
        running(chosen) as source,
    ):
        for engine in (zero, one):
            engine.subscribed()
        zero.store(1)
        one.store(1, 2)
        one.store(3, sent=False)
        one.store(4)
        eventually(lambda: (resident(source), resident(source, 1)) == (1, 4))
        line = 'kvcache_resident_blocks{target="a",engine_rank="1",tier="device"} 4.0\n'
        eventually(lambda: line in page(source))
        assert 'kvcache_resident_blocks{target="a",engine_rank="0",tier="device"} 1.0\n' in page(source)
        assert 'kvcache_events_total{target="a",event="stored"} 4.0\n' in page(source)


def test_messages_of_another_topic_are_not_taken() -> None:
    port = free_port()
    with Publisher(port) as engine, running(options(port, topic="kv@")) as source:
        engine.subscribed()
        engine.raw(b"other", bytes(8), b"\xc1")
        engine.store(1)
        eventually(lambda: resident(source) == 1)
        assert source.ledgers[0].events["unreadable"] == 0


def test_hostile_messages_are_counted_and_the_next_good_one_is_read() -> None:
    port = free_port()
    with Publisher(port) as engine, running(options(port)) as source:
        engine.subscribed()
        engine.raw(TOPIC)
        engine.raw(TOPIC, b"x", b"y")
        engine.raw(TOPIC, END, b"")
        engine.raw(*[b""] * 500)
        engine.raw(TOPIC, bytes(8), b"\xdd\xff\xff\xff\xff" * 1_000)
        engine.next = 1
        engine.store(1)
        eventually(lambda: resident(source) == 1)
        assert source.ledgers[0].events["unreadable"] == 5
        assert source.ledgers[0].lost == 1


def test_a_frame_above_16_mib_costs_the_connection_and_nothing_else() -> None:
    port = free_port()
    with Publisher(port) as engine, running(options(port)) as source:
        engine.subscribed()
        engine.store(1)
        eventually(lambda: resident(source) == 1)
        engine.raw(TOPIC, bytes(8), bytes(17 << 20))
        assert engine._socket.recv()[0] == 0
        engine.subscribed()
        engine.store(2)
        eventually(lambda: resident(source) == 2)


def test_a_peer_that_does_not_speak_the_protocol_is_tried_again() -> None:
    """Such as a port that another server holds until the engine comes."""
    port = free_port()
    with ExitStack() as stack:
        with socket.create_server(("127.0.0.1", port)) as other:
            source = stack.enter_context(running(options(port)))
            accepted, _ = other.accept()
            accepted.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n" * 10)
            accepted.close()
        engine = stack.enter_context(Publisher(port))
        engine.subscribed()
        engine.store(1)
        eventually(lambda: resident(source) == 1)


def test_a_port_in_use_is_reported_once_and_taken_when_it_is_free(caplog: pytest.LogCaptureFixture) -> None:
    port = free_port()
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", port))
        holder.listen()
        with caplog.at_level(logging.WARNING), running(options(port, bind=True)) as source:
            eventually(lambda: bool(caplog.records))
            time.sleep(1.2)
            holder.close()
            with Publisher(port, connect=True) as engine:
                engine.subscribed()
                engine.store(1)
                eventually(lambda: resident(source) == 1)
    (record,) = caplog.records
    assert f"events of a at tcp://127.0.0.1:{port}: Address already in use" in record.getMessage()


def test_the_rank_is_added_to_the_port() -> None:
    assert endpoint_of("tcp://[::1]:5557", 3) == "tcp://[::1]:5560"
    assert endpoint_of("ipc:///run/kv.sock", 0) == "ipc:///run/kv.sock"


def test_the_app_shows_sources_and_a_reload_keeps_those_that_did_not_change(tmp_path: Path) -> None:
    ports = free_port(), free_port()
    file = tmp_path / "kvcache.yaml"

    def write(model: str) -> None:
        lines = [
            f'  - {{target: a, endpoint: "tcp://127.0.0.1:{ports[0]}"}}',
            f'  - {{target: b, endpoint: "tcp://127.0.0.1:{ports[1]}", bind: true, model_name: {model}}}',
        ]
        file.write_text("\n".join(["events:", *lines, ""]))

    def text() -> str:
        return "".join(chunk.text for block in app.blocks(1.0) for chunk in block.values())

    write("old")
    app = App(file)
    app.start()
    try:
        with Publisher(ports[0]) as a:
            a.subscribed()
            a.store(1, 2)
            eventually(lambda: 'kvcache_resident_blocks{target="a",tier="device"} 2.0' in text())
            write("new")
            assert app.reload() is None
            assert 'kvcache_resident_blocks{target="a",tier="device"} 2.0' in text()
            with Publisher(ports[1], connect=True) as b:
                b.subscribed()
                b.store(1)
                expected = 'kvcache_resident_blocks{target="b",model_name="new",tier="device"} 1.0'
                eventually(lambda: expected in text())
            assert 'model_name="old"' not in text()
    finally:
        app.stop()
