"""Leave out each line of an engine that orders its work, and tabulate what finds that."""
