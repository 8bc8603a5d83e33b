"""Compare engines without faults with the oracle, exact distributions and other kernels."""
