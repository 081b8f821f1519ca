"""One module per subcommand: `add(subparsers)` declares it, `run(arguments)` returns the exit code."""
