"""Command line of `specstorm`: options, inputs, messages, exit codes."""
