"""What is recorded of routers: predictions by requests and deliveries by tokens, apart, never above 1."""

from pathlib import Path

from alert_cases import run_recording

_ROUTER = 'target="epp:9090", namespace="llm", model_name="org/m"'
_SERIES = {
    f'kvcache_router_predicted_hit_ratio_sum{{{_ROUTER}, index="gpu"}}': "0+30x20",
    f'kvcache_router_predicted_hit_ratio_count{{{_ROUTER}, index="gpu"}}': "0+60x20",
    f'kvcache_router_predicted_hit_ratio_sum{{{_ROUTER}, index="cpu"}}': "0+15x20",
    f'kvcache_router_predicted_hit_ratio_count{{{_ROUTER}, index="cpu"}}': "0+60x20",
    f"kvcache_router_cached_tokens_total{{{_ROUTER}}}": "0+2700x20",
    f"kvcache_router_input_tokens_total{{{_ROUTER}}}": "0+6000x20",
    f'kvcache_router_requests_total{{{_ROUTER}, worker="a"}}': "0+45x20",
    f'kvcache_router_requests_total{{{_ROUTER}, worker="b"}}': "0+15x20",
}
_MODEL = 'namespace="llm", model_name="org/m"'
_EXPECTED = {
    "model:kvcache_router_predicted_hit:ratio_rate5m": {
        f'{_MODEL}, index="gpu"': 0.5,
        f'{_MODEL}, index="cpu"': 0.25,
    },
    "model:kvcache_router_delivered_hit:ratio_rate5m": {_MODEL: 0.45},
    "model:kvcache_router_requests:rate5m": {
        f'{_MODEL}, worker="a"': 0.75,
        f'{_MODEL}, worker="b"': 0.25,
    },
}


def test_predicted_and_delivered_hit_rates_are_recorded_by_model(tmp_path: Path) -> None:
    assert not run_recording(tmp_path, _SERIES, _EXPECTED)


def test_more_cached_than_input_tokens_give_no_delivered_rate(tmp_path: Path) -> None:
    """A router may count requests at different moments: nothing is shown above 1."""
    cached = f"kvcache_router_cached_tokens_total{{{_ROUTER}}}"
    record = "model:kvcache_router_delivered_hit:ratio_rate5m"
    assert not run_recording(tmp_path, _SERIES | {cached: "0+9000x20"}, {record: {}})
