"""From engine pages to samples: fetch, parse, plan, windows, collector."""
