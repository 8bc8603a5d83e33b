"""Driver that exported tests of all engines share: a test takes over what it needs."""
