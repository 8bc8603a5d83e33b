"""Table of situations (changes of random traces): weight, area, and bugs to find.

A weight is the share of the traces, where the situation is possible, in which it is generated.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, TypeAlias, get_args

Weight: TypeAlias = Fraction
# Factor by which a focus raises a weight, up to FOCUS_MAX.
FOCUS_FACTOR, FOCUS_MAX = 4, Weight(3, 4)

Area: TypeAlias = Literal[
    "scheduling",
    "speculation",
    "sampling",
    "kv_cache",
    "prefix_cache",
    "recurrent_state",
    "sliding_window",
    "sessions",
    "control_plane",
    "connectors",
    "cuda_graphs",
    "ranks",
]
AREAS: tuple[Area, ...] = get_args(Area)
TABLE: Mapping[str, tuple[str, Area, str]] = {
    # Base generator. Event kinds come in one trace of two, so that absent kinds make room for others.
    "aborts": ("1/2", "scheduling", "blocks, rows and results in flight of a request that is aborted"),
    "cache_resets": ("1/2", "prefix_cache", "blocks of a cleared prefix cache in flight"),
    "draft_count_changes": ("1/2", "speculation", "drafts of the earlier length in the next step"),
    "dummy_steps": ("1/2", "scheduling", "buffers that a batch of padding overwrites"),
    "nan_logits": ("1/2", "sampling", "NaN logits of one row that reach others"),
    "no_valid_tokens": ("1/2", "speculation", "rows for which a step samples no token"),
    "preemptions": ("1/2", "scheduling", "recomputation with results in flight"),
    "reorders": ("1/2", "scheduling", "per-row buffers after the rows of a batch are permuted"),
    "spoiled_drafts": ("1/2", "speculation", "draft logits or tokens out of their range"),
    "spoiled_logits": ("1/2", "sampling", "infinite logits before masks and softmax"),
    "stalls": ("1/2", "scheduling", "rows that leave the batch for a step and return"),
    "abort_at_last_token": ("1/4", "scheduling", "an abort while the step with a request's last tokens is in flight"),
    "drafter_of_few_positions": ("1/4", "speculation", "a draft model that never runs, or for one step"),
    "drafter_position_limit": ("1/6", "speculation", "drafts past the positions of the draft model"),
    "equal_blocks_after_different_ones": ("1/3", "prefix_cache", "blocks found by their own tokens alone"),
    "last_match_taken": ("1/2", "prefix_cache", "a drafter's entries for the last block of a hit"),
    "later_requests_first": ("1/2", "scheduling", "tokens of a request preempted after it got its share"),
    "long_prompt": ("1/12", "scheduling", "tables and loops longer than one tile"),
    "many_draft_tokens": ("1/16", "speculation", "buffers sized for few drafts, tokens of several blocks per step"),
    "mixed_priorities": ("1/5", "scheduling", "preemption by priority, and the order of resumption"),
    "model_shorter_than_drafts": ("1/16", "speculation", "drafts and lookahead slots past max_model_len"),
    "pool_of_one_request": ("3/5", "kv_cache", "blocks freed and allocated again with steps in flight"),
    "preempt_in_first_step": ("1/2", "scheduling", "drafts and grammar of a request after its first step is undone"),
    "request_id_reuse": ("1/3", "scheduling", "results in flight that reach a later request of the same id"),
    "shared_prefixes": ("1/4", "prefix_cache", "hits on blocks of the same step, in flight, evicted or freed"),
    "stop_tokens": ("1/3", "scheduling", "tokens after a stop token within a run of accepted drafts"),
    "undefined_draft_logits": ("1/2", "speculation", "rejection sampling with NaN or infinite draft logits"),
    # Features of requests and models that only some engines have.
    "broken_grammar": ("1/12", "sampling", "a request with a grammar that fails to compile"),
    "control_plane_events": ("1/4", "control_plane", "steps in flight and caches when an engine pauses or sleeps"),
    "drafters_of_the_engine": ("1", "speculation", "drafts accepted in part, by drafters with weights"),
    "draft_trees": ("1/4", "speculation", "positions, slots and masks of draft tokens that form a tree"),
    "gated_delta_layers": ("1/2", "recurrent_state", "states of gated delta nets after rejected draft tokens"),
    "grammars_wait_for_reasoning": ("1/4", "sampling", "grammar bitmasks of rows before the end of reasoning"),
    "hybrid_model": ("1/6", "recurrent_state", "recurrent states of rows that are added, moved and preempted"),
    "logit_bias": ("1/2", "sampling", "logit biases of a row that another row had before"),
    "logprob_tokens": ("1/16", "sampling", "logprobs of named tokens in rows that move"),
    "logprobs_are_logits": ("1/8", "sampling", "logits returned before or after the wrong processor"),
    "min_p": ("1", "sampling", "thresholds of min_p in rows that move"),
    "mixed_chunks": ("1/3", "scheduling", "decodes in the batch of a prefill chunk"),
    "no_repeats": ("1", "sampling", "rows of a user's processor after requests move"),
    "plan_stream": ("1/3", "speculation", "draft steps prepared on a stream of their own"),
    "num_prompt_logprobs": ("1/4", "sampling", "logprobs of prompt tokens across prefill chunks and prefix-cache hits"),
    "relay_lengths": ("1/3", "scheduling", "sequence lengths that the host reads before they are final"),
    "include_stop_str_in_output": ("1/6", "scheduling", "output text without its stop string"),
    "stop_words": ("1/6", "scheduling", "tokens after a stop word that ends within a run"),
    "tensor_ranks": (
        "1/16",
        "ranks",
        "ranks that decide differently, or that nobody waits for",
    ),
    "pipeline_ranks": ("1/16", "ranks", "sampled tokens and drafts that reach the first rank late or not at all"),
    "data_ranks": (
        "1/16",
        "ranks",
        "ranks that wait for one another: idle ones, paused ones, and those without drafts",
    ),
    "user_logits_processor": ("1/3", "sampling", "a user's processor after rows are added and moved"),
    # Alternatives: a trace has at most one of these sizes. The weights of an engine's alternatives add up to at most 1.
    "chunks_up_to_a_run": ("1/10", "scheduling", "prefill chunks as short as a run of draft tokens"),
    "drafts_up_to_max_model_len": ("1/10", "speculation", "draft tokens and lookahead slots at max_model_len"),
    "outgrown_pool": ("1/5", "kv_cache", "preemption for want of blocks with drafts in flight, also by priority"),
    "short_pool": ("1/5", "kv_cache", "retraction for want of slots with drafts in flight"),
    "uneven_chunks": ("1/10", "prefix_cache", "chunks that end inside a block after a hit"),
    "hits_at_model_end": ("1/10", "speculation", "a draft model's positions and slots after a hit at max_model_len"),
    "wide_pages": ("1/10", "kv_cache", "the end of the model in a page"),
    "retract_at_last_token": ("1/10", "scheduling", "a request that loses its slots with its last tokens in flight"),
    "repeated_grammars": ("1/30", "speculation", "drafts of a corpus that pass the end of a grammar"),
    # Batches, prefixes and sessions of engines with their own drafts. A CUDA graph doubles the time to make an engine.
    "branches_after_blocks": ("1/2", "prefix_cache", "a drafter's KV entry that depends on the next token"),
    "cache_cleared_past_a_block": ("1/5", "recurrent_state", "states at block ends after the prefix cache is cleared"),
    "cuda_graphs": ("1/6", "cuda_graphs", "a captured graph that is replayed for a batch it was not captured for"),
    "decodes_first": ("1/3", "scheduling", "rows that move as decodes are put before prefills"),
    "drafts_fill_a_block": ("1/16", "speculation", "slot mappings of drafts at a block end"),
    "dummy_steps_between_states": ("1/3", "cuda_graphs", "states that a replay for a batch of padding overwrites"),
    "grammar_waits_among_drafts": ("1/2", "sampling", "bitmasks of the drafts after the end of reasoning"),
    "hits_inside_blocks": ("1/2", "recurrent_state", "copies of states and blocks that a hit inside a block needs"),
    "multi_turn": ("1/5", "prefix_cache", "blocks of an output that the next turn of its conversation finds"),
    "no_drafts": ("1/10", "scheduling", "steps without drafts, and seeded sampling in them"),
    "no_drafts_more_often": ("1/4", "scheduling", "steps without drafts, which have more code here"),
    "parallel_drafts_fill_a_block": ("1/2", "speculation", "slots of drafts that are proposed at once, at a block end"),
    "pause_while_chunking": ("1/6", "control_plane", "a pause between the prefill chunks of a request"),
    "preempt_while_chunking": ("1/4", "scheduling", "slots and counts of a prefill chunk in flight at a preemption"),
    "rows_swap_while_chunking": ("1/3", "scheduling", "per-row sampling parameters and bad words after two rows swap"),
    "sessions": ("1/6", "sessions", "tokens, blocks and states that a later part of a session takes over"),
    "session_with_tight_pool": ("1/3", "sessions", "sessions that wait for the KV blocks of each other"),
    "single_token_prompts": ("1/2", "recurrent_state", "initial states of one-token prompts, which look like decodes"),
    "states_at_block_ends": ("1", "recurrent_state", "states that a step with drafts keeps at a block end"),
    "stop_words_among_drafts": ("1/2", "scheduling", "the first of several stop words in a run of drafts"),
    # Sliding windows.
    "prompts_longer_than_windows": ("1/2", "sliding_window", "common prefixes that a window keeps in part"),
    "sliding_windows": ("1/7", "sliding_window", "blocks that leave a window with tokens in flight"),
    "wide_window_heads": ("1/4", "sliding_window", "block sizes that differ between KV-cache groups"),
    "windows_with_draft_model": ("1/3", "sliding_window", "a draft model that writes into the target's KV group"),
    # KV connectors.
    "handoff": ("1/2", "connectors", "blocks of a producer that are freed before they are read"),
    "hybrid_handoff": ("1/8", "connectors", "states that are handed over with a prompt"),
    "hybrid_kv_store": ("1/4", "connectors", "states copied to the next block while a store loads them"),
    "hybrid_kv_store_hits_inside_blocks": ("1/2", "connectors", "hits inside a block and the rest in a store"),
    "kv_store": ("1/4", "connectors", "blocks freed or used with a load or a store in flight, and failed loads"),
    "offloading": ("1/2", "connectors", "chunks stored, evicted and loaded again for preempted requests"),
    "short_prompts_after_long_one": ("2/3", "connectors", "a producer out of blocks in the middle of a chunked prompt"),
    # Alternatives, of a store and of offloading.
    "stored_requests_in_turn": ("1/4", "connectors", "loads into a pool without room for the rest of a prompt"),
    "chunks_evicted_by_short_prompts": ("1/10", "connectors", "chunks evicted while a request that needs them runs"),
    "preempt_as_last_chunk_is_stored": ("2/5", "connectors", "stores in flight of a request that is preempted"),
    "offloaded_requests_in_turn": ("1/5", "connectors", "loads into a pool without room for the rest of a prompt"),
    # Where a simple connector serves a drafter such as eagle.
    "branches_in_a_store": ("1", "connectors", "a drafter's entries in loaded blocks"),
}
WEIGHTS: Mapping[str, Weight] = {name: Weight(weight) for name, (weight, _, _) in TABLE.items()}


@dataclass(frozen=True, slots=True)
class Weights:
    """Weights of situations in one hunt: raised for those in `focus`, zero for `without`."""

    focus: frozenset[str] = frozenset()
    without: frozenset[str] = frozenset()

    def __getitem__(self, name: str) -> Weight:
        """Return the weight of a situation.

        A situation in `without` is sampled, too, and then dropped.
        """
        weight = WEIGHTS[name]
        return max(weight, min(FOCUS_FACTOR * weight, FOCUS_MAX)) if name in self.focus else weight


DEFAULT = Weights()
