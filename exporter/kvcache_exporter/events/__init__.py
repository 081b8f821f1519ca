"""KV events: engines publish every block that they store or remove; counted per target."""
