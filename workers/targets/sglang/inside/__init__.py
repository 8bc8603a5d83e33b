"""Inside the process of SGLang: run by the Python of its installation, beside the engine itself."""
