"""Logs of gateways, tracers and shippers: who includes what, what is no request, and what is only a sum."""

import json
from pathlib import Path
from typing import Any

import pytest

from kvcache_exporter import catalogue as c
from kvcache_exporter.cli import main
from kvcache_exporter.errors import RecordError
from kvcache_exporter.model import Aggregate, RequestRecord, Sample, Skipped
from kvcache_exporter.requests.formats import FORMATS, get_format
from kvcache_exporter.requests.formats.auto import AutoDecoder
from kvcache_exporter.requests.formats.base import DecoderOptions, Entry
from kvcache_exporter.requests.formats.spans import Span, SpanReader
from kvcache_exporter.requests.framing import Framer
from kvcache_exporter.requests.ledger import Ledger
from kvcache_exporter.requests.outcome import FullHit
from test_formats import INSIDE, LOGS, decode, outcome, reason, record, sample_lines


def skipped(name: str, line: dict[str, Any]) -> str:
    (entry,) = decode(name, [json.dumps(line).encode()])
    assert isinstance(entry, Skipped), entry
    return entry.reason


def counts(entry: RequestRecord) -> tuple[int | None, int | None, int | None, int | None]:
    return entry.prompt_tokens, entry.cached_tokens, entry.written_tokens, entry.output_tokens


# Which format it is.
FAMILIES = {sample: {sample, INSIDE.get(sample, sample), ""} for sample in
            (path.name.split(".")[0] for path in LOGS.glob("*.expected.jsonl"))}  # fmt: skip
"""A sample's own name, that of what it carries, or none: lines that tell nothing choose nothing."""


@pytest.mark.parametrize("sample", sorted(FAMILIES))
def test_no_line_is_taken_for_another_format(sample: str) -> None:
    """Wherever in a file reading begins, `auto` takes its format or waits for a line that tells."""
    chosen = set()
    for line in Framer().feed(sample_lines(sample)):
        decoder = get_format("auto").decoder(DecoderOptions())
        assert isinstance(decoder, AutoDecoder)
        decoder.decode([line])
        chosen.add(decoder.chosen)
    assert chosen <= FAMILIES[sample]
    assert chosen - {""}


def test_only_one_format_of_this_kind_recognises_a_sample() -> None:
    """Formats with keys of their own do not depend on the order in which they are asked."""
    own = ("aggregated_usage_apis", "apisix_nginx", "bedrock_invocation_log", "claude_code", "cloudflare_aig",
           "codex_rollout", "dynamo_agent_trace", "envoy_ai_gateway", "helicone", "kong", "langfuse",
           "otlp_traces")  # fmt: skip
    for sample in own:
        for line in sample_lines(sample):
            takers = {known.name for known in FORMATS if known.recognises(json.loads(line))}
            assert takers <= {sample}


@pytest.mark.parametrize("name", ["docker_json", "k8s_cri", "fluentbit_vector"])
def test_a_wrapped_record_is_the_bare_one(name: str) -> None:
    """A wrapper changes nothing in what it carries, written tokens included: they are 0 in both."""
    (bare, *_) = decode("openai_chat", sample_lines("openai_chat"))
    assert isinstance(bare, RequestRecord)
    found = [entry for entry in decode(name, sample_lines(name)) if isinstance(entry, RequestRecord)]
    assert set(found) == {bare}
    assert bare.written_tokens == 0


def test_shippers_may_name_the_group() -> None:
    """A path that is not in the record is looked up in what the shipper wrapped around it."""
    options = DecoderOptions(group_by="kubernetes.namespace_name")
    first, *_ = decode("fluentbit_vector", sample_lines("fluentbit_vector"), options)
    assert isinstance(first, RequestRecord)
    assert first.group == "ai"


def test_text_of_a_container_is_no_failure() -> None:
    """Its log is read for records; only what starts like one and is none counts as broken."""
    kinds = [getattr(e, "reason", "") for e in decode("k8s_cri", [b"Listening on :80", b'{"usage": '])]
    assert kinds == ["not_a_request", "not_json"]


# Who includes what.
@pytest.mark.parametrize(
    ("provider", "total", "expected"),
    [("ANTHROPIC", 1110, 1100), ("OPENAI", 1110, 1100), ("ANTHROPIC", 610, 600), ("OPENAI", 610, 600),
     ("ANTHROPIC", None, 1100), ("OPENAI", None, 600), ("OPENAI", 7, 600)],
)  # fmt: skip
def test_helicone_is_told_by_its_total(provider: str, total: int | None, expected: int) -> None:
    """600 prompt, 500 cached: the total says whether the 600 hold the 500, else the provider."""
    line = {
        "request_created_at": "2026-11-29T10:00:01Z", "provider": provider, "prompt_tokens": 600,
        "prompt_cache_read_tokens": 500, "completion_tokens": 10, "total_tokens": total,
    }  # fmt: skip
    assert counts(record("helicone", line)) == (expected, 500, None, 10)


def test_helicone_responses_served_again_and_failures() -> None:
    """A reply out of Helicone's own cache reached no model; negative statuses are its own."""
    line = {"request_created_at": "2026-11-29T10:00:01Z", "prompt_tokens": 600, "response_status": 200}
    again = {**line, "cache_reference_id": "0f0e0000-0000-4000-8000-000000000001"}
    assert skipped("helicone", again) == "response_cache"
    fresh = {**line, "cache_reference_id": "00000000-0000-0000-0000-000000000000"}
    assert record("helicone", fresh).prompt_tokens == 600
    assert skipped("helicone", {**line, "response_status": -3}) == "aborted"


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        ({"input": 17900, "input_cached_tokens": 17800, "output": 10, "total": 17910},
         (17900, 17800, None, 10)),
        ({"input": 100, "input_cached_tokens": 17800, "output": 10, "total": 17910},
         (17900, 17800, None, 10)),
        ({"input": 100, "input_cached_tokens": 900, "output": 10}, (1000, 900, None, 10)),
        ({"input": 100, "input_cache_read": 900, "cache_read_input_tokens": 900, "output": 1},
         (1000, 900, None, 1)),
        ({"input": 100, "input_audio_tokens": 50, "input_cached_tokens": 850, "output": 5,
          "output_reasoning_tokens": 7, "total": 1012}, (1000, 850, None, 12)),
        ({"input": 100, "input_cache_creation_5m": 300, "input_cache_creation_1h": 600, "output": 1},
         (1000, None, 900, 1)),
        ({"input": 2000, "output": 1}, (2000, None, None, 1)),
    ],
)  # fmt: skip
def test_langfuse_is_told_by_its_total(usage: dict[str, int], expected: tuple[int | None, ...]) -> None:
    """langfuse 10592: total 17,910 says that input 17,900 holds the 17,800; else keys are disjoint."""
    assert counts(record("langfuse", {"usageDetails": usage})) == expected


def test_langfuse_skips_what_is_no_generation() -> None:
    """Spans, agents and embeddings are no model call of this kind; errors are failures."""
    for kind in ("SPAN", "AGENT", "EMBEDDING", "EVENT"):
        assert skipped("langfuse", {"type": kind, "usageDetails": {"input": 5}}) == "not_a_request"
    error = {"type": "GENERATION", "level": "ERROR", "statusMessage": "429 Too Many Requests"}
    assert skipped("langfuse", error) == "rate_limited"


def test_bedrock_takes_what_the_log_does_not_say_from_the_body() -> None:
    """Older entries have cache counts only in the response; the split by TTL stands only there."""
    usage = {"cacheReadInputTokens": 500, "cacheWriteInputTokens": 400,
             "cacheDetails": [{"ttl": "1h", "inputTokens": 300},
                              {"ttl": "5m", "inputTokens": 100}]}  # fmt: skip
    line: dict[str, Any] = {
        "schemaType": "ModelInvocationLog", "modelId": "m", "operation": "Converse",
        "input": {"inputTokenCount": 100}, "output": {"outputBodyJson": {"usage": usage}},
    }  # fmt: skip
    entry = record("bedrock_invocation_log", line)
    assert counts(entry) == (1000, 500, 400, None)
    assert entry.written_by_ttl == (("1h", 300), ("5m", 100))
    embedding = {**line, "modelId": "amazon.titan-embed-text-v2:0"}
    assert skipped("bedrock_invocation_log", embedding) == "not_a_request"


def test_apisix_and_nginx_times() -> None:
    """Who waits for the whole reply sees no first token; NGINX shows that by equal times of its upstream."""
    chat = {"llm_prompt_tokens": 9, "llm_time_to_first_token": 900, "request_time": "0.9", "status": 200}
    assert record("apisix_nginx", {**chat, "request_type": "ai_stream"}).ttft_seconds == 0.9
    assert record("apisix_nginx", {**chat, "request_type": "ai_chat"}).ttft_seconds is None
    plain = {"usage_prompt": "9", "request_time": 1.5, "upstream_header_time": "1.4", "status": 200}
    assert record("apisix_nginx", {**plain, "upstream_response_time": "1.4"}).ttft_seconds is None
    assert record("apisix_nginx", {**plain, "upstream_response_time": "1.5"}).ttft_seconds == 1.4
    page = {"status": 200, "request_time": 0.1, "usage_prompt": "", "uri": "/index.html"}
    for unset in ("", "-", None, 0):
        assert skipped("apisix_nginx", {**page, "usage_prompt": unset}) == "not_a_request"
    assert reason("apisix_nginx", json.dumps({**page, "usage_prompt": "many"}).encode()) == "invalid"


def test_kong_batches_and_replies_that_were_not_streamed() -> None:
    """An array gives its entries one by one; time_to_first_token of a whole reply is its end."""
    lines = sample_lines("kong")
    batch = decode("kong", [b"[" + b",".join(lines) + b"]"])
    assert [type(entry) for entry in batch] == [RequestRecord, Skipped]
    entry = json.loads(lines[0])
    entry["ai"]["proxy"]["meta"]["request_mode"] = "oneshot"
    assert record("kong", entry).ttft_seconds is None
    del entry["ai"]
    assert skipped("kong", entry) == "not_a_request"


def test_envoy_takes_the_keys_of_the_operator() -> None:
    """`fields` comes before the usual keys; a key that is not in the table keeps them."""
    line = {"code": 200, "in": "5000", "hit": "4900", "llm_output_token": "7", "took": "0.9", "m": "gpt"}
    fields = {"prompt_tokens": "in", "cached_tokens": "hit", "status": "code", "duration_seconds": "took",
              "model_name": "m"}  # fmt: skip
    entry = record("envoy_ai_gateway", line, DecoderOptions(fields=fields))
    assert (counts(entry), entry.duration_seconds, entry.model_name) == ((5000, 4900, None, 7), 0.9, "gpt")
    (failed,) = decode("envoy_ai_gateway", [b'{"code": 503, "in": "-"}'], DecoderOptions(fields=fields))
    assert isinstance(failed, Skipped)
    assert failed.reason == "server_error"
    with pytest.raises(ValueError, match=r"unknown field 'promt'.*use prompt_tokens"):
        get_format("envoy_ai_gateway").decoder(DecoderOptions(fields={"promt": "in"}))


def test_envoy_names_the_backend_as_provider() -> None:
    """The long reference that the gateway writes is cut to the backend's name."""
    (first, *_) = decode("envoy_ai_gateway", sample_lines("envoy_ai_gateway"))
    assert isinstance(first, RequestRecord)
    assert first.provider == "anthropic"
    health = {"response_code": 200, "gen_ai.usage.input_tokens": None, "gen_ai.request.model": "-"}
    assert skipped("envoy_ai_gateway", health) == "not_a_request"


@pytest.mark.parametrize(
    ("row", "expected"),
    [(b'g,"a, b",2000,1999', "full"), (b"g,x,2000,1999,5", "no_usage"), (b'g,"open,2000,1', "invalid"),
     (b"g,x,2000,2001", "cached_exceeds_prompt"), (b"g,x,,1", "no_usage"), (b"g,x,ten,1", "invalid"),
     (b"\xff,x,1,1", "not_utf8"), (b'g,"say ""hi""",2000,', "unknown")],
)  # fmt: skip
def test_openrouter_rows(row: bytes, expected: str) -> None:
    """Quoted fields, empty cells and rows that are none."""
    header, entry = decode("openrouter_activity", [b"generation_id,user,tokens_prompt,tokens_cached", row])
    assert isinstance(header, Skipped)
    assert (outcome(entry) if isinstance(entry, RequestRecord) else getattr(entry, "reason", "")) == expected


def test_openrouter_without_its_header() -> None:
    """A file followed from its end has no header; the export's own columns stand in."""
    _, row, _ = sample_lines("openrouter_activity")
    (entry,) = decode("openrouter_activity", [row])
    assert isinstance(entry, RequestRecord)
    assert counts(entry) == (18054, 18041, None, 120)


# Spans.
def span(scope: str = "", **attributes: Any) -> Entry:
    named = {f"gen_ai.{key.replace('__', '.')}": value for key, value in attributes.items()}
    made = Span(named, {"service.name": "api"}, scope, 10**18, 10**18 + 2 * 10**9, span_id="s")
    return SpanReader(DecoderOptions()).entry(made)


def test_spans_of_engines() -> None:
    """vLLM never says what was cached; SGLang does; both give TTFT in seconds and name no provider."""
    shared = {"usage__prompt_tokens": 2000, "usage__completion_tokens": 5, "response__model": "qwen",
              "latency__time_to_first_token": 0.05, "latency__e2e": 0.7}  # fmt: skip
    vllm, sglang = span("vllm.llm_engine", **shared), span("sglang", **shared, usage__cached_tokens=1990)
    assert isinstance(vllm, RequestRecord)
    assert isinstance(sglang, RequestRecord)
    assert (counts(vllm), outcome(vllm), vllm.provider, vllm.granule) == (
        (2000, None, None, 5), "unknown", "vllm", 16,
    )  # fmt: skip
    assert (counts(sglang), outcome(sglang), sglang.provider) == ((2000, 1990, None, 5), "full", "sglang")
    assert (sglang.ttft_seconds, sglang.duration_seconds, sglang.group) == (0.05, 0.7, "api")


def test_spans_that_are_no_model_call() -> None:
    """Agents repeat the sums of the calls inside them; tools and embeddings are none."""
    for operation in ("invoke_agent", "execute_tool", "embeddings", "create_agent", ["chat"]):
        entry = span(operation__name=operation, usage__input_tokens=9)
        assert isinstance(entry, Skipped)
        assert entry.reason == "not_a_request"


def test_spans_that_failed_or_were_not_streamed() -> None:
    """An error's type says why; without streaming there is no first token."""
    failed = SpanReader(DecoderOptions()).entry(
        Span({"gen_ai.operation.name": "chat", "error.type": "RateLimitError"}, status_code=2)
    )
    assert isinstance(failed, Skipped)
    assert failed.reason == "rate_limited"
    whole = span(operation__name="chat", usage__input_tokens=9, request__stream=False,
                 response__time_to_first_chunk=2.0)  # fmt: skip
    assert isinstance(whole, RequestRecord)
    assert (whole.ttft_seconds, whole.duration_seconds) == (None, 2.0)


def test_a_bad_span_costs_only_itself() -> None:
    """Other spans of the same line are read."""
    line = json.loads(sample_lines("otlp_traces")[0])
    spans = line["resourceSpans"][0]["scopeSpans"][0]["spans"]
    bad = json.loads(json.dumps(spans[0]).replace("26425", "-5"))
    line["resourceSpans"][0]["scopeSpans"][0]["spans"] = [bad, 7, spans[0]]
    first, second = decode("otlp_traces", [json.dumps(line).encode()])
    assert isinstance(first, RecordError)
    assert first.reason == "invalid"
    assert isinstance(second, RequestRecord)


# Sums.
def ledger_of(entries: list[Entry]) -> dict[str, float]:
    ledger = Ledger("s", FullHit())
    ledger.tick(0.0)
    ledger.add(entries)
    ledger.tick(30.0)
    found: dict[str, float] = {}
    for sample in ledger.samples():
        assert isinstance(sample, Sample)
        if isinstance(sample.value, float):
            found[sample.metric.name] = found.get(sample.metric.name, 0.0) + sample.value
        else:
            found[sample.metric.name] = sample.value.counts[-1]
    return found


def test_aggregates_feed_token_rates_only() -> None:
    """64 % of 200,000 tokens; no request, no outcome, no distribution."""
    page = ledger_of(decode("aggregated_usage_apis", sample_lines("aggregated_usage_apis")))
    assert page[c.REQUEST_PROMPT_TOKENS.name] == 200_000
    assert page[c.REQUEST_CACHED_TOKENS.name] == 128_000
    assert page[c.REQUEST_WRITTEN_TOKENS.name] == 12_000
    assert page[c.REQUEST_OUTPUT_TOKENS.name] == 10_000
    assert page[c.TOKEN_HIT_RATIO.name] == pytest.approx(0.64 * 2 * len(c.WINDOWS))  # of two models
    assert not {c.REQUESTS.name, c.REQUEST_CACHED_RATIO.name, c.REQUEST_HIT_RATIO.name} & page.keys()


def test_a_bucket_asked_for_again_counts_once() -> None:
    """As lines of results, as buckets and as the API's whole page."""
    line = json.loads(sample_lines("aggregated_usage_apis")[0])
    bucket = {"object": "bucket", "start_time": line["start_time"], "end_time": line["end_time"]}
    results = [line["result"], {**line["result"], "project_id": "p2"}]
    whole = {"object": "page", "data": [{**bucket, "results": results}, {**bucket, "results": []}]}
    made = [json.dumps(x).encode() for x in (line, {**bucket, "results": results}, whole)]
    entries = decode("aggregated_usage_apis", made)
    kinds = [e.group if isinstance(e, Aggregate) else getattr(e, "reason", None) for e in entries]
    assert kinds == ["", "duplicate", "p2", "duplicate", "duplicate"]


@pytest.mark.parametrize(
    ("change", "expected"),
    [({"input_cached_tokens": None}, "no_usage"), ({"input_cached_tokens": 99_999}, "cached_exceeds_prompt"),
     ({"input_tokens": -1}, "invalid"), ({"input_tokens": 10**16}, "invalid")],
)  # fmt: skip
def test_sums_that_cannot_be(change: dict[str, Any], expected: str) -> None:
    """A sum may be far more than a request, but not anything."""
    line = json.loads(sample_lines("aggregated_usage_apis")[0])
    line["result"] |= change
    assert reason("aggregated_usage_apis", json.dumps(line).encode()) == expected


def test_aggregates_are_marked_in_what_commands_print(capsys: pytest.CaptureFixture[str]) -> None:
    """`records` gives them an outcome of their own, `report` says how much of the tokens they are."""
    path = str(LOGS / "aggregated_usage_apis.jsonl")
    assert main(["records", path, "--json"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(line["outcome"], line["requests"], line["uncached_tokens"]) for line in lines] == [
        ("aggregate", 40, 30_000), ("aggregate", None, 30_000),
    ]  # fmt: skip
    assert main(["report", path, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["requests"], found["aggregates"], found["token_hit_ratio"]) == (0, 2, 0.64)
    assert (found["request_hit_ratio"], found["outcomes"]) == (None, {})
    assert main(["report", path]) == 0
    assert "100.0 %   of prompt tokens from 2 figures of usage reports" in capsys.readouterr().out


def test_report_counts_a_copied_session_once(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Files of one report share what was seen."""
    for name in ("a.jsonl", "b.jsonl"):
        (tmp_path / name).write_bytes((LOGS / "claude_code.jsonl").read_bytes())
    assert main(["report", str(tmp_path / "a.jsonl"), str(tmp_path / "b.jsonl"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["requests"], found["skipped"]) == (2, {"not_a_request": 6, "duplicate": 8})


@pytest.mark.parametrize(
    ("name", "place", "odd"),
    [("apisix_nginx", 2, {"usage_written": "-"}), ("envoy_ai_gateway", 4, {"token_latency_ttft": "-"}),
     ("langfuse", 1, {"timeToFirstToken": "soon"})],
)  # fmt: skip
def test_a_value_of_another_type_changes_nothing_of_the_others(
    name: str, place: int, odd: dict[str, str]
) -> None:
    """Usual lines are decoded to numbers at once, whether they stand there as text or not; others loosely."""
    line = sample_lines(name)[place]
    usual, texts = json.loads(line), json.loads(line, parse_int=str, parse_float=str)
    entry = record(name, usual)
    assert None not in counts(entry)[:2]
    for other in (texts, {**usual, **odd}, {**texts, **odd}):
        assert record(name, other) == entry
