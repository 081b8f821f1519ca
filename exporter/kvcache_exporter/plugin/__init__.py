"""What runs inside an inference engine's own process. It needs only prometheus_client."""
