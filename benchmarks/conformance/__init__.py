"""Compare engines without planted faults with the oracle, exact distributions and kernels."""
