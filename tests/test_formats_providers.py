"""Formats against each other, and the usage objects in which one provider differs from the next."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvcache_exporter.catalogue import REQUEST_DIAGNOSED_MISSES, REQUEST_DIAGNOSED_TOKENS
from kvcache_exporter.errors import RecordError
from kvcache_exporter.model import Aggregate, RequestRecord, Skipped
from kvcache_exporter.requests.formats import FORMATS, get_format
from kvcache_exporter.requests.formats.auto import AutoDecoder
from kvcache_exporter.requests.formats.base import DecoderOptions, Entry
from kvcache_exporter.requests.formats.minimums import UNKNOWN_CONTRACT, caching
from kvcache_exporter.requests.framing import Framer
from kvcache_exporter.requests.ledger import Ledger
from kvcache_exporter.requests.outcome import FullHit
from test_formats import INSIDE, LOGS, SAMPLES, decode, expectations, outcome, record, sample_lines

NAMES = {known.name for known in FORMATS}
OWN = [sample for sample in SAMPLES if sample in NAMES]


def auto(lines: list[bytes]) -> tuple[AutoDecoder, list[Entry]]:
    decoder = get_format("auto").decoder(DecoderOptions())
    assert isinstance(decoder, AutoDecoder)
    # Log files come to decoders without the framing of container runtimes.
    return decoder, [*decoder.decode(Framer().feed(lines)), *decoder.flush()]


@pytest.mark.parametrize("sample", OWN)
def test_auto_says_what_it_chose(sample: str) -> None:
    """Every sample is taken for what it is, also behind a server's own text."""
    for before in ([], [b"INFO: started", b"{}"]):
        decoder, _ = auto([*before, *sample_lines(sample)])
        assert decoder.chosen == INSIDE.get(sample, sample)


NOBODY = {"apisix_nginx", "cloudflare_aig", "envoy_ai_gateway", "helicone", "kong", "langfuse", "otlp_traces"}
"""Gateways and tracers that serve any provider, and name it or not."""


@pytest.mark.parametrize("sample", [sample for sample in OWN if sample not in NOBODY])
def test_provider_is_the_one_of_the_record(sample: str) -> None:
    """The provider of the envelope, or of the format where the entry names none."""
    for entry, line in zip(decode(sample, sample_lines(sample)), sample_lines(sample), strict=False):
        named = json.loads(line.split(b"] ", 1)[-1]) if line.startswith(b"{") else {}
        if isinstance(entry, RequestRecord):
            assert entry.provider
            assert "provider" not in named or entry.provider == named["provider"]


def totals(entries: list[Entry]) -> list[tuple[int | None, int | None]]:
    return [(e.prompt_tokens, e.cached_tokens) for e in entries if isinstance(e, RequestRecord)]


UNKNOWN = {"helicone": [(2003, None)]}
"""What stands under a name that all share is half of the prompt; of unknown outcome, it is in no rate."""


@pytest.mark.parametrize("name", sorted(NAMES - {"auto", "custom"}))
def test_no_format_misreads_the_others(name: str) -> None:
    """A wrong `format` in the configuration costs records or cached counts, never gives wrong ones."""
    for sample in OWN:
        rows = expectations(sample)
        right = {(row["prompt"], row["cached"]) for row in rows} | {(row["prompt"], None) for row in rows}
        right |= {(None, None), (0, None), *UNKNOWN.get(sample, ())}
        wrong = set(totals(decode(name, sample_lines(sample)))) - right
        assert not wrong, (sample, wrong)


MIXED = [
    sample for sample in OWN
    if sample not in {"anthropic_stream", "claude_code", "codex_rollout", "openrouter_activity",
                      "aggregated_usage_apis"} and sample not in INSIDE
]  # fmt: skip


@pytest.mark.parametrize("first", MIXED)
def test_auto_on_a_file_of_every_format(first: str) -> None:
    """Whatever format it chose, records of the others are counted right or not at all, and most are."""
    others = [sample for sample in MIXED if sample != first]
    lines = [line for sample in (first, *others) for line in sample_lines(sample)]
    rows = [row for sample in (first, *others) for row in expectations(sample)]
    decoder, entries = auto(lines)
    assert decoder.chosen == first
    known = {(row["prompt"], row["cached"]) for row in rows}
    unknown = {(row["prompt"], None) for row in rows} | {(None, None)}
    assert set(totals(entries)) <= known | unknown
    counted = sum(cached is not None for _, cached in totals(entries))
    expected = sum(row["cached"] is not None and row["outcome"] != "skip" for row in rows)
    assert counted >= 0.95 * expected


def named_lines() -> list[tuple[str, bytes]]:
    """Lines of every sample that say which provider they are from, and the name of their format."""
    return [
        (sample, line)
        for sample in MIXED
        for line in sample_lines(sample)
        if line.startswith(b"{") and b'"provider":' in line and b'"usage":' in line
    ]


@pytest.mark.parametrize("first", ["openai_chat", "anthropic_messages", "gemini", "groq", "dashscope"])
def test_auto_reads_a_gateways_log_as_each_provider_means_it(first: str) -> None:
    """To the last field: writes, output, the server's own times."""
    lines = sorted(named_lines(), key=lambda pair: pair[0] != first)
    expected = [entry for name, line in lines for entry in decode(name, [line])]
    decoder, entries = auto([line for _, line in lines])
    assert decoder.chosen == first
    assert len(lines) > 50
    differing = [
        pair for pair in zip(lines, entries, expected, strict=True) if repr(pair[1]) != repr(pair[2])
    ]
    assert not differing


BUGS = [json.loads(line) for line in (LOGS / "bugs.jsonl").read_text().splitlines()]


def entries_of(bug: dict[str, Any]) -> Iterator[Entry]:
    """The records of a public bug report's input, which may be a bare usage object or several entries."""
    inputs = bug["input"] if isinstance(bug["input"], list) else [bug["input"]]
    if bug["format"] == "anthropic_stream":
        yield from decode("anthropic_stream", [json.dumps(event).encode() for event in inputs])
        return
    for each in inputs:
        name = each.get("format", bug["format"])
        line = each if each.keys() & {"usage", "usageMetadata", "usageDetails"} else {"usage": each}
        if name == "litellm_usage":
            name, line = "litellm", {"startTime": 1, "metadata": {"usage_object": each}}
        if name in NAMES:
            yield from decode(name, [json.dumps({"model": bug.get("model"), **line}).encode()])


def runnable(bug: dict[str, Any]) -> bool:
    inputs = bug["input"] if isinstance(bug["input"], list) else [bug["input"]]
    names = {each.get("format", bug["format"]) for each in inputs} - {"litellm_usage"}
    return names <= NAMES and not names & {"claude_code", "codex_rollout", "langfuse"}


@pytest.mark.parametrize("bug", [b for b in BUGS if runnable(b)], ids=lambda bug: bug["id"])
def test_public_accounting_bugs(bug: dict[str, Any]) -> None:
    """What others once got wrong comes out right; no writes reported and none made are the same."""
    entries = list(entries_of(bug))
    assert all(isinstance(entry, RequestRecord) for entry in entries)
    records = [entry for entry in entries if isinstance(entry, RequestRecord)]
    expected = bug["expect"]
    prompts = [r.prompt_tokens for r in records]
    assert (None if None in prompts else sum(p or 0 for p in prompts)) == expected["prompt_tokens"]
    cached = [r.cached_tokens for r in records]
    assert (None if None in cached else sum(c or 0 for c in cached)) == expected["cached_tokens"]
    assert sum(r.written_tokens or 0 for r in records) == (expected["written_tokens"] or 0)
    if len(records) == 1:
        assert outcome(records[0]) == expected["outcome"]


def test_bugs_of_provider_formats_all_run() -> None:
    """Only the reports on coding agents' files and on Langfuse's export are not cases of a usage object."""
    left = {bug["id"] for bug in BUGS if not runnable(bug)}
    assert len(BUGS) == 27
    assert left == {
        "tiann/hapi#1389", "getagentseal/codeburn#21", "langfuse/langfuse#10592", "ccusage/ccusage#888",
        "anthropics/claude-code#6805",
    }  # fmt: skip


CHAT: dict[str, Any] = {"prompt_tokens": 2000, "completion_tokens": 5}


@pytest.mark.parametrize(
    ("name", "line", "expected"),
    [
        ("vllm", {"metrics": {"queue_time_ms": 6697.0, "time_to_first_token_ms": 111.0}}, 6.808),
        ("vllm", {"metrics": {"time_to_first_token_ms": 111.0}}, None),
        ("vllm", {"metrics": {"queue_time_ms": 1.0, "time_to_first_token_ms": 2.0}, "ttft_ms": 9}, 0.009),
        ("vllm", {"metrics": {"queue_time_ms": 1.0, "time_to_first_token_ms": 2.0}, "stream": False}, 0.003),
        ("groq", {"usage": {**CHAT, "queue_time": 0.5, "prompt_time": 0.25}}, 0.75),
        ("groq", {"usage": {**CHAT, "prompt_time": "soon"}}, None),
        ("fireworks", {"response_headers": {"fireworks-server-time-to-first-token": "0.176"}}, 0.176),
        ("fireworks", {"perf_metrics": {"server-time-to-first-token": 0.25}, "stream": False}, 0.25),
    ],
)  # fmt: skip
def test_ttft_that_the_server_measured(name: str, line: dict[str, Any], expected: float | None) -> None:
    """The queue is part of it, a client's own time comes first, and the reply need not be streamed."""
    got = record(name, {"usage": CHAT, **line}).ttft_seconds
    assert got == (None if expected is None else pytest.approx(expected))


def test_vllm_duration_is_queue_prefill_and_decode() -> None:
    """The three times that vLLM gives follow each other."""
    times = {"queue_time_ms": 10.0, "time_to_first_token_ms": 20.0, "generation_time_ms": 30.0}
    assert record("vllm", {"usage": CHAT, "metrics": times}).duration_seconds == pytest.approx(0.06)


@pytest.mark.parametrize(
    ("kind", "choices", "expected"),
    [("text_completion", 2, None), ("text_completion", 1, 640), ("chat.completion", 2, 640)],
)
def test_vllm_with_several_prompts_does_not_tell_its_cached_tokens(
    kind: str, choices: int, expected: int | None
) -> None:
    """Real: two prompts of 1,281 tokens in all, 1,248 of them cached, and a usage that says 640."""
    usage = {"prompt_tokens": 1281, "prompt_tokens_details": {"cached_tokens": 640}}
    line = {"object": kind, "choices": [{"index": i} for i in range(choices)], "usage": usage}
    assert record("vllm", line).cached_tokens == expected


@pytest.mark.parametrize(
    ("n", "cached", "expected"),
    [(2, 1900, 950), (1, 1900, None), (3, 1900, None), (None, 1900, None), (2, 900, 900), (2, 3000, None)],
)
def test_sglang_counts_added_up_over_choices(n: int | None, cached: int, expected: int | None) -> None:
    """Undone where the sum exceeds the prompt and n explains it; else the record is refused."""
    counts = {"prompt_tokens": 1000, "cached_tokens": cached}
    parameters = json.dumps({"sampling_params": {"n": n}})
    usage = {"prompt_tokens": 1000, "prompt_tokens_details": {"cached_tokens": cached}}
    event = {"event": "request.finished", "obj": {"sampling_params": {"n": n}}, "out": {"meta_info": counts}}
    lines = {
        "sglang_metrics_file": {"request_parameters": parameters, **counts},
        "sglang_usage": {"usage": usage, "choices": [{}] * (n or 1)},
        "sglang_request_log": event,
    }
    for name, line in lines.items():
        (entry,) = decode(name, [json.dumps(line).encode()])
        if expected is None:
            assert isinstance(entry, RecordError)
            assert entry.reason == "cached_exceeds_prompt"
        else:
            assert isinstance(entry, RequestRecord)
            assert entry.cached_tokens == expected


def test_sglang_request_log() -> None:
    """Bare or behind the server's prefix; receipt of a request is none, its text is not read."""
    finished = {
        "timestamp": "2026-11-29T10:00:01.5", "event": "request.finished", "rid": "r1",
        "obj": {"text": "SECRET", "sampling_params": {"n": 1}},
        "out": {"text": "SECRET", "meta_info": {
            "id": "r1", "finish_reason": {"type": "stop"}, "prompt_tokens": 1200, "cached_tokens": 1152,
            "completion_tokens": 50, "e2e_latency": 0.71}},
    }  # fmt: skip
    received = {"timestamp": "2026-11-29T10:00:00.5", "event": "request.received", "rid": "r1", "obj": {}}
    bare = [json.dumps(line).encode() for line in (received, finished)]
    prefixed = [b"[2026-11-29 10:00:01 TP0] " + line for line in bare]
    text = b"[2026-11-29 10:00:01] Prefill batch, #new-seq: 1, #new-token: 48, #cached-token: 1152"
    for lines in (bare, prefixed):
        decoder, (first, second, third) = auto([*lines, text])
        assert decoder.chosen == "sglang_request_log"
        assert isinstance(first, Skipped)
        assert isinstance(second, RequestRecord)
        assert isinstance(third, Skipped)
        assert first.reason == third.reason == "not_a_request"
        assert second == RequestRecord(
            1200, 1152, None, 50, None, 0.71, 1795946401.5, "sglang", "", "", "ok", "r1"
        )  # fmt: skip
    body = {"text": "SECRET", "meta_info": finished["out"]["meta_info"]}  # type: ignore[index]
    decoder, (entry,) = auto([json.dumps(body).encode()])
    assert decoder.chosen == "sglang_request_log"
    assert isinstance(entry, RequestRecord)
    assert entry[:2] == (1200, 1152)
    finished["out"]["meta_info"]["finish_reason"] = {"type": "abort"}  # type: ignore[index]
    (entry,) = decode("sglang_request_log", [json.dumps(finished).encode()])
    assert isinstance(entry, Skipped)
    assert entry.reason == "aborted"


def test_reasoning_that_comes_on_top() -> None:
    """xAI's models differ in whether completion tokens hold the reasoning; the total tells."""
    usage = {
        "prompt_tokens": 100,
        "completion_tokens": 20,
        "completion_tokens_details": {"reasoning_tokens": 15},
    }
    assert record("xai", {"usage": {**usage, "total_tokens": 135}}).output_tokens == 35
    assert record("xai", {"usage": {**usage, "total_tokens": 120}}).output_tokens == 20


def test_ollama_prompts_that_were_not_counted_are_unknown() -> None:
    """A warm prompt without a count is no miss and no parse failure; a chunk is no request."""
    line = {"model": "m", "created_at": "2026-11-29T10:00:01Z", "done": True, "eval_count": 5}
    entry = record("ollama", line)
    assert (entry.prompt_tokens, outcome(entry), entry.timestamp) == (None, "unknown", 1795946401.0)
    (chunk,) = decode("ollama", [json.dumps({**line, "done": False}).encode()])
    assert isinstance(chunk, Skipped)
    assert chunk.reason == "not_a_request"


def test_what_a_slot_holds_is_no_hit() -> None:
    """llama.cpp's tokens_cached counts what is cached after the request; builds without cache_n."""
    timings = {"prompt_n": 260, "prompt_ms": 310.0, "predicted_n": 2}
    old = {"tokens_evaluated": 960, "tokens_cached": 965, "timings": timings}
    assert record("llamacpp", old)[:2] == (960, 700)
    assert record("llamacpp", {"timings": timings})[:2] == (260, None)
    assert record("llamacpp", {"usage": CHAT})[:2] == (2000, None)


@pytest.mark.parametrize(
    ("details", "expected"),
    [
        (None, {"5m": 3000}), ([], {"5m": 3000}), ([{"ttl": "1h", "inputTokens": 9000}], {"5m": 3000}),
        ([{"ttl": "1h", "inputTokens": 1000}], {"5m": 2000, "1h": 1000}),
        ([{"ttl": "1h", "inputTokens": 3000}], {"1h": 3000}),
        ([{"ttl": "2d", "inputTokens": 3000}], {"5m": 3000}), ("none", {"5m": 3000}),
    ],
)  # fmt: skip
def test_bedrock_writes_by_ttl(details: Any, expected: dict[str, int]) -> None:
    """The parts always add up to what was written."""
    usage = {
        "inputTokens": 8,
        "cacheReadInputTokens": 10,
        "cacheWriteInputTokens": 3000,
        "cacheDetails": details,
    }
    entry = record("bedrock_converse", {"usage": usage})
    assert entry[:3] == (3018, 10, 3000)
    assert dict(entry.written_by_ttl) == expected


def test_bedrock_spelling_of_other_sdks() -> None:
    """Cache fields with Count at the end mean the same."""
    usage = {"inputTokens": 4, "cacheReadInputTokenCount": 4096, "cacheWriteInputTokenCount": 100}
    assert record("bedrock_converse", {"usage": usage})[:3] == (4200, 4096, 100)


def test_inclusive_totals_are_never_read_as_anthropics() -> None:
    """`input_tokens` with details beside it is the whole prompt: Anthropic's formats refuse it."""
    for details in ("input_tokens_details", "prompt_tokens_details"):
        usage = {"input_tokens": 1605, details: {"cached_tokens": 1591}, "output_tokens": 1}
        (entry,) = decode("anthropic_messages", [json.dumps({"usage": usage}).encode()])
        assert isinstance(entry, RecordError)


@pytest.mark.parametrize(
    ("provider", "model", "minimum"),
    [
        ("gemini", "gemini-2.5-flash", 2048), ("vertex_ai", "google/gemini-2.5-pro", 2048),
        ("gemini", "gemini-3-flash-preview", 1024), ("gemini", "gemini-3.8-flash", 4096),
        ("gemini", "gemini-3.1-pro-preview", 4096), ("gemini", "", 1024), ("gemini", "gemini-1.5-pro", 1024),
        ("bedrock", "us.amazon.nova-lite-v1:0", 1000), ("bedrock", "meta.llama3-70b-instruct-v1:0", 0),
        ("dashscope", "qwen3-max", 1024), ("groq", "openai/gpt-oss-120b", 0), ("xai", "grok-4.7", 0),
    ],
)  # fmt: skip
def test_minimums(provider: str, model: str, minimum: int) -> None:
    """By the model where its name tells, else by the provider; 0 where nobody states one."""
    assert caching(provider, model, UNKNOWN_CONTRACT).minimum_tokens == minimum


NOT_AN_ENTRY_A_LINE = {"docker_json", "k8s_cri", "otlp_traces"}
"""Wrappers whose lines may be parts of one, and batches of spans."""


@pytest.mark.parametrize("how", ["named", "auto"])
@pytest.mark.parametrize("name", [name for name in OWN if name != "anthropic_stream"])
@settings(max_examples=10)
@given(data=st.data())
def test_every_entry_is_counted_once(name: str, how: str, data: st.DataObject) -> None:
    """However a sample is damaged: outcomes + sums + failed + skipped + parse failures = entries."""
    lines = [data.draw(mutated(line)) for line in sample_lines(name) for _ in range(2)]
    entries = decode("auto" if how == "auto" else name, lines)
    if name not in NOT_AN_ENTRY_A_LINE and not any(line.lstrip().startswith(b"[") for line in lines):
        assert len(entries) == len(lines)
    ledger = Ledger("s", FullHit())
    ledger.add(entries)
    health = ledger.health
    tallies = ledger.tallies.values()
    requests = sum(sum(t.outcomes.values()) + sum(t.errors.values()) + t.aggregates for t in tallies)
    assert requests + sum(health.skipped.values()) + sum(health.failures.values()) == len(entries)
    known = [
        e
        for e in entries
        if isinstance(e, Aggregate) or (isinstance(e, RequestRecord) and outcome(e) != "unknown")
    ]
    assert sum(tally.prompt_tokens for tally in tallies) == sum(e.prompt_tokens or 0 for e in known)
    assert sum(tally.cached_tokens for tally in tallies) == sum(e.cached_tokens or 0 for e in known)


@st.composite
def mutated(draw: st.DrawFn, line: bytes) -> bytes:
    """The line with a few bytes cut out or replaced."""
    start = draw(st.integers(0, len(line)))
    end = draw(st.integers(start, min(len(line), start + 8)))
    middle = draw(st.sampled_from((b"", b"0", b"-", b"null", b'"', b"{", b"1e9", b"\xff", b"true", b"[]")))
    return line[:start] + middle + line[end:]


def recorded(name: str) -> list[bytes]:
    return (LOGS / "recorded" / f"{name}.jsonl").read_bytes().splitlines()


def test_ttft_of_a_real_vllm_under_pressure() -> None:
    """72 requests that waited for blocks: with the queue it is what their clients saw, without it 4 %."""
    lines = recorded("vllm-0.32.0-hostile")
    decoder, entries = auto(lines)
    assert decoder.chosen == "vllm"
    ttfts = [entry.ttft_seconds or 0.0 for entry in entries if isinstance(entry, RequestRecord)]
    seen = [json.loads(line)["client_ttft_s"] for line in lines]
    assert len(ttfts) == len(seen) == 72
    assert all(0 <= client - server < 1.1 for client, server in zip(seen, ttfts, strict=True))
    assert sum(ttfts) / sum(seen) == pytest.approx(0.969, abs=0.001)


def test_metrics_file_of_a_real_sglang_with_retractions() -> None:
    """162 requests, 93 of them retracted: token counts as the engine's own counters had them."""
    lines = recorded("sglang-0.5.23-c")
    assert sum(json.loads(line)["num_retractions"] > 0 for line in lines) == 93
    entries = decode("sglang_metrics_file", lines, DecoderOptions(model_name="tiny"))
    records = [entry for entry in entries if isinstance(entry, RequestRecord)]
    assert len(records) == 162
    assert sum(r.prompt_tokens or 0 for r in records) == 34190
    assert sum(r.cached_tokens or 0 for r in records) == 24403
    assert {r.model_name for r in records} == {"tiny"}
    assert all(r.ttft_seconds is not None for r in records)


def test_counts_that_a_real_sglang_inflated() -> None:
    """0.5.4 added cached tokens up over retractions: what exceeds the prompt is refused, not clipped."""
    entries = decode("sglang_usage", recorded("sglang-0.5.4-a"))
    assert [getattr(entry, "reason", "") for entry in entries] == ["cached_exceeds_prompt"] * 3 + [""] * 5


def test_why_the_cache_was_missed() -> None:
    """Bodies and streams; a comparison that has not ended says nothing, an unknown reason is `other`."""
    usage = {"input_tokens": 12, "cache_read_input_tokens": 8192, "output_tokens": 1}
    for found, expected in (
        ({"type": "tools_changed", "cache_missed_input_tokens": 18500}, ("tools_changed", 18500)),
        ({"type": "previous_message_not_found"}, ("previous_message_not_found", 0)),
        ({"type": "new_reason"}, ("other", 0)), (None, None), ("text", None), ({"type": None}, None),
    ):  # fmt: skip
        message = {"id": "m", "usage": usage, "diagnostics": {"cache_miss_reason": found}}
        assert record("anthropic_messages", message).diagnosis == expected
        events = [{"type": "message_start", "message": message}, {"type": "message_stop"}]
        (entry,) = decode("anthropic_stream", [json.dumps(event).encode() for event in events])
        assert isinstance(entry, RequestRecord)
        assert entry.diagnosis == expected
    assert record("anthropic_messages", {"usage": usage, "diagnostics": None}).diagnosis is None


def test_diagnosed_misses_are_counted_by_reason() -> None:
    """The recorded sample has one; it is in the page with its tokens."""
    ledger = Ledger("s", FullHit())
    ledger.add(decode("anthropic_messages", sample_lines("anthropic_messages")))
    page = {(sample.metric, sample.labels[-1]): sample.value for sample in ledger.samples()}
    assert page[REQUEST_DIAGNOSED_MISSES, "tools_changed"] == 1
    assert page[REQUEST_DIAGNOSED_TOKENS, "tools_changed"] == 18500
