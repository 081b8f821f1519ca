"""The part that runs inside an inference engine's process; it needs only prometheus_client."""
