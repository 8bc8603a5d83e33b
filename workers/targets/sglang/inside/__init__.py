"""Code that runs in SGLang's process, together with its scheduler and model runner."""
