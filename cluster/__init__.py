"""Control plane: command line, campaigns, dispatch, storage, reports and statistics."""
