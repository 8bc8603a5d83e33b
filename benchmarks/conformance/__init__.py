"""Conformance: sound engines agree, with the oracle, with a law, in any process, and with kernels of others."""
