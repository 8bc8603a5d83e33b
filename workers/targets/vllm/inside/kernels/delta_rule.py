"""Arithmetic of gated delta nets, as Triton's interpreter does it: gates, norms, and a state that a token advances."""

from typing import Any

import numpy as np

from workers.simulated_torch.kernel_definitions import Array

# Beneath the root of a norm.
EPSILON = np.float32(1e-6)


def advanced(state: Array, query: Array, key: Array, value: Array, gate: Array, beta: Array) -> Array:
    """Advance the state of each head by a token, in place, and return its output.

    What the state has fades by the gate, then forgets as much of what it has for the key as `beta` says, and takes the
    value in its place. Shapes: state [H, V, K], query and key [H, K], value [H, V], gate and beta [H]; all float32.
    Source: Gated Delta Networks, arXiv 2412.06464, section 3.
    """
    state *= np.exp(gate)[:, None, None]
    added = (value - np.sum(state * key[:, None, :], axis=2)) * beta[:, None]
    state += added[:, :, None] * key[:, None, :]
    output: Array = np.sum(state * query[:, None, :], axis=2)
    return output


def decay(rates: Array, steps: Array, threshold: float) -> Array:
    """Return the logarithm of what is left of a state: a softplus of steps, times rates given by their logarithms."""
    one = np.float32(1)
    soft = np.where(steps <= np.float32(threshold), np.log(one + np.exp(steps)), steps)
    found: Array = -np.exp(rates) * soft
    return found


def sigmoid(values: Array) -> Array:
    """Return the sigmoid of each value."""
    one = np.float32(1)
    found: Array = one / (one + np.exp(-values))
    return found


def squares(rows: Array) -> Any:
    """Return the sum of the squares of each row, to which little is added."""
    return (np.sum(rows * rows, axis=-1) + EPSILON)[..., None]
