"""Usage logs by Kafka, from a cluster inside the test: counted once over restarts, rebalances and outages."""

import logging
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import KafkaError
from hypothesis import given
from hypothesis import strategies as st

from kafka_cluster import LINE, PARTITIONS, Cluster, cluster, comes, reader, total
from kvcache_exporter import catalogue as c
from kvcache_exporter.app import App
from kvcache_exporter.errors import ConfigError
from kvcache_exporter.requests.kafka import source as source_module
from kvcache_exporter.requests.kafka.messages import lines_of
from kvcache_exporter.requests.kafka.offsets import Claims, Resume, Standing, resume
from kvcache_exporter.requests.kafka.source import KafkaSource
from kvcache_exporter.settings import read_config
from kvcache_exporter.state import StateStore


@pytest.fixture(scope="module")
def brokers() -> Iterator[Cluster]:
    with cluster() as made:
        yield made


@pytest.fixture(autouse=True)
def _quick_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_module, "_RETRY_SECONDS", 0.1)


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    return str(request.node.name)[:200].replace("[", "-").replace("]", "")


def running(source: KafkaSource) -> "closing[KafkaSource]":
    source.poll(0.0)
    return closing(source)


def counts(source: KafkaSource, wanted: int) -> None:
    comes(f"{wanted} requests", lambda: total(source, c.REQUESTS) >= wanted)
    assert total(source, c.REQUESTS) == wanted


def test_messages_are_counted_and_a_restart_goes_on_where_it_was(
    brokers: Cluster, topic: str, tmp_path: Path
) -> None:
    brokers.produce(200, topic)
    for wanted in (200, 300):
        store = StateStore(tmp_path / "state.sqlite")
        with running(reader(brokers.broker, store, topic=topic)) as source:
            counts(source, wanted)
            assert total(source, c.LOG_LAG_MESSAGES) == 0
            assert total(source, c.LOG_LINES) == wanted
            assert total(source, c.LOG_MISSED) == total(source, c.LOG_BROKER_ERRORS) == 0
            assert source.problems == ()
        store.close()
        brokers.produce(100, topic)


def test_two_exporters_count_every_message_once_while_partitions_move(brokers: Cluster, topic: str) -> None:
    stores = [StateStore(None), StateStore(None)]
    before = brokers.produced
    brokers.produce(40, topic)
    with running(reader(brokers.broker, stores[0], topic=topic)) as first:
        counts(first, 40)
        with running(reader(brokers.broker, stores[1], topic=topic)) as second:

            def shared() -> bool:
                brokers.produce(8, topic)
                return total(second, c.REQUESTS) > 0

            comes("a share for the second", shared)
        with running(reader(brokers.broker, stores[1], topic=topic)) as second:
            brokers.produce(40, topic)
            produced = brokers.produced - before
            comes("all", lambda: total(first, c.REQUESTS) + total(second, c.REQUESTS) >= produced)
            assert total(first, c.REQUESTS) + total(second, c.REQUESTS) == produced
            assert total(first, c.LOG_MISSED) + total(second, c.LOG_MISSED) == 0


def test_an_outage_is_said_and_ends_without_a_restart(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    with cluster() as brokers, running(reader(brokers.broker, StateStore(None))) as source:
        brokers.produce(20)
        counts(source, 20)
        brokers.go_down()
        comes("the problem", lambda: source.problems)
        assert "connection" in source.problems[0]
        assert total(source, c.REQUESTS) == 20
        brokers.come_up()
        brokers.produce(20)
        counts(source, 40)
        comes("the end of the problem", lambda: source.problems == ())
        comes("errors on the page", lambda: total(source, c.LOG_BROKER_ERRORS, reason="connection") > 0)
    said = [record for record in caplog.records if "connection: " in record.message]
    assert 0 < len(said) < 10


def test_closing_is_prompt_while_no_broker_answers() -> None:
    with cluster() as brokers:
        brokers.go_down()
        source = reader(brokers.broker, StateStore(None))
        with running(source):
            comes("the problem", lambda: source.problems)
            begin = time.monotonic()
        assert time.monotonic() - begin < 6.0


@pytest.mark.parametrize(
    "error", [KafkaError.REQUEST_TIMED_OUT, KafkaError.REBALANCE_IN_PROGRESS, KafkaError.UNKNOWN_MEMBER_ID]
)
def test_a_claim_that_fails_is_made_again(error: int, topic: str) -> None:
    with (
        cluster() as brokers,
        running(reader(brokers.broker, StateStore(None))) as source,
    ):
        brokers.produce(20)
        counts(source, 20)
        brokers.refuse_commits(error)
        brokers.produce(20)
        counts(source, 40)
        brokers.produce(20)
        counts(source, 60)


def test_what_expired_before_it_was_read_is_counted_as_missed() -> None:
    store = StateStore(None)
    with cluster() as brokers:
        brokers.produce(40)
        with running(reader(brokers.broker, store)) as source:
            counts(source, 40)
        brokers.produce(40)
        brokers.delete_before(15, partition=0)
        with running(reader(brokers.broker, store)) as source:
            counts(source, 75)
            assert total(source, c.LOG_MISSED, reason="expired") == 5
            assert total(source, c.LOG_MISSED) == 5


def test_a_topic_that_comes_later_is_read_from_its_beginning_also_with_start_at_end(
    brokers: Cluster, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kvcache_exporter.requests.kafka import client  # noqa: PLC0415

    monkeypatch.setattr(client, "_TOPIC_SECONDS", 0.5)
    with running(reader(brokers.broker, StateStore(None), topic=topic, start_at="end")) as source:
        comes("the missing topic being said", lambda: source.problems)
        assert topic in source.problems[0]
        brokers.produce(12, topic)
        counts(source, 12)
        assert source.problems == ()
        comes("the error", lambda: total(source, c.LOG_BROKER_ERRORS, reason="topic") > 0)


def test_start_at_end_leaves_what_was_there_before(brokers: Cluster, topic: str) -> None:
    brokers.produce(40, topic)
    store = StateStore(None)
    with running(reader(brokers.broker, store, topic=topic, start_at="end")) as source:
        comes("positions", lambda: len(store.load("kafka/s")) == 1 + PARTITIONS)
        brokers.produce(8, topic)
        counts(source, 8)
    # Another exporter goes on from there, whatever its own start_at is.
    brokers.produce(4, topic)
    with running(reader(brokers.broker, StateStore(None), topic=topic)) as source:
        counts(source, 4)


def test_poison_is_counted_by_reason_and_the_rest_is_read(brokers: Cluster, topic: str) -> None:
    good = LINE % 2000
    array = b"[" + good + b"," + good + b"]"
    pretty = good.replace(b",", b",\n")
    values = (
        None,
        b"",
        b"\xff\xfe{",
        b"not json",
        b'{"ts":',
        b"x" * 9000,
        good,
        good + b"\n" + good,
        array,
        pretty,
    )
    for value in values:
        brokers.send(value, topic)
    brokers.flush()
    with running(reader(brokers.broker, StateStore(None), topic=topic, max_line_bytes=8192)) as source:
        counts(source, 6)
        assert total(source, c.LOG_PARSE_FAILURES, reason="too_long") == 1
        assert total(source, c.LOG_PARSE_FAILURES) + total(source, c.LOG_SKIPPED) == 4
        assert total(source, c.LOG_LINES) == 9
        assert total(source, c.LOG_MISSED) == 0


def test_requests_over_several_messages_survive_a_restart(brokers: Cluster, topic: str) -> None:
    start = (
        b'{"request_id":"r","type":"message_start","message":{"id":"m1","model":"claude-sonnet-5-5",'
        b'"usage":{"input_tokens":10,"cache_read_input_tokens":9000,"output_tokens":1}}}'
    )
    end = (
        b'{"request_id":"r","type":"message_delta","delta":{"stop_reason":"end_turn"},'
        b'"usage":{"output_tokens":50}}'
    )
    store = StateStore(None)
    brokers.send(start, topic)
    brokers.flush()
    with running(reader(brokers.broker, store, form="anthropic_stream", topic=topic)) as source:
        comes("the start", lambda: total(source, c.LOG_LINES) == 1)
        assert total(source, c.REQUESTS) == 0
    brokers.send(end, topic)
    brokers.flush()
    with running(reader(brokers.broker, store, form="anthropic_stream", topic=topic)) as again:
        counts(again, 1)
        assert total(again, c.REQUESTS, outcome="full") == 1


def test_a_reload_that_changes_the_source_goes_on_where_it_was(
    brokers: Cluster, topic: str, tmp_path: Path
) -> None:
    brokers.produce(20, topic)
    file = tmp_path / "kvcache.yaml"
    source = (
        "{{name: s, format: openai_chat, model_name: '{}', "
        f"kafka: {{{{brokers: ['{brokers.broker}'], topic: '{topic}', "
        "start_at: beginning, session_timeout: 6s}}}}"
    )
    file.write_text(f"requests: [{source.format('a')}]\n")
    app = App(file)
    app.start()
    try:
        comes("the messages", lambda: total(app.sources[0], c.REQUESTS) == 20)  # type: ignore[arg-type]
        before = app.sources[0]
        file.write_text(f"requests: [{source.format('b')}]\n")
        assert app.reload() is None
        assert app.sources[0] is not before
        brokers.produce(20, topic)
        comes("more", lambda: total(app.sources[0], c.REQUESTS) >= 40)  # type: ignore[arg-type]
        assert total(app.sources[0], c.REQUESTS) == 40  # type: ignore[arg-type]
    finally:
        app.stop()


def test_without_the_library_the_configuration_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kvcache_exporter.settings.is_installed", lambda: False)
    file = tmp_path / "kvcache.yaml"
    file.write_text("requests: [{name: s, kafka: {brokers: ['k:9092'], topic: t}}]\n")
    with pytest.raises(ConfigError, match=r"requests\[0\]\.kafka: .*pip install 'confluent-kafka>=2\.6'"):
        read_config(file)


def test_a_password_file_that_goes_away_is_said_and_nothing_stops(tmp_path: Path) -> None:
    from kvcache_exporter.requests.formats import get_format  # noqa: PLC0415
    from kvcache_exporter.requests.formats.base import DecoderOptions  # noqa: PLC0415
    from kvcache_exporter.requests.kafka.options import KafkaOptions, Security  # noqa: PLC0415
    from kvcache_exporter.requests.options import SourceOptions  # noqa: PLC0415
    from kvcache_exporter.requests.outcome import FullHit  # noqa: PLC0415

    security = Security("sasl_ssl", mechanism="PLAIN", username="u", password_file=str(tmp_path / "password"))
    options = SourceOptions("s", (), "end", DecoderOptions(), FullHit())
    kafka = KafkaOptions(("127.0.0.1:1",), ("t",), security=security)
    with running(KafkaSource(options, kafka, get_format("auto"), StateStore(None))) as source:
        comes("the problem", lambda: source.problems)
        assert source.problems == (f"cannot read {tmp_path}/password: No such file or directory",)
        comes("it on the page", lambda: total(source, c.LOG_BROKER_ERRORS, reason="authentication") > 0)


OWNERS = st.text("0123456789abcdef", min_size=8, max_size=8)


@given(st.lists(st.tuples(OWNERS, st.integers(0, 2**63 - 1)), max_size=100))
def test_claims_survive_the_metadata_and_fit_into_it(made: list[tuple[str, int]]) -> None:
    claims = Claims()
    for owner, end in made:
        claims = claims.add(owner, end)
    text = claims.encode()
    assert len(text) <= 4096
    assert Claims.decode(text) == claims
    if made:
        assert claims.last_owner == made[-1][0]
        assert claims.of(made[-1][0]) == made[-1][1]


@given(st.none() | st.text())
def test_metadata_of_others_is_no_claim(text: str | None) -> None:
    if not (text or "").startswith("kvcache1 "):
        assert Claims.decode(text) == Claims()


ME, OTHER = "a" * 8, "b" * 8


@pytest.mark.parametrize(
    ("own", "committed", "claims", "expected"),
    [
        (None, None, (), Resume(77)),
        (None, 20, ((OTHER, 20),), Resume(20)),
        (20, 20, ((ME, 20),), Resume(20)),
        (20, None, (), Resume(20)),  # the group forgot
        (20, 5, (), Resume(20)),  # the group was reset: nothing is counted twice
        (20, 30, (), Resume(30)),  # or moved on by hand
        (20, 30, ((OTHER, 30), (ME, 20)), Resume(30)),
        (20, 25, ((ME, 25),), Resume(20)),  # the state file was set back, nobody came in between
        (20, 30, ((OTHER, 30), (ME, 25)), Resume(30, uncounted=5)),
        (3, None, (), Resume(10, expired=7)),
        (None, 4, ((OTHER, 4),), Resume(10, expired=6)),
        (200, None, (), Resume(10)),  # the topic is a new one
        (200, 200, ((ME, 200),), Resume(100)),  # the log lost its end
    ],
)
def test_where_a_new_owner_goes_on(
    own: int | None, committed: int | None, claims: tuple[tuple[str, int], ...], expected: Resume
) -> None:
    standing = Standing(own=own, committed=committed, claims=Claims(claims), low=10, high=100, fresh=77)
    assert resume(standing, ME) == expected


@given(st.lists(st.binary(max_size=20).filter(lambda line: b"\n" not in line)))
def test_a_message_gives_its_lines(lines: list[bytes]) -> None:
    whole = b"\n".join(lines)
    found = list(lines_of(whole))
    if found != [whole]:
        assert found == [line for line in lines if line not in (b"", b"\r")]
