"""The summary of the whole fleet, which `/api/v1/summary` and the built-in page show."""
