"""From usage logs to request metrics: tail, format, outcome, tally."""
