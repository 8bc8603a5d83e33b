"""Sentinels of device buffers: special values for a missing token, slot, row or block."""

NO_TOKEN = -1  # a column of `sampled` past the last valid one
NO_DRAFT = -1  # a draft token that was scheduled but never proposed
NO_PREVIOUS_ROW = -1  # no previous row: the request was not sampled in the previous step
PAD_SLOT = -1  # the KV-cache slot of a padding token
PAD_ROW = -1  # the row of a padding token
PAD_BLOCK = -1  # a block table entry past the last block
PAD_STATE_SLOT = -1  # the recurrent state slot of a padding row
UNKNOWN_TOKEN = -1  # a token that the host has not seen yet
POISON = 0xDEAD_BEEF_DEAD_BEEF  # memory that must not be read
