"""The device ops `grammar_drafts` and `apply_masks`: arguments, definition and twins."""
