"""Links between boards that keep the time range and the variables."""

from grafana_foundation_sdk.builders import dashboard
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models import dashboard as model

_KEPT = ("datasource", "cluster", "namespace", "engine", "model_name", "target")


def to_board(title: str, uid: str) -> list[Builder[model.DashboardLink]]:
    """Links for the corner of a panel."""
    url = f"/d/{uid}?${{__url_time_range}}&${{__all_variables}}"
    return [dashboard.DashboardLink(title).url(url).target_blank(False)]


def for_row(uid: str, variable: str, column: str, cluster_label: str) -> str:
    """A link for table rows, narrowed to the row's value of one column."""
    kept = [name for name in _KEPT if name != variable and (name != "cluster" or cluster_label)]
    others = "&".join(f"${{{name}:queryparam}}" for name in kept)
    value = f'${{__data.fields["{column}"]:percentencode}}'
    return f"/d/{uid}?${{__url_time_range}}&{others}&var-{variable}={value}"
