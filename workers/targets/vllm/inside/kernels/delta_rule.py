"""Arithmetic of gated delta nets in NumPy, with results equal to Triton's interpreter."""

from typing import Any

import numpy as np

from workers.simulated_torch.kernel_definitions import Array

# Added to a norm before its square root.
EPSILON = np.float32(1e-6)


def advance_state(state: Array, query: Array, key: Array, value: Array, gate: Array, beta: Array) -> Array:
    """Advance each head's recurrent state by one token, in place; return each head's output.

    The state decays by the gate; then its value for the key is replaced by `value`, in the proportion `beta`.
    Shapes: state [H, V, K], query and key [H, K], value [H, V], gate and beta [H]; all float32.
    Source: Gated Delta Networks, arXiv 2412.06464, section 3.
    """
    state *= np.exp(gate)[:, None, None]
    added = (value - np.sum(state * key[:, None, :], axis=2)) * beta[:, None]
    state += added[:, :, None] * key[:, None, :]
    output: Array = np.sum(state * query[:, None, :], axis=2)
    return output


def decay(rates: Array, steps: Array, threshold: float) -> Array:
    """Return the log decay of a state: -exp(rates) * softplus(steps)."""
    one = np.float32(1)
    soft = np.where(steps <= np.float32(threshold), np.log(one + np.exp(steps)), steps)
    found: Array = -np.exp(rates) * soft
    return found


def sigmoid(values: Array) -> Array:
    """Return 1 / (1 + exp(-value)) of each value, in float32."""
    one = np.float32(1)
    found: Array = one / (one + np.exp(-values))
    return found


def squares(rows: Array) -> Any:
    """Return each row's sum of squares plus `EPSILON`, with a last dimension of size 1."""
    return (np.sum(rows * rows, axis=-1) + EPSILON)[..., None]
