"""The device ops `dflash_context` and `dflash_block`: arguments, definition and twins."""
