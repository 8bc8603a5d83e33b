"""The device ops `mtp_pass` and `mtp_chain`: reference and fast kernels."""
