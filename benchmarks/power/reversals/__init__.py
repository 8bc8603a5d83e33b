"""Reversals (edits that undo merged fixes), and trials of how soon traces find them."""
