"""Words in the order of logits, and a search among them."""
