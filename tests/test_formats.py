"""Every log format against its sample and the right values, and what all formats do with bad lines."""

import json
from pathlib import Path
from typing import Any

import pytest

from kvcache_exporter.catalogue import PARSE_FAILURE_REASONS
from kvcache_exporter.errors import RecordError
from kvcache_exporter.model import Aggregate, RequestRecord, Skipped
from kvcache_exporter.requests.formats import FORMATS, get_format
from kvcache_exporter.requests.formats.auto import AutoDecoder
from kvcache_exporter.requests.formats.base import DecoderOptions, Entry
from kvcache_exporter.requests.formats.labels import Labeller
from kvcache_exporter.requests.formats.minimums import UNKNOWN_CONTRACT
from kvcache_exporter.requests.framing import Framer
from kvcache_exporter.requests.outcome import FullHit, classify

LOGS = Path(__file__).parent / "fixtures" / "logs"
SAMPLES = sorted(path.name.removesuffix(".expected.jsonl") for path in LOGS.glob("*.expected.jsonl"))
INSIDE = {"broken": "openai_chat", "fluentbit_vector": "openai_chat", "docker_json": "openai_chat",
          "k8s_cri": "openai_chat", "litellm_json_array": "litellm_slp"}  # fmt: skip
"""What `auto` finds in samples that are no accounting of their own."""
NOTHING_WRITTEN = {"broken", "docker_json", "fluentbit_vector", "k8s_cri"}
"""Their entries are openai_chat's, where a details object without cache_write_tokens means that nothing was
written: 0 there and so 0 here. The samples' own tables say null for the same entries."""


def decode(name: str, lines: list[bytes], options: DecoderOptions | None = None) -> list[Entry]:
    decoder = get_format(name).decoder(options or DecoderOptions())
    return [*decoder.decode(lines), *decoder.flush()]


def record(name: str, line: dict[str, Any], options: DecoderOptions | None = None) -> RequestRecord:
    (entry,) = decode(name, [json.dumps(line).encode()], options)
    assert isinstance(entry, RequestRecord), entry
    return entry


def reason(name: str, line: bytes) -> str:
    (entry,) = decode(name, [line])
    assert isinstance(entry, RecordError), entry
    assert entry.reason in PARSE_FAILURE_REASONS
    return entry.reason


def outcome(entry: RequestRecord) -> str:
    return classify(entry.prompt_tokens, entry.cached_tokens, entry.granule, entry.minimum_tokens, FullHit())


def sample_lines(sample: str) -> list[bytes]:
    (path,) = (p for p in LOGS.glob(f"{sample}.*") if ".expected" not in p.name)
    return path.read_bytes().removesuffix(b"\n").split(b"\n")


def expectations(sample: str) -> list[dict[str, Any]]:
    lines = (LOGS / f"{sample}.expected.jsonl").read_text().splitlines()
    rows: list[dict[str, Any]] = [json.loads(line) for line in lines]
    return sorted(rows, key=lambda row: row["rec"]) if sample == "broken" else rows


@pytest.mark.parametrize("how", ["named", "auto"])
@pytest.mark.parametrize("sample", SAMPLES)
def test_sample(sample: str, how: str) -> None:
    """Each entry of a sample comes to exactly what is expected of it, also when the format is recognised."""
    if how == "auto":
        decoder = get_format("auto").decoder(DecoderOptions())
        # Log files come to decoders without the framing of container runtimes.
        entries = [*decoder.decode(Framer().feed(sample_lines(sample))), *decoder.flush()]
        assert isinstance(decoder, AutoDecoder)
        assert decoder.chosen == INSIDE.get(sample, sample)
    else:
        entries = decode("openai_chat" if sample == "broken" else sample, sample_lines(sample))
    expected = [row for row in expectations(sample) if row["outcome"] != "skip"]
    records = [entry for entry in entries if isinstance(entry, RequestRecord | Aggregate)]
    for found, row in zip(records, expected, strict=True):
        check(found, row, sample)
    for entry in entries:
        if isinstance(entry, RecordError):
            assert sample == "broken" or (how, sample) in TEXT_AMONG_LINES, entry


TEXT_AMONG_LINES = {("auto", "docker_json")}
"""`auto` takes plain text for a broken record; a decoder told of a container knows that it prints text."""


def check(entry: RequestRecord | Aggregate, expected: dict[str, Any], sample: str) -> None:
    if isinstance(entry, Aggregate):
        for key in ("prompt", "cached", "written", "uncached"):
            assert getattr(entry, f"{key}_tokens") == expected[key]
        assert (entry.requests, expected["outcome"]) == (expected["requests"], "aggregate")
        return
    got = {
        "prompt": entry.prompt_tokens,
        "cached": entry.cached_tokens,
        "output": entry.output_tokens,
        "uncached": entry.uncached_tokens,
        "outcome": outcome(entry),
        "status": entry.status,
    }
    assert got == {key: expected[key] for key in got}
    times = (entry.ttft_seconds, entry.duration_seconds, entry.timestamp)
    for time, key in zip(times, ("ttft_s", "latency_s", "ts"), strict=True):
        assert time == (expected[key] if expected[key] is None else pytest.approx(expected[key], rel=1e-6))
    assert entry.written_tokens == (0 if sample in NOTHING_WRITTEN else expected["written"])
    for key, value in (("group", entry.group), ("model", entry.model_name)):
        assert value == (expected.get(key) or value)
    for ttl in ("5m", "30m", "1h", "12h"):
        if f"written_{ttl}" in expected:
            assert dict(entry.written_by_ttl).get(ttl, 0) == expected[f"written_{ttl}"]


BROKEN_REASONS = [
    "not_json", "not_json", "not_json", "no_usage", "no_usage", "no_usage", None, None, None, None, "invalid",
    "cached_exceeds_prompt", "invalid", None, None, "invalid", "invalid", "not_json",
]  # fmt: skip


def test_broken_lines_have_closed_reasons() -> None:
    """Each broken line is counted for what is wrong with it, and stops none of the good ones."""
    entries = decode("openai_chat", sample_lines("broken"))
    assert [getattr(entry, "reason", None) for entry in entries] == BROKEN_REASONS


def test_labels_are_cut_and_cleaned() -> None:
    """A 5,000-character model name is cut to 200, control characters are replaced, all else is kept."""
    entries = [e for e in decode("openai_chat", sample_lines("broken")) if isinstance(e, RequestRecord)]
    assert entries[-2].model_name == "m" * 200
    assert entries[-1].model_name == 'm\ufffd{}"\\evil'


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (b"\xff\xfe\x00binary", "not_utf8"),
        (b'{"usage": {"prompt_tokens": 1, "model": "\xff"', "not_utf8"),
        (b'{"usage":', "not_json"),
        (b"", "not_json"),
        (b'"text"', "no_usage"),
        (b"{}", "no_usage"),
        (b'{"usage": {}}', "no_usage"),
        (b'{"usage": "none"}', "no_usage"),
        (b'{"usage": {"prompt_tokens": 1e999}}', "invalid"),
        (b'{"usage": {"prompt_tokens": 10.5}}', "invalid"),
        (b'{"usage": {"prompt_tokens": "ten"}}', "invalid"),
        (b'{"usage": {"prompt_tokens": 1000000001}}', "invalid"),
        (b'{"usage": {"prompt_tokens": 10, "prompt_tokens_details": {"cached_tokens": 11}}}',
         "cached_exceeds_prompt"),
        (b"[" * 100_000, "not_json"),
    ],
)  # fmt: skip
def test_reasons(line: bytes, expected: str) -> None:
    """What is no record says why."""
    assert reason("openai_chat", line) == expected


def test_errors_do_not_quote_the_line() -> None:
    """A line may hold prompt text; what is said about it must not."""
    for line in (b'{"usage": {"prompt_tokens": "SECRET"}}', b"SECRET", b'{"SECRET": 1}'):
        (entry,) = decode("openai_chat", [line])
        assert isinstance(entry, RecordError)
        assert "SECRET" not in f"{entry!s} {entry!r}"
        assert entry.__traceback__ is None


CHAT = b'{"model":"m","usage":{"prompt_tokens":2000,"prompt_tokens_details":{"cached_tokens":1024}}}'


@pytest.mark.parametrize(
    "line",
    [
        CHAT + b"\r",
        b"\xef\xbb\xbf" + CHAT,
        b"\xef\xbb\xbf" + CHAT + b"\r",
        b"data: " + CHAT,
        b"[" + CHAT + b"]",
        b'{"message":' + CHAT + b"}",
        b'{"log":' + json.dumps(CHAT.decode()).encode() + b',"stream":"stdout"}',
        b'{"message":' + json.dumps('{"log":' + CHAT.decode() + "}").encode() + b"}",
    ],
)
def test_wrappings(line: bytes) -> None:
    """Byte order mark, CR, server-sent events, arrays and shippers' objects do not hide a record."""
    (entry,) = decode("openai_chat", [line])
    assert isinstance(entry, RequestRecord)
    assert (entry.prompt_tokens, entry.cached_tokens) == (2000, 1024)


def test_array_gives_an_entry_for_each_element() -> None:
    """A bad element of an array costs only itself."""
    entries = decode("openai_chat", [b"[" + b",".join([CHAT, b"7", b"{}", CHAT]) + b"]"])
    kinds = [type(entry) for entry in entries]
    assert kinds == [RequestRecord, RecordError, RecordError, RequestRecord]


@pytest.mark.parametrize(
    "line",
    [
        b"INFO:     127.0.0.1 - POST /v1/chat/completions 200 OK",
        b"2026-11-29 10:00:00,123 started",
        b"[2026-11-29 10:00:00] started",
        b'{"log":"plain text\\n","stream":"stderr"}',
        b"data: [DONE]",
        b'{"type":"content_block_start","index":0}',
        b'{"object":"chat.completion.chunk","model":"m"}',
    ],
)
def test_what_is_no_request_is_no_failure(line: bytes) -> None:
    """A server's own text and events inside a stream are skipped, not counted as parse failures."""
    (entry,) = decode("openai_chat", [line])
    assert isinstance(entry, Skipped)
    assert entry.reason == "not_a_request"


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (429, "rate_limited"), ("429", "rate_limited"), (400, "client_error"), (404, "client_error"),
        (499, "aborted"), (500, "server_error"), (503, "server_error"), ("aborted", "aborted"),
        ("cancelled", "aborted"), ("failed", "failed"), ("error", "failed"), ("timeout", "server_error"),
    ],
)  # fmt: skip
def test_failed_requests_are_skipped_with_a_reason(status: object, expected: str) -> None:
    """A failed request is in no hit rate, even if its entry has usage."""
    line = {"status": status, "model": "m", "route": "r", "ts": 1795946401, "usage": {"prompt_tokens": 9}}
    (entry,) = decode("openai_chat", [json.dumps(line).encode()])
    assert entry == Skipped(expected, str(status), "openai", "m", "r", 1795946401.0)


def test_api_error_bodies_are_failures() -> None:
    """An error body in place of a reply is a failed request of the kind it names."""
    for kind, expected in (
        ("rate_limit_error", "rate_limited"),
        ("overloaded_error", "server_error"),
        ("invalid_request_error", "client_error"),
        ("strange", "failed"),
    ):
        line = json.dumps({"type": "error", "error": {"type": kind, "message": "x"}}).encode()
        (entry,) = decode("anthropic_messages", [line])
        assert isinstance(entry, Skipped)
        assert entry.reason == expected


def test_usage_left_out_is_unknown_not_a_miss() -> None:
    """A finished stream whose usage was not asked for counts as a request of unknown outcome."""
    entry = record("openai_chat", {"status": 200, "stream": True, "ttft_ms": 5, "usage": None})
    assert (entry.prompt_tokens, outcome(entry), entry.ttft_seconds) == (None, "unknown", 0.005)


def test_anthropic_counts_are_disjoint() -> None:
    """T4: input 5, read 128,955, written 1,253 make a prompt of 130,213."""
    usage = {"input_tokens": 5, "cache_read_input_tokens": 128955, "cache_creation_input_tokens": 1253}
    entry = record("anthropic_messages", {"usage": usage})
    assert (entry.prompt_tokens, entry.cached_tokens, entry.written_tokens) == (130213, 128955, 1253)
    assert entry.uncached_tokens == 5


def test_openai_counts_are_inclusive() -> None:
    """T5: 17,817 of 17,903 cached leaves 86, in both of OpenAI's forms."""
    chat = {"prompt_tokens": 17903, "prompt_tokens_details": {"cached_tokens": 17817}}
    responses = {"input_tokens": 17903, "input_tokens_details": {"cached_tokens": 17817}}
    for entry in (record("openai_chat", {"usage": chat}), record("openai_responses", {"usage": responses})):
        assert (entry.prompt_tokens, entry.cached_tokens, entry.uncached_tokens) == (17903, 17817, 86)


@pytest.mark.parametrize("name", ["openai_chat", "vllm", "sglang_usage", "litellm_slp"])
def test_not_reported_is_not_zero(name: str) -> None:
    """T6: no cache field, zero, and null details are unknown, a miss, and unknown."""
    usages: list[dict[str, Any]] = [
        {"prompt_tokens": 2000},
        {"prompt_tokens": 2000, "prompt_tokens_details": {"cached_tokens": 0}},
        {"prompt_tokens": 2000, "prompt_tokens_details": None},
    ]
    lines: list[dict[str, Any]] = [
        {"model": "m", "usage": usage, "metadata": {"usage_object": usage}} for usage in usages
    ]
    assert [outcome(record(name, line)) for line in lines] == ["unknown", "miss", "unknown"]


def test_impossible_block_count_is_unknown() -> None:
    """vLLM's decode workers claim all but one token; no cache of 16-token blocks holds 4,999."""
    for cached, expected in ((4999, "unknown"), (4992, "full")):
        usage = {"prompt_tokens": 5000, "prompt_tokens_details": {"cached_tokens": cached}}
        assert outcome(record("vllm", {"usage": usage})) == expected


@pytest.mark.parametrize(
    ("provider", "model", "granule", "minimum"),
    [
        ("hosted_vllm", "qwen", 16, 16), ("openai", "gpt-5", 128, 1024), ("deepseek", "x", 64, 64),
        ("bedrock", "us.anthropic.claude-opus-4-5-v1:0", 1, 4096), ("anthropic", "claude-sonnet-5", 1, 1024),
        ("openrouter", "anthropic/claude-haiku-4.5", 1, 4096), ("anthropic", "claude-sonnet-5-5", 1, 512),
        ("anthropic", "claude-3-haiku", 1, 1024), ("azure.ai.openai", "gpt", 128, 1024),
        ("Azure-OpenAI", "gpt", 128, 1024),
        ("made-up", "m", 1, 0), (None, None, 1, 0),
    ],
)  # fmt: skip
def test_litellm_takes_the_contract_of_the_provider(
    provider: str | None, model: str | None, granule: int, minimum: int
) -> None:
    """Granule and minimum go by who served the request; Claude's by the longest name that fits."""
    line = {"custom_llm_provider": provider, "model": model, "prompt_tokens": 5, "startTime": 1}
    entry = record("litellm", line)
    assert (entry.granule, entry.minimum_tokens) == (granule, minimum)


@pytest.mark.parametrize(
    ("group_by", "expected"),
    [
        ("tenant", "acme"), ("metadata.route", "faq"), ("tags.1", "b"), ("tags.7", ""), ("tags.x", ""),
        ("missing.path", ""), ("parameters.rid", "r1"), ("parameters.deep.0", "z"), ("a.b", "flat"),
        ("metadata", ""), ("numbers.0", "7"),
    ],
)  # fmt: skip
def test_group_by_path(group_by: str, expected: str) -> None:
    """A path reaches into objects, lists, JSON in strings and keys with dots; else the group is empty."""
    line = {
        "route": "r", "tenant": "acme", "metadata": {"route": "faq"}, "tags": ["a", "b"], "a.b": "flat",
        "parameters": json.dumps({"rid": "r1", "deep": ["z"]}), "numbers": [7],
        "usage": {"prompt_tokens": 9}, "prompt_tokens": 9, "input_tokens": 9,
    }  # fmt: skip
    options = DecoderOptions(group_by=group_by)
    for name in ("openai_chat", "litellm", "sglang_metrics_file"):
        assert record(name, line, options).group == expected


def test_group_of_the_format() -> None:
    """Without a path: the envelope's route or group; LiteLLM's first tag not its own, or model group."""
    chat: dict[str, Any] = {"usage": {"prompt_tokens": 9}}
    assert record("openai_chat", {**chat, "route": "r", "group": "g"}).group == "r"
    assert record("openai_chat", {**chat, "group": "g"}).group == "g"
    lite: dict[str, Any] = {"prompt_tokens": 9, "model_group": "large"}
    assert record("litellm", {**lite, "request_tags": ["User-Agent: x", "faq"]}).group == "faq"
    assert record("litellm", {**lite, "request_tags": '["faq"]'}).group == "faq"
    assert record("litellm", {**lite, "request_tags": ["User-Agent: x"]}).group == "large"


def test_options_fill_gaps_only() -> None:
    """Model and provider of the configuration are for records that carry none."""
    options = DecoderOptions(model_name="configured", provider="azure")
    bare = record("openai_chat", {"usage": {"prompt_tokens": 9}}, options)
    assert (bare.model_name, bare.provider) == ("configured", "azure")
    own = record("openai_chat", {"model": "m", "provider": "p", "usage": {"prompt_tokens": 9}}, options)
    assert (own.model_name, own.provider) == ("m", "p")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("2026-11-29T10:00:01.250Z", 1795946401.25), ("2026-11-29 10:00:01", 1795946401.0),
        ("2026-11-29T12:00:01+02:00", 1795946401.0), ("2026-11-29T10:00:01.123456789Z", 1795946401.123456789),
        ("2026-11-29T05:00:01.5-0500", 1795946401.5), (1795946401, 1795946401.0),
        (1795946401.5, 1795946401.5), (1795946401500, 1795946401.5), ("1795946401.5", 1795946401.5),
        (1795946401500000000, 1795946401.5), ("2026-13-29T10:00:01Z", None), ("yesterday", None),
        (True, None), (-5, None), ([], None), ("2026-11-29T10:00:01.5X", None), ("", None),
    ],
)  # fmt: skip
def test_timestamps(value: object, expected: float | None) -> None:
    """ISO 8601 in any zone and epochs in any unit are Unix seconds; a bad time costs only itself."""
    got = record("openai_chat", {"ts": value, "usage": {"prompt_tokens": 9}}).timestamp
    assert got == (None if expected is None else pytest.approx(expected, abs=1e-6))


@pytest.mark.parametrize("value", [-1, "soon", True, 1e300, [], {}, "NaN"])
def test_bad_times_cost_only_themselves(value: object) -> None:
    """A latency that cannot be one is absent; the counts of the record stay."""
    line = {"ttft_ms": value, "latency_ms": value, "usage": {"prompt_tokens": 9}}
    entry = record("openai_chat", line)
    assert (entry.prompt_tokens, entry.ttft_seconds, entry.duration_seconds) == (9, None, None)


def test_ttft_of_calls_that_were_not_streamed() -> None:
    """Whoever waits for the whole reply sees no first token."""
    line = {"stream": False, "ttft_ms": 900, "latency_ms": 900, "usage": {"prompt_tokens": 9}}
    assert record("openai_chat", line).ttft_seconds is None
    assert record("openai_chat", {**line, "stream": True}).ttft_seconds == 0.9


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        ((100.0, 100.5, 102.0, True), 0.5), ((100.0, 102.0, 102.0, True), None),
        ((100.0, 100.5, 102.0, False), None), ((100.0, 100.5, 102.0, None), 0.5),
        ((100.0, 99.0, 102.0, True), None), ((100.0, None, 102.0, True), None),
    ],
)  # fmt: skip
def test_ttft_of_litellm(times: tuple[Any, ...], expected: float | None) -> None:
    """LiteLLM's first-token time is one only if streamed, after the start and before the end."""
    keys = ("startTime", "completionStartTime", "endTime", "stream")
    line = dict(zip(keys, times, strict=True))
    assert record("litellm", {**line, "prompt_tokens": 9}).ttft_seconds == expected


def test_sglang_prefers_the_latency_it_measured() -> None:
    """first_token_latency (from 0.5.23) over the difference of two times."""
    line = {"prompt_tokens": 9, "request_received_ts": 100.0, "prefill_finished_time": 100.25}
    assert record("sglang_metrics_file", line).ttft_seconds == 0.25
    assert record("sglang_metrics_file", {**line, "first_token_latency": 0.5}).ttft_seconds == 0.5


def test_registry() -> None:
    """Names are unique, every format is found by its name, and an unknown name lists the known ones."""
    names = [known.name for known in FORMATS]
    assert len(set(names)) == len(names)
    assert [get_format(name).name for name in names] == names
    with pytest.raises(ValueError, match=r"unknown log format .nope.: use one of .*openai_chat.*vllm"):
        get_format("nope")


def test_auto_keeps_to_its_choice() -> None:
    """Lines before the first that tells are counted at once; later lines do not change the choice.

    A line of another format is decoded as what it is, all the same.
    """
    decoder = get_format("auto").decoder(DecoderOptions())
    assert isinstance(decoder, AutoDecoder)
    first = decoder.decode([b"garbage", b'{"hello": 1}', b"INFO: started"])
    assert [getattr(entry, "reason", "") for entry in first] == ["not_json", "no_usage", "not_a_request"]
    assert (decoder.chosen, decoder.snapshot()) == ("", b"")
    later = decoder.decode([b"garbage", CHAT, b'{"usage":{"input_tokens":1,"cache_read_input_tokens":2}}'])
    assert decoder.chosen == "openai_chat"
    assert [type(entry) for entry in later] == [RecordError, RequestRecord, RequestRecord]
    assert list(decoder.also) == ["anthropic_messages"]
    resumed = get_format("auto").decoder(DecoderOptions())
    assert isinstance(resumed, AutoDecoder)
    resumed.restore(decoder.snapshot())
    assert resumed.chosen == "openai_chat"
    assert resumed.decode([CHAT]) == decoder.decode([CHAT])


def test_labels_are_worked_out_once_and_forgotten_in_time() -> None:
    """Absent values are remembered like others; a million models or one huge name do not fill the memory."""
    labeller = Labeller(DecoderOptions(), "openai", UNKNOWN_CONTRACT)
    assert labeller.labels(None, "m", None) is labeller.labels(None, "m", None)
    assert labeller.labels(None, "m" * 10_000, [1])[1:3] == ("m" * 200, "")
    for number in range(10_000):
        labeller.labels(None, f"model-{number}", None)
    assert len(labeller.known) < 5_000
    assert max(len(model or "") for _, model, _ in labeller.known) <= 200
