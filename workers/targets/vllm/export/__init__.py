"""Export of a finding of vLLM: one test file that needs vLLM and pytest alone, and the text of an issue."""
