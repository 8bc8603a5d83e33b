"""The device ops `draft_first_pass` and `draft_chain`: definition and twins."""
