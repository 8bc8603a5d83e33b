"""Control plane: command line, campaigns, dispatch to workers, storage, reports and statistics."""
