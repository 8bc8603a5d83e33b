"""The device ops `dflash_context` and `dflash_block`: reference and fast kernels."""
