"""Tests of the target SGLang."""
