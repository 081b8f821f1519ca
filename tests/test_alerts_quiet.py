"""A healthy fleet raises no alert, whatever ordinary thing happens to it."""

from pathlib import Path

import pytest

from alert_cases import promtool, write_rules, write_test
from kvcache_alerts.write import ALERTS
from kvcache_exporter.catalogue import ANOMALY_REASONS

MINUTES, CHANGE = 120, 60
Series = dict[str, tuple[float, float]]
"""Selector to value at minute 0 and increase a minute."""


def _rank(target: str, rank: str, born: float) -> Series:
    labels = f'target="{target}", model_name="m", engine_rank="{rank}"'
    device = f'{labels}, tier="device"'
    warm = f'kvcache_engine_time_to_first_token_seconds_bucket{{{labels}, phase="warm"'
    counters: dict[str, float] = {
        f"kvcache_prompt_tokens_total{{{labels}}}": 12000,
        f"kvcache_cached_prompt_tokens_total{{{device}}}": 9600,
        f"kvcache_evicted_tokens_total{{{device}}}": 600,
        f"kvcache_stored_blocks_total{{{device}}}": 150,
        f"kvcache_evicted_blocks_total{{{device}}}": 40,
        f"kvcache_rewarmed_blocks_total{{{labels}}}": 5,
        f"kvcache_preemptions_total{{{labels}}}": 0,
        f"kvcache_engine_requests_total{{{labels}}}": 60,
        f"kvcache_engine_prompt_tokens_count{{{labels}}}": 60,
        f'kvcache_engine_prompt_tokens_bucket{{{labels}, le="50.0"}}': 2,
        f'kvcache_engine_computed_prompt_tokens_bucket{{{labels}, le="50.0"}}': 40,
        f'{warm}, le="1.0"}}': 58,
        f'{warm}, le="5.0"}}': 60,
        f'{warm}, le="+Inf"}}': 60,
    }
    gauges: dict[str, float] = {
        f"kvcache_capacity_tokens{{{device}}}": 8000,
        f"kvcache_usage_ratio{{{device}}}": 0.6,
        f"kvcache_waiting_requests{{{labels}}}": 0,
        f"kvcache_running_requests{{{labels}}}": 4,
        f"kvcache_prefix_caching_enabled{{{labels}}}": 1,
        f"kvcache_request_hit_threshold_tokens{{{labels}}}": 50,
    }
    return {k: (born, v) for k, v in counters.items()} | {k: (v, 0) for k, v in gauges.items()}


def _target(name: str, born: float) -> Series:
    found: Series = {
        f'kvcache_target_up{{target="{name}", engine="vllm"}}': (1, 0),
        f'kvcache_warm{{target="{name}"}}': (1, 0),
        f'kvcache_age_seconds{{target="{name}"}}': (90000, 60),
        f'kvcache_target_missing_families{{target="{name}"}}': (0, 0),
        f'kvcache_target_deprecated_families{{target="{name}"}}': (0, 0),
        f'kvcache_events_total{{target="{name}", event="stored"}}': (born, 60),
        f'kvcache_events_lost_total{{target="{name}"}}': (born, 0),
    }
    anomalies = (f'kvcache_data_anomalies_total{{target="{name}", reason="{r}"}}' for r in ANOMALY_REASONS)
    return found | dict.fromkeys(anomalies, (born, 0)) | _rank(name, "0", born) | _rank(name, "1", born)


def _log(born: float) -> Series:
    labels = 'source="gateway", provider="vllm", model_name="m", group="chat"'
    found: Series = {
        f"kvcache_request_prompt_tokens_total{{{labels}}}": (born, 72000),
        f"kvcache_request_cached_tokens_total{{{labels}}}": (born, 57600),
        f'kvcache_request_written_tokens_total{{{labels}, ttl="5m"}}': (born, 14400),
        'kvcache_log_lines_total{source="gateway"}': (born, 360),
        'kvcache_log_parse_failures_total{source="gateway", reason="no_usage"}': (born, 1),
        'kvcache_log_last_record_timestamp_seconds{source="gateway"}': (0, 60),
        'kvcache_log_lag_bytes{source="gateway"}': (0, 0),
    }
    for outcome, rate in (("full", 220), ("partial", 100), ("miss", 40)):
        found[f'kvcache_requests_total{{{labels}, outcome="{outcome}"}}'] = (born, rate)
        bucket = f'kvcache_request_time_to_first_token_seconds_bucket{{{labels}, outcome="{outcome}"'
        for edge, share in (("1.0", 0.98), ("5.0", 1), ("+Inf", 1)):
            found[f'{bucket}, le="{edge}"}}'] = (born, rate * share)
    return found


_EXPORTER: Series = {
    'up{job="kvcache", instance="e:9409"}': (1, 0),
    'kvcache_exporter_build_info{job="kvcache", instance="e:9409"}': (1, 0),
    'kvcache_exporter_config_last_reload_successful{job="kvcache", instance="e:9409"}': (1, 0),
}


def fleet(born: float = 0) -> Series:
    targets = [_target(f"pod-{n}", born) for n in range(3)]
    return {k: v for part in (*targets, _log(born), _EXPORTER) for k, v in part.items()}


def _line(start: float, step: float, minutes: int) -> str:
    return f"{start}+{step}x{minutes - 1}"


def steady(series: Series) -> dict[str, str]:
    return {k: _line(start, step, MINUTES) for k, (start, step) in series.items()}


def _then(series: Series, which: str, change: str) -> dict[str, str]:
    """Steady for an hour; then what `which` is in goes on as `change` says."""
    found = steady(series)
    for selector, (start, step) in series.items():
        if which not in selector or selector.startswith("up"):
            continue
        before, reached = _line(start, step, CHANGE), start + step * (CHANGE - 1)
        counter = step > 0 and "age_seconds" not in selector and "timestamp" not in selector
        rest = MINUTES - CHANGE
        if change == "vanish":
            found[selector] = f"{before} stale"
        elif change == "reset" and counter:
            found[selector] = f"{before} {_line(0, step, rest)}"
        elif change == "idle" and counter:
            found[selector] = f"{before} {_line(reached, 0, rest)}"
        elif change == "trickle" and counter:
            # One request in ten minutes, a miss: nothing that stands for a hit counts on.
            moves = not any(part in selector for part in ("cached", '"full"', '"partial"', "computed"))
            tens = " ".join(f"{reached + (n if moves else 0)}x9" for n in range(rest // 10))
            found[selector] = f"{before} {tens}"
    return found


def _lookup_only() -> Series:
    return {
        k: v for k, v in fleet().items() if not (("pod-2" in k and "cached_prompt" in k) or "computed" in k)
    }


def _restarted() -> dict[str, str]:
    found = _then(fleet(), 'target="pod-0"', "reset")
    return found | {
        'kvcache_age_seconds{target="pod-0"}': f"{_line(90000, 60, CHANGE)} {_line(0, 60, MINUTES - CHANGE)}",
        'kvcache_warm{target="pod-0"}': f"{_line(1, 0, CHANGE)} 0x4 {_line(1, 0, MINUTES - CHANGE - 5)}",
    }


def _idle() -> dict[str, str]:
    found = _then(fleet(), "kvcache_", "idle")
    stands = 'kvcache_log_last_record_timestamp_seconds{source="gateway"}'
    return found | {stands: f"{_line(0, 60, CHANGE)} {_line(3540, 0, MINUTES - CHANGE)}"}


SCENARIOS = {
    "a fresh install and two hours of traffic": steady(fleet()),
    "a fresh Prometheus whose counters are born above zero": steady(fleet(born=5e6)),
    "traffic ends": _idle(),
    "one request every ten minutes is left": _then(fleet(), "kvcache_", "trickle"),
    "a replica restarts and warms up": _restarted(),
    "one rank restarts": _then(fleet(), 'target="pod-0", model_name="m", engine_rank="1"', "reset"),
    "the exporter restarts and its counters reset": _then(fleet(), 'source="gateway"', "reset"),
    "a replica vanishes": _then(fleet(), 'target="pod-2"', "vanish"),
    "one replica is of a generation that only counts lookups": steady(_lookup_only()),
}
TIMES = (
    2,
    4,
    6,
    10,
    20,
    40,
    CHANGE,
    CHANGE + 1,
    CHANGE + 4,
    CHANGE + 8,
    CHANGE + 20,
    CHANGE + 40,
    CHANGE + 55,
)
EXPECTED = {"a replica vanishes": {"KVCacheTargetsMissing"}}


@pytest.mark.timeout(300)
def test_a_healthy_fleet_is_silent(tmp_path: Path) -> None:
    paths = []
    for number, (name, series) in enumerate(SCENARIOS.items()):
        silent = {alert.name for alert in ALERTS} - EXPECTED.get(name, set())
        test = {
            "name": name,
            "interval": "1m",
            "input_series": [{"series": k, "values": v} for k, v in series.items()],
            "alert_rule_test": [
                {"eval_time": f"{at}m", "alertname": alert, "exp_alerts": []}
                for at in TIMES
                for alert in sorted(silent)
            ],
        }
        document = {"rule_files": write_rules(tmp_path, {}), "evaluation_interval": "1m", "tests": [test]}
        paths.append(write_test(tmp_path / f"{number}.test.yaml", document))
    assert not promtool(paths)
