"""Pushes boards to Grafana and rules to a ruler or to plain Prometheus; writes only what changed."""
