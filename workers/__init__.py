"""Run and judge one trace: engine, lanes, kernels, oracle and checks."""
