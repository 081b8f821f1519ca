"""All generated files of the chart."""

from pathlib import Path

from kvcache_chart import readme, rules, values
from kvcache_dashboards.write import files as boards

CHART = Path(__file__).parents[1] / "kvcache-exporter"


def files(chart: Path) -> dict[str, str]:
    """Texts by path within the chart; partly generated files keep their other content."""
    made = {f"files/dashboards/{name}": text for name, text in boards({}).items()}
    made["files/rules.yaml"] = rules.document()
    made["values.yaml"] = values.values((chart / "values.yaml").read_text())
    made["values.schema.json"] = values.schema(
        (chart / "values.schema.json").read_text(), made["values.yaml"]
    )
    made["README.md"] = readme.readme((chart / "README.md").read_text(), made["values.yaml"])
    return made
