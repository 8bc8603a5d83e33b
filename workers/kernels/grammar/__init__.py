"""The device ops `grammar_drafts` and `apply_masks`: definition and twins."""
