"""Recording rules and alerts as data, and the YAML made of them."""
