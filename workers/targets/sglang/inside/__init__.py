"""Code that runs in SGLang's process, alongside its scheduler and model runner."""
