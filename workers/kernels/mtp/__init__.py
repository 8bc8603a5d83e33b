"""The device ops `mtp_pass` and `mtp_chain`: definition and twins."""
