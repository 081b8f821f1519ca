"""The demo's KV events reach a source over ZeroMQ, all of them and exactly once."""

from contextlib import closing

from kvcache_exporter.demo.events import EventPublisher
from kvcache_exporter.demo.playback import load_recording
from kvcache_exporter.events.source import EventOptions
from test_events_source import eventually, running


def test_events_wait_for_a_listener_and_add_up_to_the_recordings_own_count() -> None:
    """Counts of the recording made without the exporter; hashes are forgotten at the engine's restart."""
    engine = next(engine for engine in load_recording() if engine.name == "vllm")
    with closing(EventPublisher(engine)) as publisher:
        publisher.write_until(engine.length / 2)
        options = EventOptions("vllm", publisher.endpoint, max_blocks=100_000)
        with running(options) as source:
            ledger = source.ledgers[0]

            def all_arrived() -> bool:
                publisher.write_until(engine.length)
                return ledger.stored["device"] == 5312

            eventually(all_arrived)
            assert (ledger.removed["device"], ledger.index.rewarmed, ledger.lost) == (4842, 601, 0)
            assert ledger.index.resident() == {"device": 171}


def test_an_engine_without_events_publishes_nothing() -> None:
    engine = next(engine for engine in load_recording() if engine.name == "sglang")
    assert engine.events == ()
    with closing(EventPublisher(engine)) as publisher, running(EventOptions("a", publisher.endpoint)):
        publisher.write_until(engine.length)
