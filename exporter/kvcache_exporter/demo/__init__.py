"""Plays a recording of real engines through the real exporter."""
