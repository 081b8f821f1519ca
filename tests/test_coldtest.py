"""The command `coldtest` against a real HTTP server with a simulated block cache."""

import json
import signal
import ssl
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
from processes import wait_until

from chat_engine import BLOCK, ChatEngine, Messages, tokens
from kvcache_exporter.cli import main
from kvcache_exporter.coldtest.drive import Run
from kvcache_exporter.coldtest.endpoint import Client
from kvcache_exporter.coldtest.figures import Counting, recovery
from kvcache_exporter.coldtest.result import read_result
from kvcache_exporter.coldtest.stream import Reply

SEEDED = ("--shared-prefix", "320", "--requests", "60", "--seed", "5", "--max-tokens", "8")
PLAIN = (*SEEDED, "--concurrency", "1")


@pytest.fixture
def engine() -> Iterator[ChatEngine]:
    made = ChatEngine()
    yield made
    made.close()


def restarts(engine: ChatEngine) -> tuple[str, str]:
    return "--restart-command", f"curl -sf -d '' {engine.url}/restart"


def outcome_of(prompt: int, cached: int) -> str:
    """The documented rule, written out once more."""
    if cached == 0:
        return "miss" if prompt >= BLOCK else "uncacheable"
    return "full" if prompt - cached <= max(BLOCK, min(0.05 * prompt, 1024)) else "partial"


def common_start(one: list[str], other: list[str]) -> int:
    pairs = enumerate(zip(one, other, strict=False))
    return next((place for place, (a, b) in pairs if a != b), min(len(one), len(other)))


def truth(life: list[Messages], count: int) -> list[tuple[int, int]]:
    """Prompt and cached tokens of the last `count` requests, each compared with all before it."""
    made = [tokens(messages) for messages in life]
    found = []
    for number, prompt in enumerate(made):
        common = max((common_start(prompt, earlier) for earlier in made[:number]), default=0)
        found.append((len(prompt), min(common, len(prompt) - 1) // BLOCK * BLOCK))
    return found[len(found) - count :]


def run(capsys: pytest.CaptureFixture[str], engine: ChatEngine, *arguments: str, code: int = 0) -> Any:
    assert main(["coldtest", "--url", engine.url, "--yes", "--json", *arguments]) == code
    return json.loads(capsys.readouterr().out)


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The message on standard error of bad usage."""
    try:
        code = main(["coldtest", *arguments])
    except SystemExit as left:
        code = int(left.code or 0)
    captured = capsys.readouterr()
    assert (code, captured.out) == (2, "")
    return captured.err


def test_both_runs_send_the_same_and_the_figures_are_the_servers_own(
    engine: ChatEngine, capsys: pytest.CaptureFixture[str]
) -> None:
    found = run(capsys, engine, *PLAIN, *restarts(engine))
    warm_life, cold_life = engine.asked
    assert (len(warm_life), len(cold_life)) == (80, 60)
    assert cold_life == warm_life[20:]
    for name, life in (("warm", warm_life), ("cold", cold_life)):
        counts = truth(life, 60)
        phase = found["phases"][name]
        assert phase["requests"] == 60
        assert phase["prompt_tokens"] == sum(prompt for prompt, _ in counts)
        assert phase["cached_tokens"] == sum(cached for _, cached in counts)
        assert phase["token_hit_ratio"] == phase["cached_tokens"] / phase["prompt_tokens"]
        outcomes = Counter(outcome_of(*count) for count in counts)
        assert phase["outcomes"] == outcomes
        assert {outcome: ttft["n"] for outcome, ttft in phase["ttft"].items()} == outcomes
        assert phase["request_hit_ratio"] == outcomes["full"] / 60
        assert phase["output_tokens"] == 120
        assert phase["errors"] == {}
        assert sum(part["requests"] for part in phase["parts"].values()) == 60
    warm, cold = found["phases"]["warm"], found["phases"]["cold"]
    assert warm["cached_tokens"] - cold["cached_tokens"] == 4 * 320
    assert {"full", "partial", "miss"} <= warm["outcomes"].keys()
    assert warm["parts"]["unique"]["cached_tokens"] == cold["parts"]["unique"]["cached_tokens"] == 0


def test_recovery_is_when_the_last_twenty_answers_came_back_to_most_of_warm(
    engine: ChatEngine, capsys: pytest.CaptureFixture[str]
) -> None:
    found = run(capsys, engine, *PLAIN, *restarts(engine))
    counts = truth(engine.asked[1], 60)
    target = 0.8 * found["phases"]["warm"]["token_hit_ratio"]
    ratios = [
        sum(c for _, c in counts[end - 20 : end]) / sum(p for p, _ in counts[end - 20 : end])
        for end in range(20, 61)
    ]
    first = next(end for end, ratio in enumerate(ratios, 20) if ratio >= target)
    assert first > 20, "the load would be warm at once"
    assert found["recovery"]["target_token_hit_ratio"] == target
    assert found["recovery"]["requests"] == first
    assert 0 < found["recovery"]["seconds"] <= found["phases"]["cold"]["seconds"]


def test_without_a_hit_rate_while_warm_there_is_no_recovery() -> None:
    assert recovery(Run(), Counting(16, 16, absent_is_zero=False), None) is None
    never = recovery(Run(), Counting(16, 16, absent_is_zero=False), 0.5)
    assert never is not None
    assert (never.target_token_hit_ratio, never.seconds, never.requests) == (0.4, None, None)


def test_the_verdict_is_the_cold_p99_against_the_objective_and_against_warm(
    engine: ChatEngine, capsys: pytest.CaptureFixture[str]
) -> None:
    """A miss of 321 tokens waits 0.16 s at least; nothing waits a minute, or a thousand times as long."""
    engine.seconds_per_token = 0.0005
    arguments = ("--shared-prefix", "320", "--requests", "20", "--seed", "5", "--concurrency", "2")
    judged = ("--objective-ttft-p99", "150ms", "--max-ratio", "1000")
    failed = run(capsys, engine, *arguments, *restarts(engine), *judged, code=1)
    p99 = failed["phases"]["cold"]["ttft_all"]["p99"]
    ratio = p99 / failed["phases"]["warm"]["ttft_all"]["p99"]
    assert p99 > 0.15
    assert failed["checks"] == [
        {"what": f"cold TTFT p99 {p99:.3f} s, objective 0.15 s", "passed": False},
        {"what": f"cold / warm TTFT p99 {ratio:.2f}, at most 1000", "passed": True},
    ]
    assert failed["passed"] is False
    passed = run(capsys, engine, *arguments, *restarts(engine), "--objective-ttft-p99", "1m")
    assert passed["passed"] is True
    run(capsys, engine, *arguments, *restarts(engine), "--max-ratio", "0.001", code=1)


def test_ttft_is_that_of_the_first_text(engine: ChatEngine, capsys: pytest.CaptureFixture[str]) -> None:
    """The chunk that only names the role comes 0.2 s before the first text."""
    engine.faults = dict.fromkeys(range(3), "pause")
    engine.faults[3] = "silent"
    found = run(capsys, engine, *PLAIN, "--requests", "4", "--cold-only")
    ttft = found["phases"]["cold"]["ttft_all"]
    assert ttft["n"] == 3
    assert ttft["p50"] >= 0.2
    assert "cold: 1 replies had no text, so no TTFT" in found["notes"]


def test_failed_requests_are_counted_by_reason_and_fail_the_test(
    engine: ChatEngine, capsys: pytest.CaptureFixture[str]
) -> None:
    names = ("500", "429", "302", "plain", "hang up", "cut", "error", "malformed", "slow")
    engine.faults = dict(enumerate(names))
    found = run(
        capsys, engine, *PLAIN, "--cold-only", "--timeout", "1s", "--objective-ttft-p99", "1h", code=1
    )
    phase = found["phases"]["cold"]
    assert phase["errors"] == {
        "HTTP 500": 1, "HTTP 429": 1, "HTTP 302": 1, "not a stream": 1, "no connection": 1, "cut off": 1,
        "error in the stream": 1, "malformed stream": 1, "timeout": 1,
    }  # fmt: skip
    assert phase["requests"] == 51
    assert found["checks"][0] == {"what": "cold: 15.0 % of requests failed, at most 1 %", "passed": False}


def test_a_fault_of_the_client_is_an_answer_too(
    engine: ChatEngine, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the next turn of that conversation would wait for ever."""
    asked = Client.ask

    def ask(client: Client, model: str, messages: Messages, max_tokens: int, seconds: float) -> Reply:
        if len(messages) == 3:
            raise ValueError("SECRET")
        return asked(client, model, messages, max_tokens, seconds)

    monkeypatch.setattr(Client, "ask", ask)
    phase = run(capsys, engine, *PLAIN, "--cold-only", code=1)["phases"]["cold"]
    assert phase["errors"] == {"internal error": 6}
    assert phase["requests"] == 54


def test_nothing_the_server_says_is_shown(engine: ChatEngine, capsys: pytest.CaptureFixture[str]) -> None:
    engine.faults = dict(enumerate(("500", "error", "plain")))
    assert main(["coldtest", "--url", engine.url, "--yes", *PLAIN, "--cold-only"]) == 1
    captured = capsys.readouterr()
    assert "cold failures: 1 x HTTP 500, 1 x error in the stream, 1 x not a stream" in captured.out
    assert "SECRET" not in captured.out + captured.err


@pytest.mark.parametrize(("owned_by", "flag"), [
    ("vllm", "start vLLM with --enable-prompt-tokens-details"),
    ("sglang", "start SGLang with --enable-cache-report"),
    ("organization-owner", "vLLM with --enable-prompt-tokens-details, SGLang with --enable-cache-report"),
])  # fmt: skip
def test_an_engine_that_does_not_tell_its_hits_is_asked_for_its_flag(
    owned_by: str, flag: str, engine: ChatEngine, capsys: pytest.CaptureFixture[str]
) -> None:
    engine.owned_by, engine.details = owned_by, False
    found = run(capsys, engine, *PLAIN, *restarts(engine), "--objective-ttft-p99", "1m")
    assert found["phases"]["warm"]["token_hit_ratio"] is None
    assert found["phases"]["cold"]["outcomes"] == {"unknown": 60}
    assert found["recovery"] is None
    assert found["passed"] is True
    assert any(flag in note for note in found["notes"])


def test_where_only_hits_are_told_no_count_is_a_miss(
    engine: ChatEngine, capsys: pytest.CaptureFixture[str]
) -> None:
    engine.zeros = False
    found = run(capsys, engine, *PLAIN, *restarts(engine))
    counts = truth(engine.asked[1], 60)
    cold = found["phases"]["cold"]
    assert cold["outcomes"] == Counter(outcome_of(*count) for count in counts)
    assert cold["token_hit_ratio"] == sum(c for _, c in counts) / sum(p for p, _ in counts)


def test_a_reply_without_usage_is_unknown_not_zero(
    engine: ChatEngine, capsys: pytest.CaptureFixture[str]
) -> None:
    engine.faults = {3: "no usage"}
    found = run(capsys, engine, *PLAIN, "--cold-only")["phases"]["cold"]
    counts = [count for number, count in enumerate(truth(engine.asked[0], 60)) if number != 3]
    assert found["outcomes"] == {**Counter(outcome_of(*count) for count in counts), "unknown": 1}
    assert found["token_hit_ratio"] == sum(c for _, c in counts) / sum(p for p, _ in counts)


def test_before_and_after_can_be_two_runs(
    engine: ChatEngine, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    before = run(capsys, engine, *PLAIN, "--warm-only")
    stored = tmp_path / "before.json"
    stored.write_text(json.dumps(before))
    engine.restart()
    found = run(capsys, engine, "--against", str(stored), "--max-ratio", "1000000")
    assert engine.asked[1] == engine.asked[0][20:]
    assert found["phases"]["warm"] == before["phases"]["warm"]
    assert found["load"] == before["load"]
    assert found["recovery"]["requests"] > 20
    assert found["passed"] is True
    assert read_result(stored).phases.keys() == {"warm"}
    message = refused(capsys, "--url", engine.url, "--yes", "--against", str(stored), "--requests", "9")
    assert message == "kvcache-exporter: --requests 9: --against has 60; leave it out to send the same\n"


def test_a_cache_that_was_not_emptied_is_told(engine: ChatEngine, capsys: pytest.CaptureFixture[str]) -> None:
    found = run(capsys, engine, *PLAIN, "--restart-command", "true")
    assert found["phases"]["cold"]["parts"]["unique"]["token_hit_ratio"] > 0.9
    assert any("it was not emptied, or a tier outlived the restart" in note for note in found["notes"])


def test_prompts_of_a_file_are_sent_in_order_the_first_fifth_as_warm_up(
    engine: ChatEngine, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Ten prompts of 32 shared words and 14 of their own: 48 tokens, two whole blocks shared."""
    path = tmp_path / "prompts.jsonl"
    shared = " ".join(f"s{number}" for number in range(32))
    texts = [f"{shared} " + " ".join(f"{line}-{number}" for number in range(14)) for line in range(10)]
    path.write_text("".join(json.dumps({"prompt": text}) + "\n" for text in texts))
    found = run(capsys, engine, "--prompts", str(path), "--concurrency", "1", *restarts(engine))
    sent = [messages[0]["content"] for messages in engine.asked[0]]
    assert sent == texts
    assert [messages[0]["content"] for messages in engine.asked[1]] == texts[2:]
    warm, cold = found["phases"]["warm"], found["phases"]["cold"]
    assert (warm["prompt_tokens"], warm["cached_tokens"]) == (8 * 48, 8 * 32)
    assert (cold["prompt_tokens"], cold["cached_tokens"]) == (8 * 48, 7 * 32)
    assert warm["outcomes"] == {"full": 8}
    assert cold["outcomes"] == {"full": 7, "miss": 1}
    message = refused(capsys, "--url", engine.url, "--yes", "--prompts", str(path), "--requests", "9")
    assert message == "kvcache-exporter: --requests 9: without the warm-up the file has 8 prompts\n"
    changed = tmp_path / "before.json"
    changed.write_text(json.dumps(found))
    path.write_text(path.read_text() + '{"prompt": "more"}\n')
    against = ("--prompts", str(path), "--against", str(changed))
    assert "expected the file of prompts that the run" in refused(
        capsys, "--url", engine.url, "--yes", *against
    )


def test_no_more_requests_at_once_than_asked_for(
    engine: ChatEngine, capsys: pytest.CaptureFixture[str]
) -> None:
    engine.seconds_per_token = 0.0002
    found = run(capsys, engine, *SEEDED, "--concurrency", "3", "--cold-only")
    assert found["phases"]["cold"]["requests"] == 60
    assert engine.most_at_once == 3
    assert engine.connections == 4, "one for the list of models, and one for each thread"
    order = {str(messages): number for number, messages in enumerate(engine.asked[0])}
    conversations = [m for m in engine.asked[0] if len(m) > 1 and m[1]["role"] == "assistant"]
    assert conversations
    assert all(order[str(m[:-2])] < order[str(m)] for m in conversations), "a turn came before its question"


def test_time_over_sends_no_more(engine: ChatEngine, capsys: pytest.CaptureFixture[str]) -> None:
    engine.seconds_per_token = 0.001
    found = run(capsys, engine, *PLAIN, "--cold-only", "--duration", "500ms")
    phase = found["phases"]["cold"]
    assert 0 < phase["requests"] < 60
    assert phase["requests"] + phase["not_sent"] == 60
    assert any("were not sent" in note for note in found["notes"])


_INTERRUPTIBLE = (
    "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); "
    "from kvcache_exporter.cli import main; sys.exit(main(sys.argv[1:]))"
)
"""A shell starts what runs in its background with SIGINT ignored, and Python then leaves it so."""


def test_ctrl_c_ends_with_a_report_of_what_was_answered(engine: ChatEngine) -> None:
    engine.seconds_per_token = 0.001
    command = [sys.executable, "-c", _INTERRUPTIBLE, "coldtest", "--url", engine.url, "--yes", "--json"]
    process = subprocess.Popen([*command, *PLAIN, "--cold-only"], stdout=subprocess.PIPE)
    wait_until("ten requests", lambda: len(engine.asked[0]) > 10, 60)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    found = json.loads(out)
    assert process.returncode == 130
    assert found["interrupted"] is True
    assert found["passed"] is None
    assert 10 <= found["phases"]["cold"]["requests"] == len(engine.asked[0]) < 60


def test_the_report_in_words(engine: ChatEngine, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = (*PLAIN, *restarts(engine), "--objective-ttft-p99", "1m")
    assert main(["coldtest", "--url", engine.url, "--yes", *arguments]) == 0
    captured = capsys.readouterr()
    lines = captured.out.splitlines()
    assert lines[0] == f"{engine.url}, model tiny of vllm"
    assert lines[1] == (
        "60 requests a run, 1 at a time, prefixes of about 320 tokens, 20 % unique prompts, seed 5"
    )
    counts = {name: truth(life, 60) for name, life in zip(("warm", "cold"), engine.asked, strict=True)}
    ratios = [sum(c for _, c in found) / sum(p for p, _ in found) for found in counts.values()]
    assert f"hit rate by tokens      {100 * ratios[0]:>10.1f} %{100 * ratios[1]:>10.1f} %" in lines
    assert lines[-1] == "PASSED"
    assert "  200 requests (warm-up 20, warm 60, cold 60)" not in captured.err
    assert "  140 requests (warm-up 20, warm 60, cold 60), 1 at a time" in captured.err
    assert "at most 1,120 output tokens" in captured.err
    assert f"restart by: {restarts(engine)[1]}" in captured.err


def test_the_announced_tokens_are_nearly_those_sent(
    engine: ChatEngine, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["coldtest", "--url", engine.url, "--yes", "--json", *PLAIN, "--cold-only"]) == 0
    captured = capsys.readouterr()
    (announced,) = (line for line in captured.err.splitlines() if "prompt tokens" in line)
    told = int(announced.split()[1].replace(",", ""))
    assert told == pytest.approx(json.loads(captured.out)["phases"]["cold"]["prompt_tokens"], rel=0.1)


def test_an_engine_that_answers_nothing_ends_the_test_in_the_warm_up(
    engine: ChatEngine, capsys: pytest.CaptureFixture[str]
) -> None:
    engine.faults = dict.fromkeys(range(20), "400")
    assert main(["coldtest", "--url", engine.url, "--yes", *PLAIN, *restarts(engine)]) == 1
    assert len(engine.asked[0]) == 20
    message = capsys.readouterr().err.splitlines()[-1]
    assert "none was answered (20 x HTTP 400): the engine refuses the request: is a prompt longer" in message


@pytest.mark.parametrize(
    ("command", "message"),
    [("exit 3", "--restart-command: exit code 3"), ("sleep 30", "--restart-command: not done after 0.5 s")],
)
def test_a_restart_that_fails_ends_the_test(
    command: str, message: str, engine: ChatEngine, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = (
        "--url",
        engine.url,
        "--yes",
        *PLAIN,
        "--restart-command",
        command,
        "--ready-timeout",
        "500ms",
    )
    assert main(["coldtest", *arguments]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[-2].startswith(f"FAIL: {message}")
    assert lines[-1] == "FAILED"
    assert f"requests answered{60:>19}" in lines, "what was measured before is lost"


def test_an_engine_that_does_not_come_back_ends_the_test(
    engine: ChatEngine, capsys: pytest.CaptureFixture[str]
) -> None:
    engine.ready = False
    arguments = (*PLAIN, *restarts(engine), "--ready-timeout", "10s")
    assert main(["coldtest", "--url", engine.url, "--yes", *arguments[:-1], "1s"]) == 1
    assert "not ready 1 s after the restart" in capsys.readouterr().out.splitlines()[-2]


URL = ("--url", "http://127.0.0.1:9")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--url", "ftp://h", *PLAIN), '--url: found "ftp://h", expected http://HOST or https://HOST'),
        (("--url", "http://u:p@h", *PLAIN), "--url: found credentials for h; give them by --api-key-file"),
        (("--url", "http://h/?k=v", *PLAIN), "--url: expected the address of h without ? and #"),
        (URL, "no load: give --prompts FILE, or --shared-prefix N for a generated one"),
        ((*URL, *PLAIN), "cannot ask: standard input is not a terminal; give --yes to send without asking"),
        ((*URL, *PLAIN, "--yes"), "cannot ask for the restart: standard input is not a terminal"),
        ((*URL, *SEEDED, "--requests", "10001"), "'10001' is not a whole number from 1 to 10,000"),
        ((*URL, *PLAIN, "--requests", "4500"), "--requests 4500: 10,125 in all, at most 10,000"),
        ((*URL, *SEEDED, "--concurrency", "65"), "'65' is not a whole number from 1 to 64"),
        ((*URL, *SEEDED, "--max-tokens", "257"), "'257' is not a whole number from 1 to 256"),
        ((*URL, "--shared-prefix", "40000"), "'40000' is not a whole number from 16 to 32,768"),
        ((*URL, *PLAIN, "--duration", "2h"), "'2h' is more than 3600 seconds"),
        ((*URL, *PLAIN, "--unique-share", "1.5"), "'1.5' is not a share from 0 to 1"),
        ((*URL, *PLAIN, "--max-ratio", "nan"), "'nan' is not a number of at least 0"),
        ((*URL, *PLAIN, "--cold-only", "--warm-only"), "not allowed with argument"),
    ],
)
def test_what_is_refused_before_anything_is_sent(
    arguments: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert message in refused(capsys, *arguments)


def test_a_key_crosses_no_network_in_the_clear(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("SECRET\n")
    message = refused(capsys, "--url", "http://192.0.2.1", *PLAIN, "--yes", "--api-key-file", str(key))
    assert message == (
        "kvcache-exporter: --url http://192.0.2.1: the API key would cross the network in the clear: "
        "use https, or --allow-plain-http\n"
    )
    key.write_text("two\nlines")
    assert "expected the key on one line" in refused(capsys, *URL, *PLAIN, "--api-key-file", str(key))


def test_the_key_is_sent_and_never_shown(
    engine: ChatEngine, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    key = tmp_path / "key"
    key.write_text("SECRET\n")
    arguments = (*PLAIN, "--cold-only", "--api-key-file", str(key))
    assert main(["coldtest", "--url", engine.url, "--yes", "--json", *arguments]) == 0
    captured = capsys.readouterr()
    assert {headers["Authorization"] for headers in engine.headers} == {"Bearer SECRET"}
    assert "SECRET" not in captured.out + captured.err


def test_tls_with_a_ca_of_ones_own(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    name = ("-subj", "/CN=engine", "-addext", "subjectAltName=IP:127.0.0.1")
    made = (
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-keyout",
        key,
        "-out",
        certificate,
        *name,
    )
    subprocess.run(made, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    engine = ChatEngine(context)
    try:
        assert main(["coldtest", "--url", engine.url, "--yes", *PLAIN, "--cold-only"]) == 1
        assert "no trusted TLS: set SSL_CERT_FILE to the file of your CA" in capsys.readouterr().err
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        assert run(capsys, engine, *PLAIN, "--cold-only")["phases"]["cold"]["requests"] == 60
    finally:
        engine.close()


def test_several_models_are_named_to_choose_from(
    engine: ChatEngine, capsys: pytest.CaptureFixture[str]
) -> None:
    engine.models = ["a", "b"]
    arguments = ("--url", engine.url, "--yes", *PLAIN, "--cold-only")
    assert refused(capsys, *arguments) == f"kvcache-exporter: --model is needed: {engine.url} serves a, b\n"
    message = refused(capsys, *arguments, "--model", "c")
    assert message == f"kvcache-exporter: --model c: {engine.url} serves a, b\n"
    assert main(["coldtest", *arguments, "--model", "b"]) == 0


def test_no_server_is_said_plainly(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["coldtest", *URL, *PLAIN, "--yes", "--cold-only"]) == 1
    message = capsys.readouterr().err
    assert message.endswith("no connection: is the address right and the engine up?\n")


@pytest.mark.parametrize("content", ["", "{}", "[]", '{"version": 2}', "\x80"])
def test_what_is_no_result_is_refused(
    content: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "before.json"
    path.write_bytes(content.encode("latin-1"))
    message = refused(capsys, *URL, "--yes", "--against", str(path))
    wanted = f"kvcache-exporter: --against {path}: expected the --json output of a run that had a warm phase"
    assert message.startswith(wanted)


def test_a_person_is_asked_before_sending_and_for_the_restart(
    engine: ChatEngine, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Person:
        """A terminal with somebody at it who restarts the engine when asked to."""

        def __init__(self, *answers: str) -> None:
            self.answers = list(answers)

        def isatty(self) -> bool:
            return True

        def readline(self) -> str:
            answer = self.answers.pop(0)
            if answer == "":
                engine.restart()
            return answer + "\n"

    monkeypatch.setattr(sys, "stdin", Person("no"))
    assert main(["coldtest", "--url", engine.url, *PLAIN]) == 2
    assert engine.asked == [[]]
    assert capsys.readouterr().err.endswith("Send this? [y/N] nothing was sent\n")
    monkeypatch.setattr(sys, "stdin", Person("y", ""))
    assert main(["coldtest", "--url", engine.url, *PLAIN]) == 0
    assert [len(life) for life in engine.asked] == [80, 60]
    assert "Restart the engine now; once the old process is gone, press Enter." in capsys.readouterr().err


def test_the_restart_of_the_server_itself_works(engine: ChatEngine) -> None:
    """What the other tests stand on."""
    assert requests.post(f"{engine.url}/restart", timeout=5).ok
    assert len(engine.asked) == 2
