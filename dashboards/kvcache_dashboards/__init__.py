"""The Grafana boards: one module per board, one function per panel."""

import warnings

with warnings.catch_warnings():
    # On import the SDK warns in favour of the new dashboard format, which Grafana before 12 cannot read.
    warnings.filterwarnings("ignore", "Prefer using dashboardv2", DeprecationWarning)
    from grafana_foundation_sdk.builders import dashboard, heatmap  # noqa: F401
