"""The device op `recurrent_update`: definition and twins."""
