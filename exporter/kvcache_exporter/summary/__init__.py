"""The four questions answered over the whole fleet: what `/api/v1/summary` and the built-in page show."""
