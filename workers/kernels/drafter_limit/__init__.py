"""The device ops `limit_slots` and `limit_drafts`: definition and twins."""
