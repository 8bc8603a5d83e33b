"""Export of a finding (a trace on which vLLM fails) as a test for vLLM and pytest.

An issue text comes with the test.
"""
