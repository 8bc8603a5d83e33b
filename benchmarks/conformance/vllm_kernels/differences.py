"""Differences between vLLM's kernels and ours that are known, each by kernel and condition, with its reason."""

from typing import Literal, NamedTuple, TypeAlias

from benchmarks.conformance.vllm_kernels.comparison import Count

# `definition`: both are sound and say it differently; `domain`: the engine gives no kernel such an input;
# `bug`: the kernel is wrong for an input that it is meant for.
Kind: TypeAlias = Literal["definition", "domain", "bug"]


class Known(NamedTuple):
    """What kind of difference it is, and why."""

    kind: Kind
    reason: str


_UNDEFINED = "a line of logits with NaN or inf, or of nothing but -inf"
_OUTSIDE = "a draft outside the vocabulary"
_UNLIKELY = "a draft that its drafter gives no probability"
_NOTHING = "a row that is not discarded and sampled no token"
_NO_BLOCK = "a position without a block"

_ENDS = Known(
    "definition", "ours ends the row before such a line, and says so in its status; vLLM's samples some token"
)
_UNBOUNDED = Known("domain", "a draft is an index into probabilities, without a bound: the kernel is not given it")
_UNDRAWN = Known("domain", "a draft that was drawn has a probability; where p is 0 as well, their ratio is no number")
_NULL_BLOCK = Known("definition", "vLLM's tables are filled with block 0, which nobody reads; ours have no slot there")
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
    ("rejection_random_sample_kernel", "noise that is the bound itself, but for rounding"): Known(
        "definition", "at the bound itself vLLM's keeps the draft (>=), ours does not: of 2^24 numbers one"
    ),
    ("rejection_random_sample_kernel", "noise of 0, and a draft that the target gives no probability"): Known(
        "bug",
        "0 / q >= 0 keeps a draft that top-k, top-p or a mask has excluded; noise is drawn from [0, 1) in float64, so 0"
        " comes once in 2^53 numbers (the second runner compares strictly, with noise that is never 0)",
    ),
    (_RECOVERED, "drafts that were never proposed, beside the probabilities of others"): Known(
        "bug",
        "a draft of -1 is rejected, as it should be, but the token in its place is drawn from max(p - q, 0), not p: "
        "where draft probabilities are given the kernel does not look at the draft (the second runner's does)",
    ),
    ("eagle_prepare_next_token_padded_kernel", _NOTHING): Known(
        "definition", "vLLM's goes on from the backup token, ours verifies the same token once more"
    ),
    ("eagle_prepare_next_token_padded_kernel", "a sampled column that is negative and not -1"): Known(
        "domain", "samplers leave -1 in columns without a token; the kernel takes anything else below V for one"
    ),
    ("eagle_prepare_inputs_padded_kernel", _NOTHING): Known(
        "domain", "a row whose drafts are judged has a token; vLLM's would point before the tokens it verified"
    ),
    ("eagle_step_slot_mapping_metadata_kernel", _NO_BLOCK): _NULL_BLOCK,
    ("eagle_step_slot_mapping_metadata_kernel", "a draft that is fed behind one past the end of the model"): Known(
        "domain",
        "past the end the position becomes 0, and the next draft would overwrite the keys of position 1; the runner "
        "drafts nothing in a step in which any draft would lie past the end (_input_fits_in_drafter)",
    ),
    ("update_num_computed_tokens_for_batch_change", "a step before with drafts behind more than one token"): Known(
        "domain", "the first runner's scheduler has no drafts behind a chunk; vLLM's counts the drafts' tokens alone"
    ),
    ("update_num_computed_tokens_for_batch_change", _NOTHING): Known(
        "domain", "a row that is not discarded samples a token; without drafts vLLM's believes the host"
    ),
    ("_compute_slot_mapping_kernel", _NO_BLOCK): _NULL_BLOCK,
    ("_compute_slot_mappings_kernel", _NO_BLOCK): _NULL_BLOCK,
    (
        "_prepare_pos_seq_lens_kernel, _combine_sampled_and_draft_tokens_kernel",
        "an id that is no token: unknown to the host, or a draft that nobody proposed",
    ): Known("definition", "ours feeds the nearest id of a token, vLLM's what it is given"),
    ("_bias_kernel, _bincount_kernel, _penalties_kernel, _bad_words_kernel", "drafts that lie in the prompt"): Known(
        "domain", "drafts come behind the prompt; vLLM's penalises them as output wherever they lie"
    ),
    ("_topk_log_softmax_kernel, _ranks_kernel", "a sampled token whose logit is -inf"): Known(
        "bug",
        "lanes behind the vocabulary are -inf too and are counted: the rank is 8192, the size of a block, or a "
        "multiple of it, and not V; such a token is never sampled, but may stand in a prompt whose logprobs are asked",
    ),
}


class Row(NamedTuple):
    """A kernel under a condition, and what was counted."""

    kernel: str
    op: str
    condition: str
    counts: Count


def unlisted(rows: list[Row]) -> list[str]:
    """Say what is wrong with the list: differences that are not on it, and entries under which nothing differs."""
    differing = {(row.kernel, row.condition): row for row in rows if row.counts.num_other or row.counts.num_not_given}
    wrong = [
        f"not on the list: {row.kernel}, {row.condition or 'in its domain'}: {row.counts.example}"
        for key, row in differing.items()
        if key not in KNOWN
    ]
    return wrong + [
        f"on the list, and not seen: {kernel}, {condition}"
        for kernel, condition in KNOWN
        if (kernel, condition) not in differing
    ]
