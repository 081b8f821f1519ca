"""What of the chart is generated: rules, their values and schema, boards, README."""
