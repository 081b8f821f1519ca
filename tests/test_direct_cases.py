"""Rules over raw pages on small pages: each case is one thing that is easily got wrong."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from alert_cases import promtool, write_test
from direct_pages import STEP, Target, input_series
from kvcache_alerts.write import files
from kvcache_exporter.direct import direct_rules

KEY = 'namespace="prod", model_name="m"'
ONE = f'target="replica-0:8000", {KEY}'


def page(lines: str, prefix: str = "vllm:", labels: str = 'model_name="m"') -> bytes:
    """`name value` or `name{more labels} value`, one a line, under the prefix and with the labels."""
    made = []
    for line in filter(None, map(str.strip, lines.splitlines())):
        series, value = line.rsplit(" ", 1)
        name, _, more = series.rstrip("}").partition("{")
        every = ", ".join(filter(None, (more, labels)))
        made.append(f"{prefix}{name}{{{every}}} {value}\n")
    return "".join(made).encode()


@dataclass(frozen=True)
class Case:
    """`finds` maps an expression to the series it gives at the last page."""

    says: str
    targets: Sequence[Target]
    finds: Mapping[str, Mapping[str, float]]
    settings: Mapping[str, str] = field(default_factory=dict)
    step: int = STEP
    """Seconds between pages, and between evaluations."""


def _generations(old: tuple[int, int] | None, new: tuple[int, int] | None) -> bytes:
    lines = ""
    for prefix, pair in (("gpu_prefix_cache", old), ("prefix_cache", new)):
        if pair:
            lines += f"{prefix}_queries_total {pair[0]}\n{prefix}_hits_total {pair[1]}\n"
    return page(lines + "num_requests_running 1", labels='engine="0", model_name="m"')


def _lookups(queries: int, hits: int, deprecated: int) -> dict[str, dict[str, float]]:
    rank = f'{ONE}, engine_rank="0"'
    return {
        "kvcache_prefix_query_tokens_total": {f"kvcache_prefix_query_tokens_total{{{rank}}}": queries},
        "kvcache_prefix_hit_tokens_total": {
            f'kvcache_prefix_hit_tokens_total{{{rank}, tier="device"}}': hits
        },
        "kvcache_target_deprecated_families": {
            'kvcache_target_deprecated_families{target="replica-0:8000"}': deprecated
        },
        "kvcache_target_info": {
            'kvcache_target_info{target="replica-0:8000", engine="vllm", hit_basis="lookup"}': 1
        },
        "kvcache_cached_prompt_tokens_total": {},
    }


GENERATIONS = (
    Case(
        "a page with both generations of names counts once",
        [Target([_generations((1000, 500), (1000, 500)), _generations((3000, 1700), (3000, 1700))])],
        _lookups(3000, 1700, 2),
    ),
    Case(
        "the old generation alone is read",
        [Target([_generations((1000, 500), None), _generations((3000, 1700), None)])],
        _lookups(3000, 1700, 2),
    ),
    Case(
        "a frozen old pair loses",
        [Target([_generations((0, 0), (1000, 500)), _generations((0, 0), (3000, 1700))])],
        _lookups(3000, 1700, 2),
    ),
    Case(
        "each target takes its own first source",
        [
            Target([_generations((3000, 1700), None)], instance="old:8000"),
            Target([_generations((9, 9), (500, 100))], instance="new:8000"),
        ],
        {
            "kvcache_prefix_query_tokens_total": {
                f'kvcache_prefix_query_tokens_total{{target="{name}:8000", {KEY}, engine_rank="0"}}': count
                for name, count in (("old", 3000), ("new", 500))
            }
        },
    ),
)


def _ranks(first: tuple[int, int], second: tuple[int, int]) -> bytes:
    ranks = ((0, first, 3, 0.9), (1, second, 5, 0.1))
    return page(
        "\n".join(
            f'{name}{{engine="{rank}"}} {value}'
            for rank, (prompt, cached), running, usage in ranks
            for name, value in (
                ("prompt_tokens_total", prompt),
                ("prompt_tokens_cached_total", cached),
                ("num_requests_running", running),
                ("kv_cache_usage_perc", usage),
            )
        )
    )


RANKS = Case(
    "data-parallel ranks are summed, their usage is not, and the hit rate is weighted by tokens",
    [Target([_ranks((1000 * n, 900 * n), (9000 * n, 900 * n)) for n in range(9)])],
    {
        "target_model:kvcache_running_requests:sum": {
            f"target_model:kvcache_running_requests:sum{{{ONE}}}": 8
        },
        "target_model:kvcache_usage_ratio:max": {
            f'target_model:kvcache_usage_ratio:max{{{ONE}, tier="device"}}': 0.9
        },
        "round(1e6 * target_model:kvcache_token_hit:ratio_rate5m)": {f"{{{ONE}}}": 180_000},
        "kvcache_running_requests": {
            f'kvcache_running_requests{{{ONE}, engine_rank="{rank}"}}': n for rank, n in ((0, 3), (1, 5))
        },
    },
)

_TWICE = page('prompt_tokens_total 100\nnum_requests_running 2\nnum_requests_running{server="x"} 50')
PROCESSES = (
    Case(
        "a page under two prefixes says everything once, and a router's copies are not the engine's",
        [Target([_TWICE + page("prompt_tokens_total 100\nnum_requests_running 2", prefix="ray_vllm_")])],
        {
            "kvcache_prompt_tokens_total": {f"kvcache_prompt_tokens_total{{{ONE}}}": 100},
            "kvcache_running_requests": {f"kvcache_running_requests{{{ONE}}}": 2},
        },
    ),
    Case(
        "two jobs that scrape one process do not double it",
        [Target([_TWICE], job="pods", more={"pod": "p"}), Target([_TWICE], job="services")],
        {"kvcache_prompt_tokens_total": {f"kvcache_prompt_tokens_total{{{ONE}}}": 100}},
    ),
    Case(
        "labels join to the name that pods have, and clusters stay apart",
        [
            Target([_TWICE], instance=f"10.0.0.{n}:8000", more={"pod": f"vllm-{n}", "cluster": f"c{n}"})
            for n in (1, 2)
        ],
        {
            "kvcache_running_requests": {
                f'kvcache_running_requests{{target="prod/vllm-{n}", cluster="c{n}", {KEY}}}': 2
                for n in (1, 2)
            },
            "kvcache_target_up": {
                f'kvcache_target_up{{target="prod/vllm-{n}", cluster="c{n}", engine="vllm"}}': 1
                for n in (1, 2)
            },
            "kvcache_target_info": {
                f'kvcache_target_info{{target="prod/vllm-{n}", cluster="c{n}", engine="vllm"}}': 1
                for n in (1, 2)
            },
            "kvcache_target_last_success_timestamp_seconds": {
                f'kvcache_target_last_success_timestamp_seconds{{target="prod/vllm-{n}", cluster="c{n}"}}': 0
                for n in (1, 2)
            },
        },
        {"target_label": "namespace,pod"},
    ),
    Case(
        "two engines under one name break no rule",
        [
            Target([_TWICE], instance="10.0.0.1:8000", more={"pod": "p"}),
            Target(
                [page("num_lookup_tokens_total 6", "lmcache:")], instance="10.0.0.1:9000", more={"pod": "p"}
            ),
        ],
        {
            "kvcache_target_info": {
                'kvcache_target_info{target="p", engine="vllm"}': 1,
                'kvcache_target_info{target="p", engine="lmcache"}': 1,
            },
            "kvcache_running_requests": {f'kvcache_running_requests{{target="p", {KEY}}}': 2},
            "kvcache_prefix_query_tokens_total": {
                f'kvcache_prefix_query_tokens_total{{target="p", {KEY}}}': 6
            },
        },
        {"target_label": "pod"},
    ),
    Case(
        "the selector keeps other jobs out",
        [Target([_TWICE], instance="a:1", job="live"), Target([_TWICE], instance="b:1", job="test")],
        {"kvcache_running_requests": {f'kvcache_running_requests{{target="a:1", {KEY}}}': 2}},
        {"engine_selector": 'job="live"'},
    ),
    Case(
        "a target that does not answer is known as down, and its series end",
        [Target([_TWICE, None, None]), Target([b"other 1\n"] * 3, instance="no-engine:1")],
        {
            "kvcache_target_up": {'kvcache_target_up{target="replica-0:8000", engine="vllm"}': 0},
            "kvcache_target_last_success_timestamp_seconds": {
                'kvcache_target_last_success_timestamp_seconds{target="replica-0:8000"}': 0
            },
            "kvcache_running_requests": {},
            "kvcache_target_info": {},
        },
    ),
    Case(
        "an address that another engine takes over is that engine's",
        [Target([_TWICE, page("num_running_reqs 4", prefix="sglang:")])],
        {
            "kvcache_target_up": {'kvcache_target_up{target="replica-0:8000", engine="sglang"}': 1},
            "kvcache_running_requests": {f"kvcache_running_requests{{{ONE}}}": 4},
        },
    ),
)


def _sglang(lines: str) -> Target:
    evicted = page('evicted_tokens_total{dp_rank="0", tp_rank="0"} 7', "sglang:", "")
    return Target([page(lines, "sglang:") + evicted])


SGLANG = (
    Case(
        "of tensor-parallel twins the lowest is read, also where ranks of two kinds go together",
        [
            _sglang(
                """
                num_running_reqs{dp_rank="0", tp_rank="0"} 3
                num_running_reqs{dp_rank="0", tp_rank="1"} 4
                num_running_reqs{dp_rank="1", tp_rank="2"} 5
                realtime_tokens_total{dp_rank="0", tp_rank="0", mode="prefill_cache"} 10
                realtime_tokens_total{dp_rank="0", tp_rank="1", mode="prefill_cache"} 10
                """
            )
        ],
        {
            "kvcache_running_requests": {
                f'kvcache_running_requests{{{ONE}, engine_rank="{rank}"}}': n for rank, n in ((0, 3), (1, 5))
            },
            "kvcache_prefix_hit_tokens_total": {
                f'kvcache_prefix_hit_tokens_total{{{ONE}, engine_rank="0", tier="device"}}': 10
            },
            "kvcache_evicted_tokens_total": {f'kvcache_evicted_tokens_total{{{ONE}, tier="device"}}': 7},
        },
    ),
    Case(
        "one rank is none, a family without a model gets the page's, priorities are parts of the total",
        [
            _sglang(
                """
                num_running_reqs{dp_rank="0", tp_rank="0"} 3
                num_running_reqs{dp_rank="0", tp_rank="0", priority="1"} 2
                full_token_usage{dp_rank="0", pp_rank="0"} 0.25
                full_token_usage{dp_rank="0", pp_rank="1"} 0.5
                cached_tokens_total{cache_source="device"} 30
                cached_tokens_total{cache_source="host"} 20
                cached_tokens_total{cache_source="storage"} 10
                prompt_tokens_total{is_streaming="true"} 70
                prompt_tokens_total{is_streaming="false"} 30
                hicache_host_used_tokens 25
                hicache_host_total_tokens 100
                """
            )
        ],
        {
            "kvcache_running_requests": {f"kvcache_running_requests{{{ONE}}}": 3},
            "kvcache_evicted_tokens_total": {f'kvcache_evicted_tokens_total{{{ONE}, tier="device"}}': 7},
            "kvcache_prompt_tokens_total": {f"kvcache_prompt_tokens_total{{{ONE}}}": 100},
            "kvcache_cached_prompt_tokens_total": {
                f'kvcache_cached_prompt_tokens_total{{{ONE}, tier="{tier}"}}': n
                for tier, n in (("device", 30), ("host", 20), ("disk", 10))
            },
            "kvcache_usage_ratio": {
                f'kvcache_usage_ratio{{{ONE}, tier="{tier}"}}': share
                for tier, share in (("device", 0.25), ("host", 0.25))
            },
        },
    ),
    Case(
        "with two models on a page a family without one has none",
        [
            Target(
                [
                    page("num_running_reqs 1", "sglang:")
                    + page("num_running_reqs 2", "sglang:", 'model_name="n"')
                    + page("evicted_tokens_total 7", "sglang:", "")
                ]
            )
        ],
        {
            "kvcache_evicted_tokens_total": {
                'kvcache_evicted_tokens_total{target="replica-0:8000", namespace="prod", tier="device"}': 7
            }
        },
    ),
)


def _requests(block: str) -> Target:
    edges = ("1", "2", "5", "10.0", "20.0", "50.0", "100.0", "+Inf")
    lines = "num_requests_running 0\n"
    for n, edge in enumerate(edges):
        lines += f'request_prompt_tokens_bucket{{le="{edge}"}} {n}\n'
        # The other has one edge less in common.
        shown = "30.0" if edge == "20.0" else edge
        lines += f'request_prefill_kv_computed_tokens_bucket{{le="{shown}"}} {2 * n}\n'
    return Target([page(lines) + page(f'cache_config_info{{block_size="{block}"}} 1', labels="")])


def _threshold(block: str, edge: float | None) -> Case:
    found = {} if edge is None else {f"kvcache_request_hit_threshold_tokens{{{ONE}}}": edge}
    said = f"a block of {block or 'unknown size'} gives the edge {edge}"
    return Case(said, [_requests(block)], {"kvcache_request_hit_threshold_tokens": found})


THRESHOLDS = tuple(
    _threshold(block, edge)
    for block, edge in (("8", 10), ("16", 50), ("64", 100), ("1", 1), ("", 50), ("48", None))
)

COMPUTED = Case(
    "cached tokens of finished requests are prompts less computed ones, and never below none",
    [
        Target([page(f"request_prompt_tokens_sum {p}\nrequest_prefill_kv_computed_tokens_sum {q}\n"
                     "num_requests_running 0")], instance=f"{name}:1")
        for name, p, q in (("a", 100, 30), ("b", 100, 130))
    ],
    {
        "kvcache_cached_prompt_tokens_total": {
            f'kvcache_cached_prompt_tokens_total{{target="{name}:1", {KEY}, tier="device"}}': n
            for name, n in (("a", 70), ("b", 0))
        },
        "kvcache_target_info": {
            f'kvcache_target_info{{target="{name}:1", engine="vllm", hit_basis="computed"}}': 1
            for name in "ab"
        },
    },
)  # fmt: skip

_MINUTES = 30
_FIRING = 'count by (alertname, target) (ALERTS{alertstate="firing"})'


def _busy(minutes: float, preempted: int, caching: str = "True") -> bytes:
    """A replica with steady traffic and a hit rate of a half, after so many minutes."""
    seconds = 60 * minutes
    return page(
        f"""
        prompt_tokens_total {1000 * seconds:g}
        prompt_tokens_cached_total {500 * seconds:g}
        prefix_cache_queries_total {1000 * seconds:g}
        prefix_cache_hits_total {500 * seconds:g}
        num_preemptions_total {preempted}
        kv_cache_usage_perc 0.5
        num_requests_running 4
        num_requests_waiting 0
        request_success_total {seconds:g}
        request_prefill_time_seconds_sum {seconds / 10:g}
        time_to_first_token_seconds_bucket{{le="+Inf"}} {seconds:g}
        time_to_first_token_seconds_sum {seconds / 10:g}
        time_to_first_token_seconds_count {seconds:g}
        request_prompt_tokens_bucket{{le="50"}} 0
        request_prompt_tokens_bucket{{le="+Inf"}} {seconds:g}
        request_prompt_tokens_sum {1000 * seconds:g}
        request_prompt_tokens_count {seconds:g}
        request_prefill_kv_computed_tokens_bucket{{le="50"}} {seconds / 2:g}
        request_prefill_kv_computed_tokens_bucket{{le="+Inf"}} {seconds:g}
        request_prefill_kv_computed_tokens_sum {500 * seconds:g}
        request_prefill_kv_computed_tokens_count {seconds:g}
        """
    ) + page(f'cache_config_info{{block_size="16", enable_prefix_caching="{caching}"}} 1', labels="")


def _alerting(says: str, pages: Sequence[bytes | None], *alerts: str) -> Case:
    fires = {f'{{alertname="{alert}", target="replica-0:8000"}}': 1.0 for alert in alerts}
    return Case(says, [Target(pages)], {_FIRING: fires}, {"engines": "vllm"}, step=60)


_TIMES = range(_MINUTES)
ALERTING = (
    _alerting("steady traffic raises nothing", [_busy(at, 0) for at in _TIMES]),
    _alerting(
        "preemptions raise their alert",
        [_busy(at, round(120 * max(0, at - _MINUTES + 8))) for at in _TIMES],
        "KVCachePreemptionSpike",
    ),
    _alerting(
        "a replica without caching raises its alert",
        [_busy(at, 0, "False") for at in _TIMES],
        "KVCachePrefixCachingDisabled",
    ),
    _alerting(
        "an engine that stops answering raises its alert",
        [_busy(at, 0) if at < _MINUTES / 2 else None for at in _TIMES],
        "KVCacheTargetDown",
    ),
    _alerting(
        "a page that lacks what its table needs raises its alert only after an hour",
        [page(f"prompt_tokens_total {at}") for at in _TIMES],
    ),
)

CASES = (*GENERATIONS, RANKS, *PROCESSES, *SGLANG, *THRESHOLDS, COMPUTED, *ALERTING)


def run(folder: Path, cases: Sequence[Case]) -> str:
    """What promtool says of the cases that do not hold."""
    tests = [_written(folder, place, case) for place, case in enumerate(cases)]
    said = promtool(tests).split("Unit Testing:")
    return "".join(text for text in said if "FAILED" in text)


def _written(folder: Path, place: int, case: Case) -> Path:
    at = case.step * (max(len(target.pages) for target in case.targets) - 1)
    checks = [
        {
            "expr": expr,
            "eval_time": f"{at}s",
            "exp_samples": [{"labels": k, "value": v} for k, v in found.items()],
        }
        for expr, found in case.finds.items()
    ]
    test = {
        "name": case.says,
        "interval": f"{case.step}s",
        "input_series": input_series(case.targets),
        "promql_expr_test": checks,
    }
    rules = _rules(folder, tuple(case.settings.items()))
    document = {"rule_files": rules, "evaluation_interval": f"{case.step}s", "tests": [test]}
    return write_test(folder / f"{place}.test.yaml", document)


@cache
def _rules(folder: Path, settings: tuple[tuple[str, str], ...]) -> list[str]:
    """Written once for all cases with the same settings."""
    texts = files(dict(settings), direct_rules)
    for name, text in texts.items():
        (folder / f"{hash(settings)}-{name}").write_text(text)
    return [f"{hash(settings)}-{name}" for name in texts]


def test_small_pages_give_exactly_these_series(tmp_path: Path) -> None:
    assert not run(tmp_path, CASES)


def test_a_wrong_number_would_be_seen(tmp_path: Path) -> None:
    wrong = Case("wrong", RANKS.targets, {"kvcache_running_requests": {}})
    assert "FAILED" in run(tmp_path, [wrong])
