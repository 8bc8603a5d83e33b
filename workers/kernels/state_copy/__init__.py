"""The device op `state_copy`: arguments, definition and twins."""
