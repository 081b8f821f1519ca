"""Speeds as ratios, each measured in one run on one machine: `make benchmark`."""
