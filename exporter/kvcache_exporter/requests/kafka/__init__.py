"""Usage logs in Kafka topics; exactly one exporter of the group counts each message."""
