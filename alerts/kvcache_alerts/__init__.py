"""Recording rules and alerts as data, and the YAML generated from them."""
