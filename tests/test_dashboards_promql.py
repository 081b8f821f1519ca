"""Every expression on the boards is PromQL, old and new, over names and labels that exist."""

import json
import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import promql_parser as ast
import pytest
import yaml

from kvcache_alerts.write import files as rule_files
from kvcache_dashboards.queries import Scope, edge_text, or_zero, ratio
from kvcache_dashboards.write import files
from kvcache_exporter import catalogue as c
from kvcache_exporter.catalogue import CATALOGUE, Metric

SUFFIXES = {"histogram": ("_bucket", "_sum", "_count")}
SERIES: dict[str, Metric] = {m.name + s: m for m in CATALOGUE for s in SUFFIXES.get(m.kind, ("",))}
RULES: dict[str, str] = {
    rule["record"]: rule["expr"]
    for group in yaml.safe_load(rule_files({})["recording.yaml"])["groups"]
    for rule in group["rules"]
}


def _expressions() -> Iterator[tuple[str, str]]:
    """Where each stands and what it says, annotations and variables included."""
    for name, text in files({}).items():
        board = json.loads(text)
        for panel in board["panels"]:
            for target in panel.get("targets", []):
                yield f"{name}: {panel['title']} {target['refId']}", target["expr"]
        for annotation in board["annotations"]["list"]:
            yield f"{name}: {annotation['name']}", annotation["target"]["expr"]


EXPRESSIONS = dict(_expressions())


def _filled(expression: str) -> str:
    """As Grafana asks it: intervals and variables put in."""
    return re.sub(r"\$\w+", ".*", expression.replace("$__rate_interval", "60s").replace("$__range", "3h"))


def _children(node: ast.Expr) -> list[ast.Expr]:
    named = [getattr(node, name, None) for name in ("lhs", "rhs", "expr", "param", "vector_selector")]
    return [child for child in (*named, *getattr(node, "args", ())) if isinstance(child, ast.Expr)]


def _walk(node: ast.Expr) -> Iterator[ast.Expr]:
    yield node
    for child in _children(node):
        yield from _walk(child)


def labels(node: ast.Expr) -> frozenset[str]:
    """Labels that the result may have; fails where something is asked of a label that cannot be there."""
    if isinstance(node, ast.VectorSelector):
        return _selected(node)
    if isinstance(node, ast.AggregateExpr):
        return _aggregated(node)
    if isinstance(node, ast.BinaryExpr):
        return _matched(node)
    inside = [labels(child) for child in _children(node)]
    found = frozenset().union(*inside)
    if isinstance(node, ast.Call) and node.func.name == "label_replace":
        return found | {node.args[1].val}
    return found - {"le"} if isinstance(node, ast.Call) and node.func.name == "histogram_quantile" else found


def _selected(node: ast.VectorSelector) -> frozenset[str]:
    known = _labels_of(node.name)
    asked = {matcher.name for matcher in node.matchers.matchers}
    assert asked <= known, f"{node.name} has no {asked - known}"
    return known


@cache
def _labels_of(name: str) -> frozenset[str]:
    if name in RULES:
        return labels(ast.parse(RULES[name])) | {"cluster"}
    assert name in SERIES, f"{name} is neither in the catalogue nor recorded"
    return frozenset({*SERIES[name].labels, "cluster", *(["le"] if name.endswith("_bucket") else [])})


def _aggregated(node: ast.AggregateExpr) -> frozenset[str]:
    inside = labels(node.expr)
    if node.modifier is None:
        return inside if str(node.op) in ("topk", "bottomk") else frozenset()
    assert node.modifier.type == ast.AggModifierType.By
    kept = frozenset(node.modifier.labels)
    assert kept <= inside, f"by {set(kept - inside)} in {node.prettify()}"
    named = node.param if str(node.op) == "count_values" else None
    return kept | ({named.val} if isinstance(named, ast.StringLiteral) else frozenset())


def _matched(node: ast.BinaryExpr) -> frozenset[str]:
    left, right = labels(node.lhs), labels(node.rhs)
    modifier = node.modifier
    matching = modifier.matching if modifier else None
    if matching and matching.type == ast.LabelModifierType.Include:
        missing = frozenset(matching.labels) - (left & right)
        assert not missing, f"on {set(missing)} in {node.prettify()}"
    if modifier and modifier.card == ast.VectorMatchCardinality.OneToMany:
        return right
    return left | right if str(node.op) == "or" else left or right


@pytest.mark.parametrize("place", EXPRESSIONS)
def test_expressions_parse_and_name_only_what_exists(place: str) -> None:
    labels(ast.parse(_filled(EXPRESSIONS[place])))


@pytest.mark.parametrize(
    "wrong",
    [
        "kvcache_hit_rate",
        "kvcache_warm{model_name='x'}",
        "sum by (outcome) (rate(kvcache_prompt_tokens_total[1m]))",
        "sum by (source) (model:kvcache_requests:rate5m)",
        "kvcache_warm and on (model_name) kvcache_prompt_tokens_total",
        "sum by (phase) (histogram_quantile(0.9, sum by (le) (kvcache_engine_prompt_tokens_bucket)))",
    ],
)
def test_names_and_labels_that_do_not_exist_are_found(wrong: str) -> None:
    """The check above can fail."""
    with pytest.raises(AssertionError):
        labels(ast.parse(wrong))


def test_prometheus_2_42_takes_every_expression(tmp_path: Path) -> None:
    rules = [{"record": f"x:{n}", "expr": _filled(e)} for n, e in enumerate(EXPRESSIONS.values())]
    path = tmp_path / "rules.yml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "boards", "rules": rules}]}))
    done = subprocess.run(
        ["promtool", "check", "rules", str(path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("place", EXPRESSIONS)
def test_quantiles_are_of_sums_by_le(place: str) -> None:
    for node in _walk(ast.parse(_filled(EXPRESSIONS[place]))):
        if isinstance(node, ast.Call) and node.func.name == "histogram_quantile":
            buckets = node.args[1]
            assert isinstance(buckets, ast.AggregateExpr)
            assert buckets.modifier is not None
            assert str(buckets.op) == "sum"
            assert "le" in buckets.modifier.labels


@pytest.mark.parametrize("place", EXPRESSIONS)
def test_buckets_of_different_engines_are_not_added(place: str) -> None:
    """Engines have their own edges: a sum over models is no distribution, and its quantile is NaN."""
    expression = EXPRESSIONS[place]
    for kept in re.findall(r"quantile\([\d.]+, sum by \(([^)]*)\) \(\w*:?kvcache_engine_\w+", expression):
        assert {"model_name", "target"} & set(kept.split(", ")), expression


@pytest.mark.parametrize("place", EXPRESSIONS)
def test_windows_are_the_rate_interval_or_the_range_shown(place: str) -> None:
    """`$__interval` gives no data where it is shorter than two scrapes."""
    expression = EXPRESSIONS[place]
    assert not re.search(r"\$__interval\b|\$\{__interval", expression)
    for function, window in re.findall(r"(\w+)\([^()]*\[([^\]]+)\]", expression):
        if function in ("rate", "increase", "changes"):
            assert window in ("$__rate_interval", "$__range"), expression


@pytest.mark.parametrize("place", EXPRESSIONS)
def test_counters_are_only_read_as_increases(place: str) -> None:
    """A bare counter says how old the process is, except in a table of lifetimes."""
    selectors = re.findall(r"(kvcache_\w+_total)\{[^}]*\}(\[?)", EXPRESSIONS[place])
    bare = {name for name, bracket in selectors if not bracket}
    assert bare <= {c.TARGET_RESTARTS.name}


@pytest.mark.parametrize("place", EXPRESSIONS)
def test_divisions_drop_empty_denominators(place: str) -> None:
    """0 / 0 is NaN, which a panel draws as nothing and a stat shows as NaN."""
    for node in _walk(ast.parse(_filled(EXPRESSIONS[place]))):
        if isinstance(node, ast.BinaryExpr) and str(node.op) == "/":
            text = node.rhs.prettify().replace(" ", "").replace("\n", "")
            assert text.endswith(">0)") or text.startswith("histogram_quantile"), text


@pytest.mark.parametrize("place", EXPRESSIONS)
def test_labels_are_narrowed_by_patterns(place: str) -> None:
    """A multi-select is a pattern: `=` would match none of several."""
    assert not re.search(r'[^~]"\$', EXPRESSIONS[place].replace('=~"$', '~"$'))


def test_whole_models_are_read_from_recorded_series() -> None:
    """No panel of the overview sums the engines' raw counters over all replicas, but for lookups."""
    for place, expression in EXPRESSIONS.items():
        if place.startswith("kvcache-overview") and re.search(r"sum\(rate\(kvcache_", expression):
            assert 'hit_basis="lookup"' in expression, place


def test_a_label_that_a_metric_does_not_have_cannot_be_asked_for() -> None:
    with pytest.raises(ValueError, match="kvcache_warm has no label outcome; it has"):
        Scope().series(c.WARM, outcome="full")


def test_selectors_are_narrowed_by_the_variables_of_the_metrics_labels() -> None:
    assert Scope().series(c.WARM) == 'kvcache_warm{cluster=~"$cluster", target=~"$target"}'
    assert Scope("", ()).series(c.WARM) == "kvcache_warm"
    excluded = Scope("", ()).series(c.REQUESTS, outcome="!unknown")
    assert excluded == 'kvcache_requests_total{outcome!="unknown"}'


def test_pieces() -> None:
    assert ratio("a", "b") == "a / (b > 0)"
    assert or_zero("a", "b") == "(a or 0 * b)"
    assert edge_text(1) == "1.0"
