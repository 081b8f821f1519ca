"""The commands as a user meets them: output, exit codes, error texts."""

import errno
import gzip
import json
import re
from pathlib import Path
from typing import Any

import pytest

from kvcache_exporter.cli import main, parser
from kvcache_exporter.commands import metrics

FIXTURES = Path(__file__).parent / "fixtures"
RECORDINGS = FIXTURES / "recordings"
TRUTH = json.loads((RECORDINGS / "vllm-0.32.0" / "truth.json").read_text())["phases"]


def lines_of(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[dict[str, Any]]:
    assert main(arguments) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


@pytest.mark.parametrize("phase", [name for name in TRUTH if name != "probe"])
def test_replay_gives_each_phase_the_requests_own_hit_rate(
    phase: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Over a window as long as the phase, at the page that ends it."""
    pages = {p.name.split("_")[1]: p.name for p in (RECORDINGS / "vllm-0.32.0").glob("*.prom")}
    start, end = (int(re.findall(r"(\d+)\.prom", pages[f"{phase}-{side}"])[0]) for side in ("start", "end"))
    found = lines_of(
        capsys, "replay", str(RECORDINGS / "vllm-0.32.0"), "--json", "--window", f"{end - start}s"
    )
    (line,) = (line for line in found if line["phase"] == f"{phase}-end")
    assert line["token_hit_ratio"] == TRUTH[phase]["token_hit_ratio"]
    assert line["preemptions_per_second"] * (end - start) == TRUTH[phase]["engine_increase"]["preemptions"]
    assert line["target_up"] == 1
    assert line["anomalies"] == {}


def test_replay_says_when_a_ratio_cannot_be_believed(capsys: pytest.CaptureFixture[str]) -> None:
    """SGLang up to 0.5.4 counts cached tokens again after a retraction."""
    found = lines_of(capsys, "replay", str(RECORDINGS / "sglang-0.5.1-a"), "--json", "--window", "5s")
    hostile = [line for line in found if line["phase"] == "hostile2"][-1]
    assert hostile["token_hit_ratio"] is None
    assert hostile["anomalies"]["cached_exceeds_prompt"] > 0
    old = lines_of(capsys, "replay", str(RECORDINGS / "vllm-0.10.2"), "--json")
    assert {line["hit_basis"] for line in old} == {"lookup"}
    assert old[-1]["anomalies"]["lookups_recounted"] > 0


def test_replay_of_a_folder_of_folders_is_several_targets(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    for name in ("vllm-0.32.0", "sglang-0.5.8-b"):
        (tmp_path / name).symlink_to(RECORDINGS / name)
    found = lines_of(capsys, "replay", str(tmp_path), "--json")
    assert {line["target"] for line in found} == {"vllm-0.32.0", "sglang-0.5.8-b"}
    assert [line["at"] for line in found] == sorted(line["at"] for line in found)


def test_replay_counts_the_logs_beside_the_pages(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    page = next((RECORDINGS / "sglang-0.5.8-b").glob("012_*.prom"))
    (tmp_path / page.name).write_bytes(page.read_bytes())
    (tmp_path / "export").mkdir()
    log = FIXTURES / "logs" / "sglang_metrics_file.jsonl"
    (tmp_path / "export" / "metrics.log").write_bytes(log.read_bytes())
    assert main(["replay", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert 'kvcache_requests_total{source="export/metrics.log",provider="sglang",outcome="full"} 1.0' in out
    assert "kvcache_prompt_tokens_total{" in out


def test_replay_cold_sets_each_cold_start_against_warm_time(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", str(RECORDINGS / "vllm-0.32.0"), "--cold"]) == 0
    _, first, emptied, second, _ = capsys.readouterr().out.splitlines()
    assert re.match(r"vllm-0\.32\.0 +2026-11-29 11:11:07  first seen +over 176 s ", first)
    assert re.match(r"vllm-0\.32\.0 +2026-11-29 11:14:03  cache reset +over 53 s ", emptied)
    assert re.match(r"vllm-0\.32\.0 +2026-11-29 11:14:55  start time +\d+ s +89\.7 % +98\.7 %", second)


def _restarting(number: int) -> bytes:
    """A process of its own: each has served more than the one before, all of it in two seconds each."""
    ttft = b'vllm:time_to_first_token_seconds_%b{model_name="m"%b} %d\n'
    buckets = [(b"bucket", b',le="2.0"'), (b"bucket", b',le="+Inf"'), (b"count", b""), (b"sum", b"")]
    return b"process_start_time_seconds %d\n" % (1_795_950_000 + 60 * number) + b"".join(
        ttft % (part, labels, number + 1) for part, labels in buckets
    )


def test_replay_cold_shows_every_restart(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """More than the exporter remembers, of engines whose counters are above their old values at once."""
    for number in range(30):
        page = tmp_path / f"{number:03}_crash-loop_{1_795_950_030 + 60 * number}.prom"
        page.write_bytes(_restarting(number))
    assert main(["replay", str(tmp_path), "--cold"]) == 0
    _, *rows, _ = capsys.readouterr().out.splitlines()
    assert len(rows) == 30
    assert sum("  start time  " in row and "  over 60 s" in row for row in rows) == 28
    assert all(re.search(r" 2 s +- +2 s +- ", row) for row in rows)


def test_replay_measures_the_replicas_of_one_folder_by_each_other(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """A replica that has just started has no past of its own."""
    page = (
        b'vllm:prompt_tokens_total{model_name="m"} %d\nvllm:prompt_tokens_cached_total{model_name="m"} %d\n'
    )
    for name, base in (("a", 1_000_000), ("new", 0)):
        (tmp_path / name).mkdir()
        for minute in range(4):
            tokens = base + 10_000 * minute
            path = tmp_path / name / f"{minute}_{1_795_950_000 + 60 * minute}.prom"
            path.write_bytes(page % (tokens, tokens // 2))
    assert main(["replay", str(tmp_path), "--cold"]) == 0
    (row,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("new")]
    assert re.match(r"new +\S+ \S+ +first seen +60 s", row)


def test_inspect_prints_an_exposition_and_what_was_looked_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(FIXTURES / "engines" / "vllm-0.10.2" / "page.prom")]) == 0
    out, table = capsys.readouterr()
    assert 'kvcache_target_info{target="page.prom",engine="vllm",hit_basis="lookup"' in out
    assert table.splitlines()[:6] == [
        "engine       vllm",
        "hit basis    lookup",
        "ranks        0",
        "models       tiny",
        "missing      prompt_tokens_by_source, request_prefill_kv_computed_tokens",
        "deprecated   gpu_cache_usage_perc, gpu_prefix_cache_hits, gpu_prefix_cache_queries",
    ]


def test_records_prints_every_key_of_the_contract(capsys: pytest.CaptureFixture[str]) -> None:
    found = lines_of(capsys, "records", str(FIXTURES / "logs" / "openai_chat.jsonl"), "--json")
    assert list(found[0]) == [
        "timestamp", "source", "provider", "model_name", "group", "prompt_tokens", "cached_tokens",
        "written_tokens", "uncached_tokens", "output_tokens", "ttft_seconds", "duration_seconds", "outcome",
        "status",
    ]  # fmt: skip
    assert [line["outcome"] for line in found] == [
        "full", "partial", "miss", "uncacheable", "unknown", "partial", "unknown",
    ]  # fmt: skip


def test_records_says_what_it_left_out_and_which_format_it_chose(capsys: pytest.CaptureFixture[str]) -> None:
    path = str(FIXTURES / "logs" / "openai_chat.jsonl")
    assert main(["records", path]) == 0
    assert capsys.readouterr().err.splitlines() == [
        f"{path}: format openai_chat",
        f"{path}: no record: 1 x rate_limited",
    ]


def test_report_says_which_other_formats_a_mixed_file_has(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What the first format does not know is decoded as what it looks like, down to an unknown outcome."""
    logs = FIXTURES / "logs"
    mixed = tmp_path / "gateway.jsonl"
    mixed.write_text(
        "".join((logs / f"{name}.jsonl").read_text() for name in ("openai_chat", "gemini", "ollama"))
    )
    assert main(["records", str(mixed)]) == 0
    printed = capsys.readouterr()
    assert len(printed.out.splitlines()) == 7 + 6 + 1
    assert printed.err.splitlines() == [
        f"{mixed}: format openai_chat; some entries have format gemini, ollama",
        f"{mixed}: no record: 1 x rate_limited",
    ]


def _usage_log(path: Path) -> None:
    lines = []
    for number in range(100):
        cached = (0, 1000, 1990)[number % 3]
        usage = {
            "prompt_tokens": 2000,
            "completion_tokens": 5,
            "prompt_tokens_details": {"cached_tokens": cached},
        }
        lines.append({
            "ts": f"2026-11-29T10:{number // 4:02}:00.000Z", "model": "gpt-5.1", "route": f"r{number % 2}",
            "status": 200, "stream": True, "ttft_ms": 10 * (number + 1), "usage": usage,
        })  # fmt: skip
    path.write_bytes(gzip.compress("".join(json.dumps(line) + "\n" for line in lines).encode()))


def test_report_json_has_exact_totals_and_quantiles(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    _usage_log(tmp_path / "usage.jsonl.gz")
    assert main(["report", str(tmp_path / "usage.jsonl.gz"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["requests"], found["prompt_tokens"], found["cached_tokens"]) == (100, 200_000, 98_670)
    assert found["token_hit_ratio"] == 98_670 / 200_000
    assert found["outcomes"] == {"full": 33, "partial": 33, "miss": 34}
    assert found["request_hit_ratio"] == 0.33
    misses = sorted(0.01 * (n + 1) for n in range(0, 100, 3))
    assert found["ttft"]["miss"]["n"] == 34
    for name, q in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99)):
        assert found["ttft"]["miss"][name] == pytest.approx(misses[min(33, int(q * 34))])
    assert [group["group"] for group in found["groups"]] == ["r1", "r0"], "most uncached tokens first"
    assert found["cost_usd"] is None


def test_report_answers_the_four_questions(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    _usage_log(tmp_path / "usage.jsonl.gz")
    assert main(["report", str(tmp_path / "usage.jsonl.gz")]) == 0
    out = capsys.readouterr().out
    for text in (
        "1 What is the hit rate?",
        "by tokens      49.3 %   98,670 of 200,000 tokens from the cache",
        "by requests    33.0 %   33 of 100 requests skipped prefill",
        "2 What does a miss cost?",
        "3 What is evicting, and why?",
        "4 What happens when it is cold?",
        "coldest five minutes:",
    ):
        assert text in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("report", "/nowhere.jsonl"), "/nowhere.jsonl: No such file or directory"),
        (("replay", "/nowhere"), "/nowhere: no recorded page found; expected files named like"),
        (("inspect", "http://127.0.0.1:1/metrics"), "connection refused; check that the engine runs"),
        (("inspect", "10.0.0.1:8000"), "file or directory; for an engine write http://10.0.0.1:8000/metrics"),
        (("inspect", "/nowhere.prom"), "/nowhere.prom: No such file or directory; give a URL or a file"),
        (("report", "/dev/null"), "/dev/null: empty, so there is nothing to report"),
        (
            ("report", "/dev/null", "--prices", "/nowhere"),
            "/nowhere: cannot read prices: No such file or dir",
        ),
        (
            ("generate", "rules", "--out", "/proc/rules"),
            "rules: No such file or directory; check the path\n",
        ),
        (
            ("healthy", "--web.listen-address", ":1"),
            "no answer from /-/healthy: Connection refused; check that",
        ),
        (("records", "/etc/hostname"), "no request record found; no known format fits; name one with"),
    ],
)
def test_errors_say_what_is_wrong_and_end_with_1(
    arguments: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 1
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("inspect", "http://me:secret@host:port/"), 'URL_OR_FILE: found "host:port/", expected http://HOST'),
        (("inspect", "http:///metrics"), 'URL_OR_FILE: found "http:///metrics", expected http://HOST'),
        (
            ("serve", "--config.file", "/nowhere", "--web.listen-address", "x"),
            "/nowhere:1:1: document: cannot",
        ),
        (
            ("healthy", "--web.listen-address", "x"),
            "kvcache-exporter: --web.listen-address: expected host:port",
        ),
        (
            ("publish", "grafana", "--url", "http://h:p"),
            'kvcache-exporter: --url: found "http://h:p", expected',
        ),
        (
            ("publish", "prometheus", "--file", "x.txt"),
            "kvcache-exporter: --file x.txt: expected an existing",
        ),
        (("generate", "dashboards", "--direct"), "kvcache-exporter: --direct: applies to rules only"),
    ],
)
def test_bad_usage_ends_with_2(
    arguments: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert message in error
    assert "secret" not in error


@pytest.mark.parametrize("speed", ["0", "-1", "nan", "inf", "fast"])
def test_a_speed_is_a_number_above_0(speed: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["demo", "--speed", speed])
    assert caught.value.code == 2
    assert f"{speed!r} is not a number above 0" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (
            PermissionError(errno.EACCES, "Permission denied", "/x"),
            "/x: Permission denied; check the permissions",
        ),
        (OSError(errno.ENOSPC, "No space left on device"), "No space left on device; free some space"),
        (OSError("odd"), "odd"),
    ],
)
def test_what_the_system_refuses_is_told_in_one_line(
    error: OSError, text: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse() -> str:
        raise error

    monkeypatch.setattr(metrics, "markdown", refuse)
    assert main(["metrics"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"kvcache-exporter: {text}")


def test_report_of_no_usage_log_says_so(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text('{"hello":1}\nwhatever\n')
    assert main(["report", str(tmp_path / "a.log")]) == 1
    assert (
        "no request record found (1 x no_usage, 1 x not_json); no known format fits; name one with --format"
        in capsys.readouterr().err
    )


def test_a_wrong_format_is_told_the_nearest_one_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["report", "usage.jsonl", "--format", "openai"])
    assert caught.value.code == 2
    expected = 'argument --format: unknown format "openai"; did you mean "openai_chat"?'
    assert capsys.readouterr().err.splitlines()[-1] == f"kvcache-exporter report: error: {expected}"


def test_check_counts_what_it_found(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "kvcache.yaml"
    path.write_text("targets: [{static: ['10.0.0.1:8000']}, {static: ['10.0.0.2:8000']}]\n")
    assert main(["check", "--config.file", str(path)]) == 0
    assert capsys.readouterr().out == f"{path}: valid; 2 target groups, 0 log sources, 0 event sources\n"


def test_times_of_records_are_free_of_the_clocks_noise(capsys: pytest.CaptureFixture[str]) -> None:
    log = FIXTURES / "logs" / "litellm_slp.jsonl"
    ttfts = {line["ttft_seconds"] for line in lines_of(capsys, "records", str(log), "--json")}
    assert ttfts == {0.4, None}


def test_every_command_has_help(capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("serve", "check", "demo", "inspect", "records", "report", "replay", "metrics"):
        with pytest.raises(SystemExit) as ended:
            parser().parse_args([command, "--help"])
        assert ended.value.code == 0
    assert capsys.readouterr().out.count("usage: kvcache-exporter") == 8
    with pytest.raises(SystemExit) as ended:
        parser().parse_args(["nonsense"])
    assert ended.value.code == 2


def test_the_demo_plays_and_answers(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--duration", "6", "--speed", "20", "--web.listen-address", "127.0.0.1:0"]) == 0
    out = capsys.readouterr().out
    assert "Playing a recording of sglang and vllm" in out
    assert len(re.findall(r"http://127\.0\.0\.1:\d+/metrics", out.split("recorded second")[0])) == 3
    assert "    ? " not in out
    last = out[out.rindex("1 What is the hit rate?") :]
    assert re.search(r"vllm 127\.0\.0\.1:\d+ +by tokens +\d+\.\d %", last)
    assert re.search(r"gateway +full <=\S+ / <=\S+ s +partial <=", last)
