"""The device ops `limit_slots` and `limit_drafts`: arguments, definition and twins."""
