"""The Grafana boards: one module per board, one function per panel."""
