"""The device ops `draft_noise` and `drawn_chain`: definition and twins."""
