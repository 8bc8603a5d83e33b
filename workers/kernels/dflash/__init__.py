"""The device ops `dflash_context` and `dflash_block`: definition and twins."""
