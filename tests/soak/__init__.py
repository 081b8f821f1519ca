"""Hours of faults at random against a running exporter, with exact accounting at the end."""
