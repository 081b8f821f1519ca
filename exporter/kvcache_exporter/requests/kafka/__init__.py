"""Usage logs that arrive by Kafka, each message counted by exactly one exporter of the group."""
