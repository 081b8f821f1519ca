"""One module per subcommand: `add(subparsers)` declares it, `run(arguments)` gives the exit code."""
