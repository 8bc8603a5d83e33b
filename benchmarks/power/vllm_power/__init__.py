"""Reversals of vLLM: small edits of its installed sources, each the reverse of a merged fix; how soon each is found."""
