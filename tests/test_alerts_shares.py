"""Recorded shares at their edges: all hits or none, with one series read a scrape before the other."""

from pathlib import Path

import pytest

from alert_cases import ENGINE, REPLICA, run_recording

_TARGET = ", ".join(f'{name}="{value}"' for name, value in REPLICA.items())
_TOKEN_HIT = "target_model:kvcache_token_hit:ratio_rate5m"
_REQUEST_HIT = "target_model:kvcache_engine_request_hit:ratio_rate5m"


@pytest.mark.parametrize(
    ("cached", "expected"), [(600, {_TARGET: 1.0}), (612, {_TARGET: 1.0}), (700, {}), (300, {_TARGET: 0.5})]
)
def test_a_replica_whose_every_token_hits_keeps_its_hit_rate(
    tmp_path: Path, cached: int, expected: dict[str, float]
) -> None:
    """Some percent too many are a matter of the moment of reading; more than that is not to be believed."""
    series = {
        f"kvcache_prompt_tokens_total{{{ENGINE}}}": "0+600x20",
        f"kvcache_cached_prompt_tokens_total{{{ENGINE}}}": f"0+{cached}x20",
    }
    assert not run_recording(tmp_path, series, {_TOKEN_HIT: expected})


@pytest.mark.parametrize(("computed", "ratio"), [(590, 0.0), (600, 0.0), (1200, 1.0), (1210, 1.0)])
def test_requests_at_the_threshold_make_a_share_of_the_long_ones(
    tmp_path: Path, computed: int, ratio: float
) -> None:
    """Of 1,200 requests a minute 600 are short; hits are what the threshold's bucket has beyond them."""
    series = {
        f"kvcache_request_hit_threshold_tokens{{{ENGINE}}}": "50x20",
        f'kvcache_engine_prompt_tokens_bucket{{{ENGINE}, le="50"}}': "0+600x20",
        f"kvcache_engine_prompt_tokens_count{{{ENGINE}}}": "0+1200x20",
        f'kvcache_engine_computed_prompt_tokens_bucket{{{ENGINE}, le="50"}}': f"0+{computed}x20",
    }
    assert not run_recording(tmp_path, series, {_REQUEST_HIT: {_TARGET: ratio}})
