"""The device ops `write_tokens` and `ngram_search`: arguments, definition and twins."""
