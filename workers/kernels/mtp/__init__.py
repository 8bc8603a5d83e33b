"""The device ops `mtp_pass` and `mtp_chain`: arguments, definition and twins."""
