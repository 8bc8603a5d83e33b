"""Programs that write files of this repository anew: traces of faults, measured columns of a page."""
