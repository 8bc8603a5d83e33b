"""Keys of logits (integers in the order of the logits), and a search among them."""
