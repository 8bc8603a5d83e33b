"""Tests of the package that runs and judges one trace."""
