"""The device op `verify_drafts`: reference and fast kernels."""
