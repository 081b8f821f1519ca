"""Samples to text: escapes, limits, and equal values on the way back through the reference parser."""

import math

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from kvcache_exporter import catalogue as c
from kvcache_exporter.exposition import Page, Renderer, exposition
from kvcache_exporter.model import Distribution, Sample

_texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r"), max_size=20)


@given(_texts, _texts, st.floats(allow_nan=True, allow_infinity=True))
def test_labels_and_values_come_back_as_they_were(model: str, target: str, value: float) -> None:
    text = exposition([Sample(c.RUNNING_REQUESTS, (target, "", model, ""), value)])
    (family,) = text_string_to_metric_families(text)
    (sample,) = family.samples
    assert sample.labels == {k: v for k, v in (("target", target), ("model_name", model)) if v}
    assert sample.value == value or (math.isnan(sample.value) and math.isnan(value))


def test_a_histogram_has_cumulative_buckets_sum_and_count() -> None:
    state = Distribution((0.5, 1.0), (1.0, 3.0, 4.0), 6.5)
    assert exposition([Sample(c.ENGINE_TTFT, ("t", "", "m", "", ""), state)]).splitlines()[2:] == [
        'kvcache_engine_time_to_first_token_seconds_bucket{target="t",model_name="m",le="0.5"} 1.0',
        'kvcache_engine_time_to_first_token_seconds_bucket{target="t",model_name="m",le="1.0"} 3.0',
        'kvcache_engine_time_to_first_token_seconds_bucket{target="t",model_name="m",le="+Inf"} 4.0',
        'kvcache_engine_time_to_first_token_seconds_sum{target="t",model_name="m"} 6.5',
        'kvcache_engine_time_to_first_token_seconds_count{target="t",model_name="m"} 4.0',
    ]


def test_openmetrics_differs_only_in_comments() -> None:
    samples = [Sample(c.PROMPT_TOKENS, ("t", "", "m", ""), 1.0), Sample(c.BUILD_INFO, ("1", "3.11"), 1.0)]
    plain, strict = exposition(samples), exposition(samples, openmetrics=True)
    assert "# TYPE kvcache_prompt_tokens_total counter" in plain
    assert "# TYPE kvcache_prompt_tokens counter" in strict
    assert "# TYPE kvcache_exporter_build info" in strict
    without = [line for line in strict.splitlines() if not line.startswith("#")]
    assert without == [line for line in plain.splitlines() if not line.startswith("#")]


def test_the_operators_own_labels_stand_on_every_sample() -> None:
    block = Renderer((("cluster", 'a"b'),)).block([Sample(c.TARGET_UP, ("t", "vllm"), 1.0)])
    assert block[c.TARGET_UP].text == 'kvcache_target_up{target="t",engine="vllm",cluster="a\\"b"} 1.0\n'


def test_a_family_over_its_limit_is_cut_and_counted_and_the_others_are_not() -> None:
    page = Page(limit=3)
    blocks = [
        Renderer().block(
            [Sample(c.RUNNING_REQUESTS, (f"t{n}", "", "m", ""), 1.0), Sample(c.CONFIG_RELOAD_OK, (), 1.0)]
        )
        for n in range(5)
    ]
    text = page.text(blocks)
    assert text.count("kvcache_running_requests{") == 3
    assert 'kvcache_exporter_dropped_series_total{metric="kvcache_running_requests"} 2.0' in text
    assert page.text(blocks).count("kvcache_running_requests{") == 3
    assert 'dropped_series_total{metric="kvcache_running_requests"} 4.0' in page.text([])
    assert Page(limit=5).text(blocks).count("kvcache_running_requests{") == 5
