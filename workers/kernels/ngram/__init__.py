"""The device ops `write_tokens` and `ngram_search`: definition and twins."""
