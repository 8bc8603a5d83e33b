"""The device op `verify_drafts`: definition and twins."""
