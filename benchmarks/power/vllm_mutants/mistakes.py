"""Mistakes planted in vLLM's model runners from outside, each in one method or buffer."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from workers.targets.vllm.names import RunnerName


@dataclass(frozen=True, slots=True)
class Mistake:
    """A mistake's description, and the function that plants it in a model runner."""

    text: str
    make: Callable[[Any], None]


def _stale_counts_on_the_host(runner: Any) -> None:
    current = runner._get_valid_sampled_token_count
    before: list[list[int]] = [[]]

    def stale() -> list[int]:
        counts, before[0] = before[0], current()
        return counts if len(counts) == len(before[0]) else before[0]

    runner._get_valid_sampled_token_count = stale


def _stale_counts_on_the_device(runner: Any) -> None:
    copy = runner._copy_valid_sampled_token_count
    before: list[Any] = []

    def stale(next_token_ids: Any, counts: Any) -> None:
        copy(next_token_ids, counts)
        if before and before[0].shape == counts.shape:
            runner.valid_sampled_token_count_gpu = before[0]
        before[:] = [counts]

    runner._copy_valid_sampled_token_count = stale


def _reorder_map_ignored(runner: Any) -> None:
    compute = runner._compute_prev_positions

    def ignored(num_reqs: int) -> None:
        compute(num_reqs)
        positions = runner.prev_positions.np[:num_reqs]
        for index, position in enumerate(positions):
            positions[index] = index if position >= 0 else -1

    runner._compute_prev_positions = ignored


def _backup_index_past_the_end(runner: Any) -> None:
    drafter: Any = getattr(runner, "drafter", None)
    if not hasattr(drafter, "backup_next_token_ids"):
        return
    prepare = drafter.prepare_next_token_ids_padded

    def past_the_end(sampled: Any, requests: Any, batch: Any, discarded: Any) -> Any:
        batch.num_tokens_no_spec[: batch.num_reqs] += 1
        try:
            return prepare(sampled, requests, batch, discarded)
        finally:
            batch.num_tokens_no_spec[: batch.num_reqs] -= 1

    drafter.prepare_next_token_ids_padded = past_the_end


def _pinned_staging_shared(runner: Any) -> None:
    if hasattr(runner, "num_decode_draft_tokens"):
        own, other = runner.num_decode_draft_tokens, runner.num_scheduled_tokens
        assert own.cpu.dtype == other.cpu.dtype, "one buffer can hold either"
        own.cpu, own.np = other.cpu, other.np


def _ended_requests_kept(runner: Any) -> None:
    update = runner._update_states

    def kept(plan: Any) -> Any:
        # The runner is not informed of finished requests, and so keeps their state.
        ended, plan.finished_req_ids = plan.finished_req_ids, set()
        for name in ended:
            runner.input_batch.remove_request(name)
        return update(plan)

    runner._update_states = kept


def _positions_one_too_many(runner: Any) -> None:
    forward = runner._model_forward

    def shifted(*arguments: Any, positions: Any, **options: Any) -> Any:
        # All positions of a row are one too high: attention depends on their differences only.
        return forward(*arguments, positions=positions + 1, **options)

    runner._model_forward = shifted


def _rejections_forgotten(runner: Any) -> None:
    update = runner.postprocess_sampled

    def forgotten(rows: Any, sampled: Any, num_sampled: Any, num_rejected: Any, *rest: Any) -> None:
        update(rows, sampled, num_sampled, num_rejected.new_zeros(num_rejected.shape), *rest)

    runner.postprocess_sampled = forgotten


def _bounds_of_the_step_before(runner: Any) -> None:
    update = runner.update_requests

    def restored(plan: Any) -> None:
        counts = runner.req_states.num_computed_tokens_np
        before = counts.copy()
        update(plan)
        counts[:] = before

    runner.update_requests = restored


def _rows_by_number(runner: Any) -> None:
    gather = runner.gather_batch_req_state

    def by_number(*arguments: Any) -> Any:
        state, count = gather(*arguments)
        if state is not None:
            rows = state.idx_mapping_np
            state = state._replace(idx_mapping_np=rows - rows + range(len(rows)))
        return state, count

    runner.gather_batch_req_state = by_number


def _one_buffer_instead_of_two(runner: Any) -> None:
    for shared in (runner.req_states.prefill_len, runner.block_tables.num_blocks):
        shared.pool.max_concurrency = 1


def _rows_of_ended_requests_kept(runner: Any) -> None:
    states = runner.req_states
    remove = states.remove_request

    def kept(name: str) -> Any:
        row = remove(name)
        if row is not None:
            states.free_indices.remove(row)
        return row

    states.remove_request = kept


def _positions_given_one_too_many(runner: Any) -> None:
    prepare = runner.model_state.prepare_inputs

    def shifted(batch: Any, states: Any) -> Any:
        # All positions of a row are one too high: attention depends on their differences only.
        return {**prepare(batch, states), "positions": batch.positions + 1}

    runner.model_state.prepare_inputs = shifted


def _states_changed(change: Callable[[Any], Any]) -> Callable[[Any], None]:
    """Return a mistake that changes the metadata of the first group of recurrent layers."""

    def make(runner: Any) -> None:
        groups = [group for of_blocks in runner.attn_groups for group in of_blocks]
        for builder in (each.get_metadata_builder(0) for each in groups if hasattr(each.kv_cache_spec, "mamba_type")):
            builder.build = _changed(builder.build, change)

    return make


def _changed(build: Callable[..., Any], change: Callable[[Any], Any]) -> Callable[..., Any]:
    def changed(*arguments: Any, **options: Any) -> Any:
        return change(build(*arguments, **options))

    return changed


def _rolled(metadata: Any) -> Any:
    if metadata.num_decodes < 2:
        return metadata
    return replace(metadata, state_indices_tensor_d=metadata.state_indices_tensor_d.roll(1, 0))


def _continuing(metadata: Any) -> Any:
    if not metadata.num_prefills:
        return metadata
    return replace(metadata, has_initial_states_p=metadata.has_initial_states_p.new_ones(metadata.num_prefills))


def _proposing(change: Callable[[dict[str, Any]], None]) -> Callable[[Any], None]:
    """Return a mistake that changes the inputs of the v1 runner's drafter in each step."""

    def make(runner: Any) -> None:
        drafter: Any = getattr(runner, "drafter", None)
        if not hasattr(drafter, "backup_next_token_ids"):
            return
        propose = drafter.propose

        def mistaken(**inputs: Any) -> Any:
            change(inputs)
            return propose(**inputs)

        drafter.propose = mistaken

    return make


def _rows_rolled(inputs: dict[str, Any]) -> None:
    metadata = inputs["common_attn_metadata"]
    inputs["common_attn_metadata"] = metadata.replace(block_table_tensor=metadata.block_table_tensor.roll(1, 0))


def _positions_too_low(inputs: dict[str, Any]) -> None:
    inputs["target_positions"] = (inputs["target_positions"] - 1).clamp(min=0)


def _first_of_a_run(inputs: dict[str, Any]) -> None:
    indices = inputs["token_indices_to_sample"]
    if indices is not None:
        inputs["token_indices_to_sample"] = indices + (inputs["num_rejected_tokens_gpu"] > 0).to(indices.dtype)


def _rejections_kept(inputs: dict[str, Any]) -> None:
    rejected = inputs["num_rejected_tokens_gpu"]
    inputs["num_rejected_tokens_gpu"] = rejected if rejected is None else rejected.new_zeros(rejected.shape)


def _tokens_rolled(inputs: dict[str, Any]) -> None:
    inputs["next_token_ids"] = inputs["next_token_ids"].roll(1, 0)


def _states_rolled(inputs: dict[str, Any]) -> None:
    inputs["target_hidden_states"] = inputs["target_hidden_states"].roll(1, 0)


def _drafts_of_other_rows(runner: Any) -> None:
    copy = runner._copy_draft_token_ids_to_cpu

    def rolled(*arguments: Any, **options: Any) -> None:
        if getattr(runner._draft_token_ids, "ndim", 0) == 2 and hasattr(runner.drafter, "backup_next_token_ids"):
            runner._draft_token_ids = runner._draft_token_ids.roll(1, 0)
        copy(*arguments, **options)

    runner._copy_draft_token_ids_to_cpu = rolled


def _passes_left_out(runner: Any) -> None:
    drafter: Any = getattr(runner, "drafter", None)
    if not hasattr(drafter, "_update_positions_dependent_metadata"):
        return
    # Each draft pass starts where the previous one was.
    drafter._update_positions_dependent_metadata = lambda positions, *_: positions


# Mistakes of a draft model in the first runner.
OF_DRAFTERS = {
    "drafter_rows_not_moved": Mistake(
        "the drafter uses the block tables of the previous rows", _proposing(_rows_rolled)
    ),
    "drafter_positions_behind": Mistake("the drafter's positions are one too low", _proposing(_positions_too_low)),
    "drafter_goes_on_from_a_rejected_draft": Mistake(
        "after a rejected draft token the next token is placed one position too late", _proposing(_first_of_a_run)
    ),
    "drafter_keeps_rejected_drafts": Mistake(
        "the drafter's sequence lengths include rejected draft tokens", _proposing(_rejections_kept)
    ),
    "next_tokens_of_other_rows": Mistake("the drafter starts from tokens of other rows", _proposing(_tokens_rolled)),
    "hidden_states_of_other_rows": Mistake(
        "the drafter gets hidden states of the previous rows", _proposing(_states_rolled)
    ),
    "drafts_of_other_rows": Mistake("draft tokens of other rows are verified", _drafts_of_other_rows),
    "drafter_stands_still": Mistake("all draft tokens are computed at the position of the first", _passes_left_out),
}
# Mistakes of hybrid models only, in either runner.
OF_STATES = {
    "states_of_other_rows": Mistake("rows continue from the states of the previous rows", _states_changed(_rolled)),
    "states_not_begun": Mistake(
        "new requests start from their state blocks' old content", _states_changed(_continuing)
    ),
}
FIRST_RUNNER = {
    "stale_counts_on_the_host": Mistake(
        "the host corrects its counts by the previous step's counts", _stale_counts_on_the_host
    ),
    "stale_counts_on_the_device": Mistake(
        "the device corrects its counts by the previous step's counts", _stale_counts_on_the_device
    ),
    "reorder_map_ignored": Mistake(
        "rows are matched with the previous step's rows by index, although they have moved", _reorder_map_ignored
    ),
    "backup_index_past_the_end": Mistake(
        "the backup token is read one position after the last known token", _backup_index_past_the_end
    ),
    "pinned_staging_shared": Mistake(
        "counts of scheduled tokens and of draft tokens are staged in one pinned buffer", _pinned_staging_shared
    ),
    "ended_requests_kept": Mistake("the runner keeps finished requests", _ended_requests_kept),
    "positions_one_too_many": Mistake(
        "all positions are one too high; attention depends on their differences only", _positions_one_too_many
    ),
    **OF_DRAFTERS,
    **OF_STATES,
}
SECOND_RUNNER = {
    "rejections_forgotten": Mistake("the device continues as if no draft token was rejected", _rejections_forgotten),
    "bounds_of_the_step_before": Mistake(
        "the host bounds lengths by the counts of the previous step", _bounds_of_the_step_before
    ),
    "rows_by_number": Mistake(
        "a request's state is read from the slot with its batch index, instead of its own slot", _rows_by_number
    ),
    "one_buffer_instead_of_two": Mistake(
        "prompt lengths and block counts are written to one pinned buffer each, instead of two in turn",
        _one_buffer_instead_of_two,
    ),
    "rows_of_ended_requests_kept": Mistake("the runner keeps rows of finished requests", _rows_of_ended_requests_kept),
    "positions_one_too_many": Mistake(
        "all positions are one too high; attention depends on their differences only", _positions_given_one_too_many
    ),
    **OF_STATES,
}
# Mistakes by runner and name.
MISTAKES: Mapping[RunnerName, Mapping[str, Mistake]] = {"v1": FIRST_RUNNER, "v2": SECOND_RUNNER}
