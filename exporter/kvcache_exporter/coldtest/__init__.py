"""A cold-path test of an engine: the same load before and after a restart, measured by its client."""
