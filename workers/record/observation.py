"""Observations of an engine's step: values of named variables, such as block tables."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from scenarios.spec import ENGINE, EngineName
from workers.record.evidence import Access


@dataclass(frozen=True, slots=True)
class Variable:
    """One compared variable: category of state, owner, capture point, and the values compared.

    Values outside the domain are scratch and never compared.
    """

    plane: str
    owner: str
    point: str
    domain: str


VARIABLES: Mapping[str, Variable] = {
    "scheduled_computed": Variable("counts", "scheduler", "scheduled", "scheduled requests"),
    "scheduled_placeholders": Variable("counts", "scheduler", "scheduled", "scheduled requests"),
    "scheduled_known": Variable("counts", "scheduler", "scheduled", "scheduled requests"),
    "mirror_computed": Variable("counts", "input batch", "launched", "rows of the batch"),
    "mirror_no_spec": Variable("counts", "input batch", "launched", "rows of the batch"),
    "discard": Variable("inputs", "input batch", "launched", "rows of the batch"),
    "backup": Variable("inputs", "input batch", "launched", "discarded rows"),
    "poisoned": Variable("kv", "poison", "poisoned", "blocks given out in a step, or lost to a reset before it"),
    "num_computed": Variable("counts", "prepare_inputs", "inputs", "real rows"),
    "seq_lens": Variable("inputs", "prepare_inputs", "inputs", "real rows; padding is 0"),
    "positions": Variable("inputs", "prepare_inputs", "inputs", "real tokens; padding is 0"),
    "slots": Variable("inputs", "prepare_inputs", "inputs", "real tokens; padding is PAD_SLOT"),
    "scheduled_drafts": Variable("drafts", "prepare_inputs", "inputs", "the d drafts of real rows"),
    "input_ids": Variable("inputs", "prepare_inputs", "inputs", "real tokens; padding is 0"),
    "accepted_read": Variable("counts", "prepare_inputs", "inputs", "real rows that computed something"),
    "kv": Variable("kv", "kv_write", "sampled", "tokens below the true computed count after the step"),
    "attention": Variable("kv", "attention", "sampled", "tokens below the true computed count"),
    "hidden": Variable("recurrent", "recurrent_update", "sampled", "tokens below the true computed count"),
    "logits": Variable("logits", "process_logits", "sampled", "valid columns of rows that process theirs"),
    "temperature": Variable("inputs", "sampling_inputs", "sampling", "rows that sample, if one does by chance"),
    "top_p": Variable("inputs", "sampling_inputs", "sampling", "rows that sample by chance"),
    "top_k": Variable("inputs", "input batch", "sampling", "rows that sample by chance"),
    "seeds": Variable("rng", "input batch", "sampling", "rows that sample by chance"),
    "noise_positions": Variable("rng", "sampling_inputs", "sampling", "rows that sample by chance"),
    "accept_noise": Variable("rng", "draw_noise", "sampling", "drafts of rows that sample by chance"),
    "select_noise": Variable("rng", "draw_noise", "sampling", "columns of rows that sample by chance"),
    "sampler_status": Variable("logits", "verify_drafts", "sampling", "rows that sample, if one does by chance"),
    "draft_logits_read": Variable("drafts", "drawn_chain", "sampling", "drafts that were drawn"),
    "sampled": Variable("tokens", "rejection_sample", "sampled", "valid columns of rows not discarded"),
    "accepted": Variable("counts", "count_sampled", "sampled", "real rows"),
    "valid": Variable("counts", "count_sampled", "sampled", "real rows"),
    "next_tokens": Variable("inputs", "count_sampled", "sampled", "real rows"),
    "state": Variable("recurrent", "recurrent_update", "state", "slot[accepted], if anything was computed"),
    "window": Variable("recurrent", "recurrent_update", "state", "slot[accepted], if anything was computed"),
    "slot_accepted": Variable("recurrent", "count_sampled", "state", "slots of real rows"),
    "block_state": Variable("recurrent", "state_copy", "kept", "blocks of tokens that stay, if aligned"),
    "block_window": Variable("recurrent", "state_copy", "kept", "blocks of tokens that stay, if aligned"),
    "drafter_kv": Variable("drafts", "draft_first_pass", "state", "tokens below the true computed count"),
    "raw": Variable("drafts", "draft_chain", "state", "proposed columns of rows with a valid token"),
    "proposed": Variable("drafts", "draft_chain", "state", "proposed columns of rows not discarded"),
    "own": Variable("drafts", "draft_model_chain", "drafted", "proposed columns of rows with a valid token"),
    "drafter_state": Variable("drafts", "draft_model_pass", "drafted", "slot[accepted], if computed"),
    "drafter_window": Variable("drafts", "draft_model_pass", "drafted", "slot[accepted], if computed"),
    "carried": Variable("drafts", "mtp_pass", "drafted", "slots of real rows, if anything was computed"),
    "kv_at_end": Variable("kv", "kv_write", "freed", "positions below the true computed count"),
    "drafter_kv_at_end": Variable("drafts", "draft_first_pass", "freed", "positions below the true count"),
    "block_state_at_end": Variable("recurrent", "state_copy", "freed", "blocks of tokens computed, if aligned"),
    "block_window_at_end": Variable("recurrent", "state_copy", "freed", "blocks of tokens computed, if aligned"),
    "corrected_computed": Variable("counts", "correct_mirror", "corrected", "rows of the step still there"),
    "tokens": Variable("tokens", "scheduler", "processed", "requests of the step that were alive"),
    "logprobs": Variable("logits", "scheduler", "processed", "requests of the step that want them"),
    "finish_reason": Variable("tokens", "scheduler", "processed", "requests of the step"),
    "host_drafts": Variable("drafts", "drafter on the host", "processed", "rows that go on with a token"),
    "computed": Variable("counts", "scheduler", "processed", "live requests of the step"),
    "placeholders": Variable("counts", "scheduler", "processed", "live requests of the step"),
    "free_blocks": Variable("blocks", "block pool", "processed", "always"),
    "free_state_slots": Variable("blocks", "block pool", "processed", "always"),
    "block_references": Variable("blocks", "prefix cache", "scheduled", "all blocks, with a prefix cache"),
    "cached_hashes": Variable("prefix", "prefix cache", "scheduled", "all blocks, with a prefix cache"),
    "idle_blocks": Variable("prefix", "prefix cache", "scheduled", "all blocks, with a prefix cache"),
    "leaks": Variable("books", "engine", "drained", "once nothing is left to do"),
}
# Observation points. Host points follow an entry of the log; `drained` is reached once the engine has no work left.
# Device points are in the order of the compute lane.
HOST_POINTS = frozenset({"scheduled", "launched", "corrected", "processed", "drained"})
DEVICE_POINTS = frozenset({"poisoned", "inputs", "sampling", "sampled", "kept", "drafted", "state", "freed"})
POINTS = HOST_POINTS | DEVICE_POINTS


# Bound methods handle an array in one call, without a Python frame of ours.
_bytes_of, _values_of = np.ndarray.tobytes, np.ndarray.tolist


class Observation(NamedTuple):
    """Values of several variables, observed at one point of one step.

    `requests` labels rows (or entries) as at the enqueueing of the point, not by the current row map.
    """

    point: str
    step: int
    requests: tuple[int, ...]
    values: Mapping[str, Any]
    of: EngineName = ENGINE


class Recorder:
    """Collects copies of device buffers (`captures`) in stream order; no CUDA graphs.

    `blame` maps a variable to the last writers of its memory; with it, `writers` has them for each capture, by (step,
    variable).
    """

    def __init__(self, blame: Callable[[str], tuple[Access, ...]] | None = None) -> None:
        self.writers: dict[tuple[int, str], tuple[Access, ...]] = {}
        self._blame = blame
        self.captures: list[Observation] = []
        self._digest = blake2b(digest_size=16)
        self._has_hashed = False

    def capture(
        self, point: str, step: int, requests: tuple[int, ...], names: Sequence[str], arrays: Sequence[NDArray[Any]]
    ) -> None:
        """Store copies of device arrays, taken between two ops of the compute stream."""
        hashed = b"".join(map(_bytes_of, arrays))
        values = dict(zip(names, map(_values_of, arrays), strict=True))
        self._digest.update(hashed)
        self._has_hashed |= bool(hashed)
        if self._blame is not None:
            self.writers.update({(step, name): self._blame(name) for name in names})
        self.captures.append(Observation(point, step, requests, values))

    def take(self) -> list[Observation]:
        """Return the observations since the last call."""
        taken, self.captures = self.captures, []
        return taken

    def digest(self) -> str:
        """Return a hash of all stored values so far, in stream order; "" if there are none."""
        return self._digest.hexdigest() if self._has_hashed else ""


def logprobs_per_token(logprobs: Sequence[int | float], num_tokens: int) -> int | None:
    """Return how many logprobs each token has; None if not all have equally many."""
    if not num_tokens:
        return None if logprobs else 0
    return None if len(logprobs) % (2 * num_tokens) else len(logprobs) // (2 * num_tokens)
