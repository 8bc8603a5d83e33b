"""Power: what traces and judges find of faults, mutants and edges, and what they do not reach."""
