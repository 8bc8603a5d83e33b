"""Statistics over many trials of faults: survival curves, fault tables, figures."""
