"""Driver code that exported SGLang tests contain; it does not import this project."""
