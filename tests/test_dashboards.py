"""The house rules that every panel and every board keeps, and the generated files being fresh."""

import json
import re
from collections.abc import Iterator
from dataclasses import fields
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from kvcache_dashboards.boards import BOARDS
from kvcache_dashboards.mappers import COLUMNS
from kvcache_dashboards.options import Options
from kvcache_dashboards.write import GENERATED, files

Json = dict[str, Any]
UIDS = ("kvcache-overview", "kvcache-pressure", "kvcache-cold-start", "kvcache-requests", "kvcache-exporter")
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
TEXTS = files({})
LOADED: dict[str, Json] = {name.removesuffix(".json"): json.loads(text) for name, text in TEXTS.items()}
# At 1400x900 Grafana's header and two lines of variables take about 190 px; a grid unit is 30 and a gap of 8.
FIRST_SCREEN = 19


def _panels(board: Json) -> Iterator[Json]:
    return (panel for panel in board["panels"] if panel["type"] != "row")


def _rows(board: Json) -> list[Json]:
    return [panel for panel in board["panels"] if panel["type"] == "row"]


@pytest.fixture(params=UIDS)
def board(request: pytest.FixtureRequest) -> Json:
    return LOADED[request.param]


def test_there_are_five_boards_and_the_file_is_named_by_the_uid() -> None:
    assert tuple(LOADED) == UIDS
    assert len(BOARDS) == len(UIDS)
    for uid, board in LOADED.items():
        assert board["uid"] == uid
        assert len(uid) <= 40, "Grafana's limit"


def test_generated_files_are_fresh() -> None:
    """`make generate` writes them."""
    assert {path.name: path.read_text() for path in GENERATED.glob("*")} == TEXTS


def test_every_panel_says_what_it_shows(board: Json) -> None:
    """Title, a description in whole sentences, a unit, and a text for when there is nothing to show."""
    for panel in _panels(board):
        assert panel["title"], panel
        assert panel["description"].endswith("."), panel["title"]
        assert len(panel["description"]) > 25, panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]
        assert panel["fieldConfig"]["defaults"]["noValue"], panel["title"]


def test_titles_are_unique_on_a_board(board: Json) -> None:
    titles = [panel["title"] for panel in board["panels"]]
    assert len(titles) == len(set(titles))


def test_everything_asks_the_chosen_data_source(board: Json) -> None:
    for panel in _panels(board):
        assert panel["datasource"] == DATASOURCE, panel["title"]
        assert panel["targets"], panel["title"]
        for target in panel["targets"]:
            assert target["datasource"] == DATASOURCE, panel["title"]
    for variable in board["templating"]["list"][1:]:
        assert variable["datasource"] == DATASOURCE, variable["name"]
    for annotation in board["annotations"]["list"]:
        assert annotation["datasource"] == annotation["target"]["datasource"] == DATASOURCE


def test_ids_and_ref_ids_are_unique_and_set(board: Json) -> None:
    ids = [panel["id"] for panel in board["panels"]]
    assert len(ids) == len(set(ids))
    assert 0 not in ids
    for panel in _panels(board):
        refs = [target["refId"] for target in panel["targets"]]
        assert refs == list("ABCDEFGH"[: len(refs)]), panel["title"]


def test_tables_ask_once_and_the_others_over_time(board: Json) -> None:
    for panel in _panels(board):
        for target in panel["targets"]:
            assert target["instant"] is (panel["type"] == "table"), panel["title"]
            assert target["range"] is (panel["type"] != "table"), panel["title"]


def test_no_two_panels_overlap_and_none_leaves_the_grid(board: Json) -> None:
    places = [panel["gridPos"] for panel in board["panels"]]
    for place in places:
        assert 0 <= place["x"] < place["x"] + place["w"] <= COLUMNS, place
        assert place["h"] > 0
    for a, b in combinations(places, 2):
        beside = a["x"] + a["w"] <= b["x"] or b["x"] + b["w"] <= a["x"]
        below = a["y"] + a["h"] <= b["y"] or b["y"] + b["h"] <= a["y"]
        assert beside or below, (a, b)


def test_lines_of_panels_fill_the_width(board: Json) -> None:
    """Nothing is left empty beside a panel: that looks like something missing."""
    widths: dict[int, int] = {}
    for panel in board["panels"]:
        widths[panel["gridPos"]["y"]] = widths.get(panel["gridPos"]["y"], 0) + panel["gridPos"]["w"]
    assert set(widths.values()) == {COLUMNS}


def test_the_four_questions_are_the_rows_of_the_first_screen() -> None:
    rows = _rows(LOADED["kvcache-overview"])
    assert [row["title"] for row in rows[:4]] == [
        "What is the hit rate?",
        "What does a miss cost?",
        "What is evicting, and why?",
        "What happens when it is cold?",
    ]
    assert rows[4]["gridPos"]["y"] <= FIRST_SCREEN


def test_rows_ask_questions(board: Json) -> None:
    assert all(row["title"].endswith("?") for row in _rows(board))


def test_both_hit_rates_stand_side_by_side_with_the_gap_and_the_caveat() -> None:
    first = list(_panels(LOADED["kvcache-overview"]))[:4]
    assert {panel["gridPos"]["y"] for panel in first} == {1}
    assert [panel["title"] for panel in first[:3]] == [
        "Token-weighted",
        "Request-weighted",
        "Gap between them",
    ]
    assert "weighted by tokens" in first[0]["description"]
    assert "long prompts count most" in first[3]["title"], "read without pointing at anything"


def test_time_to_first_token_is_never_merged_over_outcomes() -> None:
    """A quantile over hits and misses together moves when the mixture moves."""
    found = 0
    for board in LOADED.values():
        for panel in _panels(board):
            for target in panel["targets"]:
                if "histogram_quantile" in target["expr"] and "request_time_to_first" in target["expr"]:
                    found += 1
                    assert "sum by (le, outcome" in target["expr"], panel["title"]
                    assert target["legendFormat"].endswith("{{outcome}}")
    assert found >= 5


def test_a_board_asks_at_most_forty_queries(board: Json) -> None:
    queries = [target for panel in _panels(board) for target in panel["targets"]]
    assert len(queries) + len(board["annotations"]["list"]) <= 40


def test_variables_are_multi_select_with_all(board: Json) -> None:
    variables = board["templating"]["list"]
    names = ["datasource", "cluster", "namespace", "engine", "model_name", "target"]
    assert [variable["name"] for variable in variables] == names
    for variable in variables[1:]:
        assert variable["multi"], variable["name"]
        assert variable["includeAll"], variable["name"]
        assert variable["current"]["value"] == ["$__all"]
        assert "kvcache_" in variable["query"]["query"], "scoped by our metrics"
        # All targets are those of the chosen engines; the others may be labels a user does not have.
        assert variable.get("allValue") == (None if variable["name"] == "target" else ".*")


def test_every_variable_is_used_by_a_panel(board: Json) -> None:
    expressions = " ".join(target["expr"] for panel in _panels(board) for target in panel["targets"])
    queries = " ".join(str(variable["query"]) for variable in board["templating"]["list"])
    for variable in board["templating"]["list"][1:]:
        assert f"${variable['name']}" in expressions + queries, variable["name"]


def test_links_keep_time_and_variables_and_lead_to_boards_that_exist(board: Json) -> None:
    (dropdown,) = board["links"]
    assert (dropdown["type"], dropdown["keepTime"], dropdown["includeVars"]) == ("dashboards", True, True)
    assert set(dropdown["tags"]) <= set(board["tags"])
    assert "placement" not in dropdown
    for panel in _panels(board):
        overrides = [
            p for o in panel["fieldConfig"]["overrides"] for p in o["properties"] if p["id"] == "links"
        ]
        urls = [link["url"] for link in panel.get("links", [])]
        urls += [link["url"] for properties in overrides for link in properties["value"]]
        for url in urls:
            assert url.removeprefix("/d/").partition("?")[0] in UIDS, url
            assert "${__url_time_range}" in url
            assert "${datasource:queryparam}" in url or "${__all_variables}" in url


def test_changes_are_annotations(board: Json) -> None:
    own = ["Cache resets"] if board["uid"] == "kvcache-cold-start" else []
    assert [a["name"] for a in board["annotations"]["list"]] == [
        "Engine restarts",
        "Engine changes",
        "Exporter reloads",
        *own,
    ]
    assert all(a["enable"] and a["target"]["refId"] == "Anno" for a in board["annotations"]["list"])


def test_tables_begin_with_the_worst(board: Json) -> None:
    for panel in _panels(board):
        if panel["type"] == "table":
            (order,) = panel["options"]["sortBy"]
            renamed = panel["transformations"][1]["options"]["renameByName"]
            assert order["displayName"] in renamed.values(), panel["title"]


def test_distributions_are_heatmaps() -> None:
    kinds = {panel["title"]: panel["type"] for board in LOADED.values() for panel in _panels(board)}
    for title in ("Computed tokens per request", "Cached share per request", "Lifetime of blocks"):
        assert kinds[title] == "heatmap"


def test_tables_read_words_as_words() -> None:
    """A date as the unit of a whole table makes Grafana show versions as dates."""
    for board in LOADED.values():
        for panel in _panels(board):
            if panel["type"] == "table":
                assert panel["fieldConfig"]["defaults"]["unit"] == "string", panel["title"]


def test_the_sdk_knows_every_field(board: Json) -> None:
    """Read into Grafana's own types and written again, nothing is lost: no key is misspelt or misplaced."""
    # Not above: the package must be first, it keeps the SDK's warning on import to itself.
    from grafana_foundation_sdk.cog.encoder import JSONEncoder  # noqa: PLC0415
    from grafana_foundation_sdk.models.dashboard import Dashboard  # noqa: PLC0415

    again = json.loads(JSONEncoder().encode(Dashboard.from_json(board)))
    for before, after in zip(board["panels"], again["panels"], strict=True):
        _holds(after, before, before["title"])
    for before, after in zip(board["templating"]["list"], again["templating"]["list"], strict=True):
        _holds(after, before, before["name"])


def _holds(found: Any, wanted: Any, where: str) -> None:
    if isinstance(wanted, dict):
        for key, value in wanted.items():
            assert key in found, f"{where}.{key}"
            _holds(found[key], value, f"{where}.{key}")
    elif isinstance(wanted, list):
        assert len(found) == len(wanted), where
        for number, (one, other) in enumerate(zip(found, wanted, strict=True)):
            _holds(one, other, f"{where}[{number}]")
    else:
        assert found == wanted, where


def test_nothing_is_written_that_grafana_would_not_write(board: Json) -> None:
    assert board["schemaVersion"] == 42
    assert "id" not in board
    for variable in board["templating"]["list"]:
        assert not any(key.startswith("auto") for key in variable)
    for annotation in board["annotations"]["list"]:
        assert "expr" not in annotation
    for panel in _panels(board):
        assert "repeatDirection" not in panel
        if panel["type"] == "stat":
            assert panel["options"]["reduceOptions"]["calcs"] == ["lastNotNull"]


def test_files_end_with_a_newline_and_are_stable() -> None:
    assert files({}) == TEXTS
    assert all(text.endswith("}\n") for text in TEXTS.values())


def test_settings_reach_every_board() -> None:
    made = files({
        "datasource": "mimir-1", "cluster_label": "k8s_cluster", "title_prefix": "LLM / ",
        "tags": "llm, cache", "refresh": "5m", "timezone": "utc", "ttft_objective": "0.5",
        "time_from": "now-6h", "schema_version": "39",
    })  # fmt: skip
    for text in made.values():
        board = json.loads(text)
        assert board["templating"]["list"][0]["current"]["value"] == "mimir-1"
        assert board["title"].startswith("LLM / ")
        assert board["tags"] == ["llm", "cache"] == board["links"][0]["tags"]
        assert (board["refresh"], board["timezone"], board["schemaVersion"]) == ("5m", "utc", 39)
        assert board["time"] == {"from": "now-6h", "to": "now"}
        assert 'k8s_cluster=~\\"$cluster\\"' in text
        assert not re.search(r"\bcluster=~", text)
    assert 'le=\\"0.5\\"' in made["kvcache-requests.json"]


def test_without_a_cluster_label_there_is_no_such_variable() -> None:
    for text in files({"cluster_label": ""}).values():
        assert "cluster" not in [v["name"] for v in json.loads(text)["templating"]["list"]]
        assert "$cluster" not in text
        assert "${cluster" not in text


@pytest.mark.parametrize(
    ("overrides", "says"),
    [
        ({"tytle": "x"}, "unknown setting 'tytle'; expected one of datasource, cluster_label"),
        ({"ttft_objective": "0.7"}, "ttft_objective='0.7': expected seconds that are a bucket's edge: 0.005"),
        ({"ttft_objective": "fast"}, "ttft_objective='fast'"),
        ({"refresh": "soon"}, "refresh='soon': expected an interval such as 30s"),
        ({"tags": " , "}, "tags=',': expected at least one tag"),
        ({"cluster_label": "a-b"}, "cluster_label='a-b': expected a label name"),
        ({"schema_version": "16"}, "schema_version='16': expected a whole number from 36 to 42"),
        ({"timezone": "berlin"}, "timezone='berlin': expected browser, utc"),
        ({"time_from": "yesterday"}, "time_from='yesterday'"),
        ({"datasource": "${ds}"}, "datasource='${ds}'"),
    ],
)
def test_a_setting_that_cannot_be_says_what_is_expected(overrides: dict[str, str], says: str) -> None:
    with pytest.raises(ValueError, match="dashboards: ") as raised:
        files(overrides)
    assert says in str(raised.value)


def test_generated_files_lie_beside_the_package() -> None:
    assert Path(__file__).parents[1] / "dashboards" / "generated" == GENERATED


def test_the_documentation_names_every_row_and_every_setting() -> None:
    document = (Path(__file__).parents[1] / "docs" / "dashboards.md").read_text()
    for board in LOADED.values():
        assert f"`{board['uid']}`" in document
        for row in _rows(board):
            assert f"*{row['title']}*" in document, row["title"]
    for field in fields(Options):
        assert f"| `{field.name}` |" in document, field.name
