"""The commands of `specstorm`: options, inputs, messages, exit codes."""
