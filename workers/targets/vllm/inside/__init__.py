"""The child process: runs vLLM's Python; the only package that imports torch and vLLM."""
