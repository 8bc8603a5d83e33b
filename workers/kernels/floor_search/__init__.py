"""Search for the floor (top-k and top-p threshold) of a row of logits."""
