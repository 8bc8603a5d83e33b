"""The device ops `draft_model_pass` and `draft_model_chain`: definition and twins."""
