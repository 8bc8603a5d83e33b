"""Sentinels of device buffers: values that are no token, no slot, no row, each under its own name."""

NO_TOKEN = -1  # a column of `sampled` past the last valid one
NO_DRAFT = -1  # a draft that was scheduled but never proposed
NO_PREVIOUS_ROW = -1  # a row whose request was not sampled in the step before
PAD_SLOT = -1  # where the key and value of padding go
PAD_ROW = -1  # the row of a padding token
PAD_BLOCK = -1  # a block table entry past the last block
PAD_STATE_SLOT = -1  # the recurrent state slot of a padding row
UNKNOWN_TOKEN = -1  # a token the host has not seen yet
POISON = 0xDEAD_BEEF_DEAD_BEEF  # memory that must not be read
