"""Leave out each source line that orders work between streams; tabulate what finds it."""
