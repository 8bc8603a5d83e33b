"""Known differences between vLLM's kernels and our ops, with reasons."""

from typing import Literal, NamedTuple, TypeAlias

from benchmarks.conformance.vllm_kernels.comparison import Count

# `definition`: both are sound with different conventions; `domain`: the engine never gives a kernel such an input;
# `bug`: the kernel is wrong for an input that it must support.
Kind: TypeAlias = Literal["definition", "domain", "bug"]


class Known(NamedTuple):
    """Why a vLLM kernel and our device op may differ: the kind of difference, and the reason."""

    kind: Kind
    reason: str


_UNDEFINED = "a row of logits with NaN or inf, or with -inf only"
_OUTSIDE = "a draft token outside the vocabulary"
_UNLIKELY = "a draft token with probability 0 under its drafter"
_NOTHING = "a row that is not discarded but sampled no token"
_NO_BLOCK = "a position without a block"

_ENDS = Known(
    "definition", "our op ends the row before such logits and sets its status; vLLM's kernel samples some token"
)
_UNBOUNDED = Known("domain", "the draft token indexes probabilities without a bounds check: the kernel is not run")
_UNDRAWN = Known("domain", "a sampled draft token has a probability; where p is 0 as well, the ratio is NaN")
_NULL_BLOCK = Known("definition", "vLLM's tables are filled with block 0, which is never read; ours have no slot there")
_RECOVERED = "sample_recovered_tokens_kernel: frequencies"

KNOWN: dict[tuple[str, str], Known] = {
    ("rejection_greedy_sample_kernel", _UNDEFINED): _ENDS,
    ("rejection_random_sample_kernel", _UNDEFINED): _ENDS,
    ("_rejection_kernel, greedy", _UNDEFINED): _ENDS,
    ("_rejection_kernel, _resample_kernel", _UNDEFINED): _ENDS,
    ("_rejection_kernel, block verification", _UNDEFINED): _ENDS,
    ("rejection_random_sample_kernel", _OUTSIDE): _UNBOUNDED,
    ("_rejection_kernel, _resample_kernel", _OUTSIDE): _UNBOUNDED,
    ("_rejection_kernel, block verification", _OUTSIDE): _UNBOUNDED,
    ("_rejection_kernel, _resample_kernel", _UNLIKELY): _UNDRAWN,
    ("_rejection_kernel, block verification", _UNLIKELY): _UNDRAWN,
    ("rejection_random_sample_kernel", "noise equal to the bound, up to rounding"): Known(
        "definition", "at the exact bound vLLM accepts the draft token (>=), our op rejects it: one in 2^24 numbers"
    ),
    ("rejection_random_sample_kernel", "noise of 0 and a draft token with target probability 0"): Known(
        "bug",
        "0 / q >= 0 accepts a draft token that top-k, top-p or a mask has excluded; noise is in [0, 1) in float64, so 0"
        " occurs once in 2^53 numbers (the second runner compares strictly, with noise that is never 0)",
    ),
    (_RECOVERED, "draft tokens that were not proposed, in a batch with draft probabilities"): Known(
        "bug",
        "a draft token of -1 is rejected, as it should be, but the recovered token is sampled from max(p - q, 0), not "
        "p: with draft probabilities the kernel does not check the draft token (the second runner's does)",
    ),
    ("eagle_prepare_next_token_padded_kernel", _NOTHING): Known(
        "definition", "vLLM continues with the backup token, our op verifies the same token again"
    ),
    ("eagle_prepare_next_token_padded_kernel", "a sampled token id below -1"): Known(
        "domain", "samplers leave -1 in columns without a token; the kernel treats any other id below V as a token"
    ),
    ("eagle_prepare_inputs_padded_kernel", _NOTHING): Known(
        "domain", "a row with verified draft tokens has a token; vLLM's index would precede the tokens it verified"
    ),
    ("eagle_step_slot_mapping_metadata_kernel", _NO_BLOCK): _NULL_BLOCK,
    ("eagle_step_slot_mapping_metadata_kernel", "a draft token that follows one past the end of the model"): Known(
        "domain",
        "past the end the position becomes 0, and the next draft token would overwrite the keys of position 1; the "
        "runner drafts nothing in a step in which any draft token would be past the end (_input_fits_in_drafter)",
    ),
    (
        "update_num_computed_tokens_for_batch_change",
        "a previous step with draft tokens after more than one token",
    ): Known(
        "domain",
        "our scheduler schedules no draft tokens after a prefill chunk; vLLM's kernel counts the draft tokens only",
    ),
    ("update_num_computed_tokens_for_batch_change", _NOTHING): Known(
        "domain", "a row that is not discarded samples a token; without draft tokens vLLM uses the host's count"
    ),
    ("_compute_slot_mapping_kernel", _NO_BLOCK): _NULL_BLOCK,
    ("_compute_slot_mappings_kernel", _NO_BLOCK): _NULL_BLOCK,
    (
        "_prepare_pos_seq_lens_kernel, _combine_sampled_and_draft_tokens_kernel",
        "an invalid token id: unknown to the host, or a draft token that was not proposed",
    ): Known("definition", "our op feeds the nearest valid token id, vLLM's kernel the given id"),
    ("_bias_kernel, _bincount_kernel, _penalties_kernel, _bad_words_kernel", "draft tokens inside the prompt"): Known(
        "domain", "draft tokens come after the prompt; vLLM penalises them as output at any position"
    ),
    ("_topk_log_softmax_kernel, _ranks_kernel", "a sampled token whose logit is -inf"): Known(
        "bug",
        "lanes past the vocabulary are -inf too and are counted: the rank is 8192, the size of a block, or a "
        "multiple of it, and not V; such a token is never sampled, but can be in a prompt whose logprobs are requested",
    ),
}


class Row(NamedTuple):
    """The counts of one kernel under one condition."""

    kernel: str
    op: str
    condition: str
    counts: Count


def unlisted(rows: list[Row]) -> list[str]:
    """Return a line per difference that the list lacks, and per entry without a difference."""
    differing = {(row.kernel, row.condition): row for row in rows if row.counts.num_other or row.counts.num_not_given}
    wrong = [
        f"not listed: {row.kernel}, {row.condition or 'in its domain'}: {row.counts.example}"
        for key, row in differing.items()
        if key not in KNOWN
    ]
    return wrong + [
        f"listed but not found: {kernel}, {condition}"
        for kernel, condition in KNOWN
        if (kernel, condition) not in differing
    ]
