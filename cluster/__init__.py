"""Where traces run, and what becomes of the verdicts."""
