"""Census of the fixes between two releases: which of them hunts of the older release had shown."""
