"""What providers' newer fields, other endpoints and streams look like in logs, beside the samples."""

import json
from typing import Any

import pytest

from kvcache_exporter.model import RequestRecord, Skipped
from kvcache_exporter.requests.formats import get_format
from kvcache_exporter.requests.formats.base import DecoderOptions
from test_formats import decode, outcome, record

INSIDE = "not_a_request"


def counts(entry: RequestRecord) -> tuple[int | None, int | None, int | None, int | None]:
    return entry.prompt_tokens, entry.cached_tokens, entry.written_tokens, entry.output_tokens


def realtime(status: str = "completed", **usage: Any) -> dict[str, Any]:
    usage = {"input_tokens": 1000, "output_tokens": 100, **usage}
    return {
        "type": "response.done",
        "response": {"object": "realtime.response", "id": "r1", "status": status, "usage": usage},
    }


@pytest.mark.parametrize("name", ["openai_responses", "auto"])
def test_realtime_spells_its_details_in_the_singular(name: str) -> None:
    entry = record(name, realtime(input_token_details={"cached_tokens": 640, "audio_tokens": 0}))
    assert counts(entry) == (1000, 640, 0, 100)
    assert (entry.request_id, entry.tier) == ("r1", "")


def test_sound_in_or_out_is_billed_apart() -> None:
    found: tuple[dict[str, Any], ...] = (
        {"input_token_details": {"cached_tokens": 0, "audio_tokens": 9}},
        {"input_token_details": {"cached_tokens": 0}, "output_token_details": {"audio_tokens": 9}},
    )
    for details in found:
        assert record("openai_responses", realtime(**details)).tier == "audio"
    for spelling in ("prompt_tokens_details", "completion_tokens_details"):
        usage = {"prompt_tokens": 9, "completion_tokens": 2, spelling: {"audio_tokens": 4}}
        assert record("openai_chat", {"usage": usage}).tier == "audio"


def test_a_reply_that_somebody_talked_over_is_a_reply() -> None:
    """Realtime cancels what it says when the user speaks; until then it was computed, cached and billed."""
    entry = record("openai_responses", realtime("cancelled", input_token_details={"cached_tokens": 640}))
    assert (entry.cached_tokens, entry.status) == (640, "interrupted")
    (failed,) = decode("openai_responses", [json.dumps(realtime("failed")).encode()])
    assert isinstance(failed, Skipped)


@pytest.mark.parametrize("name", ["openai_chat", "auto"])
def test_embeddings_are_no_requests(name: str) -> None:
    body = {"object": "list", "model": "text-embedding-3-small", "usage": {"prompt_tokens": 8}}
    assert [e.reason for e in decode(name, [json.dumps(body).encode()]) if isinstance(e, Skipped)] == [INSIDE]


@pytest.mark.parametrize(("call", "kept"), [
    ("acompletion", True), ("anthropic_messages", True), ("pass_through_endpoint", True), (None, True),
    ("aembedding", False), ("arerank", False), ("aimage_generation", False), ("atranscription", False),
])  # fmt: skip
def test_litellm_calls_that_generate_no_text_are_no_requests(call: str | None, kept: bool) -> None:
    usage = {"prompt_tokens": 2000, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 1024}}
    line = {"startTime": 1.0, "endTime": 2.0, "status": "success", "call_type": call,
            "metadata": {"usage_object": usage}}  # fmt: skip
    (entry,) = decode("litellm_slp", [json.dumps(line).encode()])
    assert isinstance(entry, RequestRecord) == kept
    failed = {**line, "status": "failure", "error_str": "RateLimitError"}
    assert [getattr(e, "reason", "") for e in decode("litellm_slp", [json.dumps(failed).encode()])] == [
        "rate_limited"
    ]


def test_a_gateways_embeddings_are_told_by_their_model_and_that_they_generate_nothing() -> None:
    def kong(model: str, output: int) -> bytes:
        usage = {"prompt_tokens": 2000, "completion_tokens": output}
        proxy = {"meta": {"provider_name": "openai", "request_model": model}, "usage": usage}
        return json.dumps({"started_at": 1795946400000, "response": {"status": 200}, "latencies": {},
                           "ai": {"proxy": proxy}}).encode()  # fmt: skip

    lines = [kong("text-embedding-3-small", 0), kong("bge-Reranker", 0), kong("gpt-embed-chat", 7)]
    assert [type(entry) for entry in decode("kong", lines)] == [Skipped, Skipped, RequestRecord]


@pytest.mark.parametrize(("split", "written", "expected"), [
    ({"ephemeral_1h_input_tokens": 200, "ephemeral_5m_input_tokens": 300}, None, {"5m": 300, "1h": 200}),
    ({"ephemeral_1h_input_tokens": 200}, 500, {"5m": 300, "1h": 200}),
    ({"ephemeral_1h_input_tokens": 900}, 500, {"1h": 500}),
    (None, 500, {"5m": 500}),
])  # fmt: skip
def test_every_written_token_of_claude_has_a_time_to_live(
    split: Any, written: int | None, expected: dict[str, int]
) -> None:
    usage = {"input_tokens": 100, "cache_creation_input_tokens": written, "cache_creation": split}
    entry = record("anthropic_messages", {"usage": usage})
    assert dict(entry.written_by_ttl) == expected
    assert (entry.prompt_tokens, entry.written_tokens) == (600, 500)


COMPACTION = {"type": "compaction", "input_tokens": 150_000, "output_tokens": 3000}
MESSAGE = {"type": "message", "input_tokens": 100, "cache_read_input_tokens": 2000, "output_tokens": 10}


@pytest.mark.parametrize(("usage", "tier"), [
    ({"service_tier": "standard", "speed": "standard", "inference_geo": "not_available"}, ""),
    ({"service_tier": "batch"}, "batch"),
    ({"speed": "fast", "inference_geo": "us"}, "fast+us"),
    ({"iterations": [MESSAGE, MESSAGE]}, ""),
    ({"iterations": [COMPACTION, MESSAGE]}, "compaction"),
    ({"iterations": [7, {"type": 7}]}, "7"),
    ({"service_tier": ["batch"], "speed": {}}, ""),
])  # fmt: skip
def test_what_anthropic_bills_apart_is_told_and_in_no_count(usage: dict[str, Any], tier: str) -> None:
    """A compaction's tokens are in none of the message's own counts."""
    entry = record("anthropic_messages", {"usage": {**MESSAGE, **usage}})
    assert counts(entry) == (2100, 2000, 0, 10)
    assert entry.tier == tier
    lines = [{"usage": {**MESSAGE, **usage}}, {"usage": MESSAGE}]
    (columns,) = _columns("anthropic_messages", lines)
    assert list(columns.tier) == ([tier, ""] if tier else [])


def _columns(name: str, lines: list[dict[str, Any]]) -> list[Any]:
    return get_format(name).decoder(DecoderOptions()).columns([json.dumps(line).encode() for line in lines])


@pytest.mark.parametrize(("name", "line", "tier"), [
    ("openai_chat", {"service_tier": "flex", "usage": {"prompt_tokens": 9}}, "flex"),
    ("openai_chat", {"service_tier": "default", "usage": {"prompt_tokens": 9}}, ""),
    ("azure_openai", {"service_tier": "priority", "usage": {"prompt_tokens": 9}}, "priority"),
    ("openai_responses", {"type": "response.completed",
                          "response": {"service_tier": "Flex", "usage": {"input_tokens": 9}}}, "flex"),
    ("groq", {"service_tier": "on_demand", "usage": {"prompt_tokens": 9}}, ""),
    ("gemini", {"usageMetadata": {"promptTokenCount": 9, "trafficType": "ON_DEMAND"}}, ""),
    ("gemini", {"usageMetadata": {"promptTokenCount": 9, "trafficType": "ON_DEMAND_FLEX"}}, "flex"),
    ("gemini", {"usageMetadata": {"promptTokenCount": 9, "trafficType": "PROVISIONED_THROUGHPUT"}},
     "provisioned_throughput"),
    ("gemini", {"usageMetadata": {"promptTokenCount": 9, "promptTokensDetails": [
        {"modality": "TEXT"}, {"modality": "AUDIO"}, "?"]}}, "audio"),
    ("bedrock_converse", {"usage": {"inputTokens": 9}, "serviceTier": {"type": "flex"},
                          "performanceConfig": {"latency": "optimized"}}, "flex+optimized"),
    ("dashscope", {"usage": {"input_tokens": 9, "prompt_tokens_details": {"cache_type": "ephemeral"}}},
     "explicit_cache"),
    ("litellm_slp", {"startTime": 1.0, "model": "m", "prompt_tokens": 9, "cost_breakdown": {
        "service_tier": "priority", "data_residency": "eu", "vertex_location": "us-east5"}},
     "priority+region_eu+regional"),
    ("litellm_slp", {"startTime": 1.0, "metadata": {"usage_object": {"prompt_tokens": 9, "speed": "fast"}},
                     "cost_breakdown": {"vertex_location": "global"}}, "fast"),
])  # fmt: skip
def test_service_tiers(name: str, line: dict[str, Any], tier: str) -> None:
    assert record(name, line).tier == tier


def test_a_span_tells_its_tier() -> None:
    found = {"gen_ai.usage.input_tokens": {"intValue": "9"},
             "openai.response.service_tier": {"stringValue": "flex"}}  # fmt: skip
    attributes = [{"key": key, "value": value} for key, value in found.items()]
    line = {"resourceSpans": [{"scopeSpans": [{"spans": [{"spanId": "a", "attributes": attributes}]}]}]}
    assert record("otlp_traces", line).tier == "flex"


def test_a_custom_log_says_where_its_tier_stands() -> None:
    options = DecoderOptions(fields={"prompt_tokens": "p", "service_tier": "billing.tier"})
    assert record("custom", {"p": 9, "billing": {"tier": "Batch"}}, options).tier == "batch"
    options = DecoderOptions(fields={"service_tier": "tier"})
    assert record("envoy_ai_gateway", {"llm_input_token": 9, "tier": "flex"}, options).tier == "flex"


METRICS = {
    "inputTokenCount": 100, "outputTokenCount": 20, "invocationLatency": 900, "firstByteLatency": 300,
    "cacheReadInputTokenCount": 2000, "cacheWriteInputTokenCount": 50,
}  # fmt: skip
BEDROCK = "amazon-bedrock-invocationMetrics"


@pytest.mark.parametrize("name", ["bedrock_converse", "auto"])
def test_the_last_event_of_a_bedrock_stream_is_a_request(name: str) -> None:
    entry = record(name, {BEDROCK: METRICS})
    assert counts(entry) == (2150, 2000, 50, 20)
    assert (entry.ttft_seconds, entry.duration_seconds) == (0.3, 0.9)


def test_bedrocks_log_has_cache_counts_in_the_last_event_too() -> None:
    line = {"schemaType": "ModelInvocationLog", "modelId": "anthropic.claude-opus-5",
            "input": {"inputTokenCount": 100},
            "output": {"outputTokenCount": 20, "outputBodyJson": [{}, {BEDROCK: METRICS}]}}  # fmt: skip
    entry = record("bedrock_invocation_log", line)
    assert counts(entry) == (2150, 2000, 50, 20)
    assert entry.ttft_seconds == 0.3


def test_openais_models_count_in_bedrocks_log_as_in_converse() -> None:
    line = {"schemaType": "ModelInvocationLog", "modelId": "openai.gpt-5.6", "output": {},
            "input": {"inputTokenCount": 2100, "cacheReadInputTokenCount": 2000}}  # fmt: skip
    assert record("bedrock_invocation_log", line).prompt_tokens == 2100


def test_a_stream_of_claude_by_bedrock_tells_its_ttft_at_the_very_end() -> None:
    start = {"type": "message_start", "message": {"id": "msg_bdrk_1", "usage": {"input_tokens": 100}}}
    stop = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 20}}
    end = {"type": "message_stop", BEDROCK: METRICS}
    lines = [json.dumps(line).encode() for line in (start, stop, end)]
    (entry,) = decode("anthropic_stream", lines)
    assert isinstance(entry, RequestRecord)
    assert (entry.ttft_seconds, entry.duration_seconds, entry.status) == (0.3, 0.9, "ok")
    (entry,) = decode("anthropic_stream", lines[:2])
    assert isinstance(entry, RequestRecord)
    assert (entry.ttft_seconds, entry.status) == (None, "ok"), "its last event may not have been logged"


@pytest.mark.parametrize("as_array", [True, False])
@pytest.mark.parametrize("name", ["gemini", "auto"])
def test_of_a_gemini_stream_only_the_last_event_counts(name: str, as_array: bool) -> None:
    """Each event repeats the prompt's count."""
    events: list[dict[str, Any]] = [
        {"candidates": [{"content": {"parts": [{"text": "a"}]}}],
         "usageMetadata": {"promptTokenCount": 2000, "candidatesTokenCount": n}, "responseId": "q"}
        for n in (3, 6, 9)
    ]  # fmt: skip
    events[-1]["candidates"][0]["finishReason"] = "STOP"
    lines = [json.dumps(events).encode()] if as_array else [json.dumps(e).encode() for e in events]
    entries = decode(name, lines)
    (entry,) = [e for e in entries if isinstance(e, RequestRecord)]
    assert counts(entry) == (2000, 0, None, 9)
    assert [e.reason for e in entries if isinstance(e, Skipped)] == [INSIDE] * 2


@pytest.mark.parametrize("candidates", [None, 7, [], ["?"], [{}], [{"finishReason": "STOP"}]])
def test_a_gemini_body_without_text_is_no_event(candidates: Any) -> None:
    line = {"candidates": candidates, "usageMetadata": {"promptTokenCount": 2000}}
    assert record("gemini", line).prompt_tokens == 2000


@pytest.mark.parametrize("name", ["groq", "auto"])
def test_groqs_streams_end_with_their_usage(name: str) -> None:
    usage = {"prompt_tokens": 2000, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 1024},
             "queue_time": 0.25, "prompt_time": 0.25, "total_time": 0.5}  # fmt: skip
    line = {"object": "chat.completion.chunk", "x_groq": {"id": "q", "usage": usage}}
    entry = record(name, line)
    assert counts(entry) == (2000, 1024, None, 5)
    assert (entry.ttft_seconds, entry.duration_seconds) == (0.5, 0.75)


@pytest.mark.parametrize("name", ["fireworks", "auto"])
@pytest.mark.parametrize("spell", [str, str.title])
def test_fireworks_headers_tell_what_a_stream_does_not(name: str, spell: Any) -> None:
    told = {"fireworks-prompt-tokens": "2000", "fireworks-cached-prompt-tokens": "1500",
            "fireworks-server-time-to-first-token": "0.125", "content-type": "text/event-stream"}  # fmt: skip
    headers = {spell(key): value for key, value in told.items()}
    entry = record(name, {"provider": "fireworks", "status": 200, "usage": None, "response_headers": headers})
    assert counts(entry) == (2000, 1500, None, None)
    assert entry.ttft_seconds == 0.125


def test_trtllms_context_worker_knows_what_was_cached() -> None:
    """The generating worker got the whole prompt from the other one, which is no hit."""
    usage = {"prompt_tokens": 2000, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 1999}}
    context = {"prompt_tokens": 2000, "prompt_tokens_details": {"cached_tokens": 64}}
    assert record("trtllm", {"usage": usage, "ctx_usage": context}).cached_tokens == 64
    context = {"prompt_tokens": 2000, "prompt_tokens_details": None}
    assert outcome(record("trtllm", {"usage": usage, "ctx_usage": context})) == "unknown"


def test_dashscopes_responses_endpoint() -> None:
    usage = {"input_tokens": 2000, "output_tokens": 5, "input_tokens_details": {"cached_tokens": 1500}}
    assert counts(record("dashscope", {"provider": "dashscope", "usage": usage})) == (2000, 1500, 0, 5)


def codex(kind: str, **payload: Any) -> bytes:
    return json.dumps({"timestamp": "2026-11-29T10:00:00Z", "type": kind, "payload": payload}).encode()


def codex_usage(prompt: int) -> dict[str, int]:
    return {"input_tokens": prompt, "cached_input_tokens": 1024, "output_tokens": 5}


def codex_count(prompt: int, total: int) -> bytes:
    info = {"last_token_usage": codex_usage(prompt), "total_token_usage": {"input_tokens": total}}
    return codex("event_msg", type="token_count", info=info)


def codex_response(prompt: int, key: str) -> bytes:
    return codex("token_usage_record", response_id=key, usage=codex_usage(prompt))


@pytest.mark.parametrize("count_first", [True, False])
@pytest.mark.parametrize("name", ["codex_rollout", "auto"])
def test_codex_counts_a_response_once_in_whichever_way_it_is_written(name: str, count_first: bool) -> None:
    """Newer versions write a record for each response beside the token count of earlier ones."""
    pairs = [[codex_count(p, t), codex_response(p, f"r{p}")] for p, t in ((2000, 3500), (3000, 6500))]
    lines = [line for pair in pairs for line in (pair if count_first else pair[::-1])]
    first = codex("turn_context", model="gpt-5.6")
    entries = decode(name, [first, codex_count(1500, 1500), *lines, codex_response(3000, "r3000")])
    records = [e for e in entries if isinstance(e, RequestRecord)]
    assert [e.prompt_tokens for e in records] == [1500, 2000, 3000]
    assert {e.model_name for e in records} == {"gpt-5.6"}
    assert [e.reason for e in entries if isinstance(e, Skipped)] == [INSIDE, *["duplicate"] * 3]


@pytest.mark.parametrize(("granule", "expected"), [(0, "partial"), (256, "full")])
def test_an_engine_with_larger_blocks(granule: int, expected: str) -> None:
    """With blocks of 256 a prompt of 500 cannot have more than 256 cached."""
    usage = {"prompt_tokens": 500, "prompt_tokens_details": {"cached_tokens": 256}}
    assert outcome(record("vllm", {"usage": usage}, DecoderOptions(granule=granule))) == expected
    short = {"prompt_tokens": 200, "prompt_tokens_details": {"cached_tokens": 0}}
    found = outcome(record("vllm", {"usage": short}, DecoderOptions(granule=granule)))
    assert found == ("uncacheable" if granule else "miss")


@pytest.mark.parametrize(("provider", "cached"), [("hosted_vllm", None), ("openai", 1999)])
def test_a_decode_worker_behind_litellm_claims_all_but_one(provider: str, cached: int | None) -> None:
    usage = {"prompt_tokens": 2000, "prompt_tokens_details": {"cached_tokens": 1999}}
    line = {"startTime": 1.0, "custom_llm_provider": provider, "metadata": {"usage_object": usage}}
    assert record("litellm_slp", line).cached_tokens == cached


SECRET = "the patient said"


@pytest.mark.parametrize("name", ["anthropic_stream", "claude_code"])
def test_what_waits_in_the_state_file_holds_no_text(name: str) -> None:
    """Fields that are read without a type may hold anything; of it only short words are kept."""
    text = {"deep": [SECRET * 100]}
    usage = {**MESSAGE, "service_tier": text, "speed": "x" * 5000, "inference_geo": [SECRET],
             "iterations": [{"type": text}, SECRET, {"type": "compaction", "x": SECRET}]}  # fmt: skip
    lines = {
        "anthropic_stream": {"type": "message_start", "message": {"id": "m", "usage": usage}},
        "claude_code": {"type": "assistant", "sessionId": "s", "message": {"id": "m", "usage": usage}},
    }
    decoder = get_format(name).decoder(DecoderOptions())
    assert decoder.decode([json.dumps(lines[name]).encode()]) == []
    saved = decoder.snapshot()
    assert len(saved) < 2000
    assert SECRET.encode() not in saved
    again = get_format(name).decoder(DecoderOptions())
    again.restore(saved)
    (entry,) = again.flush()
    assert isinstance(entry, RequestRecord)
    assert counts(entry) == (2100, 2000, 0, 10)
    assert "compaction" in entry.tier
