"""Benchmarks (`make benchmark`): ratios to a reference that is measured in the same run."""
