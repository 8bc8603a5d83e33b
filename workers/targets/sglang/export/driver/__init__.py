"""Helper functions that exported SGLang tests contain; none imports this project."""
