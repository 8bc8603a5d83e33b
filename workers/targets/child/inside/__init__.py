"""Inside the process of an engine: run by the engine's Python, beside the engine itself."""
