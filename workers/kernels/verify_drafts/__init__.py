"""The device op `verify_drafts`: arguments, definition and twins."""
