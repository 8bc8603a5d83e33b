"""The device ops `limit_slots` and `limit_drafts`: reference and fast kernels."""
