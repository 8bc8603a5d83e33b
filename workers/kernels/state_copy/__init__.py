"""The device op `state_copy`: definition and twins."""
