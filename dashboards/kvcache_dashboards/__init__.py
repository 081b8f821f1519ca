"""The Grafana boards: one module per board, one function per panel."""

import warnings

with warnings.catch_warnings():
    # On import the SDK recommends the successor of classic boards, which no Grafana before 12 reads.
    warnings.filterwarnings("ignore", "Prefer using dashboardv2", DeprecationWarning)
    from grafana_foundation_sdk.builders import dashboard, heatmap  # noqa: F401
