"""Spans and log records that OpenTelemetry sends to the exporter, over OTLP/HTTP."""
