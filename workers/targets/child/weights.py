"""Seeds of the random weights of tiny models, by the names of the models."""

from hashlib import blake2b


def weights_seed(name: str, vocab_size: int) -> int:
    """Return the seed that the weights of a model are drawn with."""
    return int.from_bytes(blake2b(f"{name} {vocab_size}".encode(), digest_size=6).digest())
