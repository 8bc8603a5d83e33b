"""Seeds for the random weights of tiny models."""

from hashlib import blake2b


def weights_seed(name: str, vocab_size: int) -> int:
    """Return the seed for a model's random weights, derived from its name and vocabulary size."""
    return int.from_bytes(blake2b(f"{name} {vocab_size}".encode(), digest_size=6).digest())
