"""KV events: what engines publish of every block they store and remove, counted per target."""
