"""Generates parts of the chart: rules, their values and schema, boards, README."""
