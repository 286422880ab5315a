"""Sub-commands of `cacheenv`, one a module: `help`, `add_arguments(parser)`, `run(arguments) -> exit status`."""
