"""The device op `rejection_sample`: definition and twins."""
