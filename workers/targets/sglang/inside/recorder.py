"""Recorder of each step of a scheduler: its batch, model inputs and sampled tokens.

A step is one batch that runs. Device tensors are read back at the model call, on the stream that calls it; this adds no
order, and the race detector ignores it. With draft tokens, the sequence lengths are the device's: the host learns only
later how many draft tokens were accepted.
"""

from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import torch

from scenarios.spec import ENGINE
from workers.targets.child.inside.observations import Observations, digests
from workers.targets.child.inside.readback import Parts, readback_on
from workers.targets.child.messages import Message
from workers.targets.sglang.inside.batches import counts_of, leaks_of, rows_without_token, sampled_of
from workers.targets.sglang.inside.sampler_states import observe_sampler

# Files with functions that copy their arguments; skipped in the writers' stacks.
_HELPERS = ("sglang/srt/utils/",)


class Holder(NamedTuple):
    """A request that holds KV-cache slots, with its row in the request-to-token pool.

    The first `num_shared` of its KV-cache slots belong to the radix tree.
    """

    name: str
    row: int
    num_slots: int
    num_shared: int


def number_of(request_id: str) -> int:
    """Return the request's number in the trace, given SGLang's request id."""
    return int(request_id.rpartition("-")[2])


def _holder_of(request: Any) -> Holder:
    kv = request.kv
    return Holder(request.rid, kv.req_pool_idx, kv.kv_allocated_len, kv.cache_protected_len)


def _has_released(request: Any, before: Mapping[str, Holder]) -> bool:
    """Return whether a request has ended and released the slots that it held before a step."""
    return request.finished() and not request.kv.holds_kv and request.rid in before


def blocks_of(slots: Sequence[int], size: int) -> list[int]:
    """Return the pages (blocks) of a request's slots in order; -1 where slots form no page."""
    if size == 1:
        return list(slots)
    found = []
    for start in range(0, len(slots), size):
        page = slots[start : start + size]
        is_page = page[0] % size == 0 and list(page) == [*range(page[0], page[0] + len(page))]
        found.append(page[0] // size if is_page else -1)
    return found


def _judge_names(point: str, name: str) -> tuple[str, ...]:
    """Return the names that judges use for a tensor observed at a point of a step."""
    if point == "scheduled":
        return {"computed": ("scheduled_computed",), "rows": ()}.get(name, ())
    if point == "sampler":
        return (name,)
    names = {"indices": ("tables",), "indptr": ("seq_lens",), "rows": (), "nodes": (), "counts": ()}.get(name, (name,))
    if point == "hidden_states":
        return ()
    if point == "drafting" and name != "hidden_states":
        return tuple(f"draft_{each}" for each in names)
    # The target's inputs contain the draft tokens to verify.
    return (*names, "verified") if name == "input_ids" else names


class ObservationsByHost(Observations):
    """Observations in the order in which the host made them, not in device order.

    Several streams have no other common order.
    """

    def __init__(self) -> None:
        super().__init__(readback_on("sim", _HELPERS), number_of, _judge_names, [], ENGINE)
        self._places: deque[list[Message]] = deque()

    def take(self) -> list[Message]:
        while self._places and self._places[0]:
            self._seen += self._places.popleft()
        return super().take()

    def _place(self) -> list[Message]:
        self._places.append([])
        return self._places[-1]


class Recorder:
    """Records the steps of one scheduler; its methods stay wrapped until `release`."""

    def __init__(self, scheduler: Any) -> None:
        self.observations = ObservationsByHost()
        self.page_size: int = scheduler.page_size
        self.rows: torch.Tensor = scheduler.req_to_token_pool.req_to_token
        # The batch that is running; `last_steps` below has the last step of each request.
        self.batch: Any = None
        # Records the inputs of a step with draft trees, given a tensor of accepted nodes and one of their counts.
        self.record_accepted: Callable[[torch.Tensor, torch.Tensor], None] | None = None
        # The target's hidden states of all nodes of that step's draft trees.
        self._of_nodes: torch.Tensor | None = None
        algorithm = scheduler.spec_algorithm
        self.receives_hidden_states = scheduler.draft_worker is not None and not (
            algorithm.is_ngram() or algorithm.is_standalone()
        )
        self.last_steps: dict[str, int] = {}
        self._scheduler = scheduler
        self._results: dict[int, int] = {}
        # Slots of requests that have ended: a batch with them may have been planned and not launched yet.
        self._ended: dict[str, Holder] = {}
        # For each request, its number of retractions (preemptions) when it last began.
        self._begun: dict[str, int] = {}
        model = self._model = scheduler.tp_worker.model_runner.model
        self._plan: Callable[..., Any] = scheduler.get_next_batch_to_run
        self._run: Callable[..., Any] = scheduler.run_batch
        self._process: Callable[..., Any] = scheduler.process_batch_result
        self._forward: Callable[..., Any] = model.forward
        scheduler.get_next_batch_to_run = self._observed_plan
        scheduler.run_batch, scheduler.process_batch_result = self._observed_run, self._observed_process
        model.forward = self._observed_forward
        self.observations.note(
            "opened",
            [],
            vocab_size=scheduler.model_config.vocab_size,
            block_size=self.page_size,
            state_sizes=[],
            # SGLang cuts no sequence at the model's length; the capacity of its row ends it.
            max_model_len=self.rows.shape[1],
            # Every drafter with a model receives, at a token's position, the token after it.
            draft_shift=0 if scheduler.draft_worker is None or scheduler.spec_algorithm.is_ngram() else 1,
            chunk_ends_known=True,
            mask_token=None,
            drafts_max=scheduler.server_args.speculative_num_steps or 0,
            lookups_filled_up=False,
            greedy_is_top_1=True,
            receives_hidden_states=self.receives_hidden_states,
        )

    @property
    def has_trees(self) -> bool:
        """Whether the drafter (n-gram corpus or model) proposes trees of draft tokens."""
        width = self._scheduler.server_args.speculative_eagle_topk or 1
        return bool(self._scheduler.spec_algorithm.is_ngram()) or width > 1

    def release(self) -> None:
        """Restore the scheduler's methods."""
        del self._scheduler.get_next_batch_to_run
        del self._scheduler.run_batch, self._scheduler.process_batch_result, self._model.forward

    def holders(self) -> list[Holder]:
        """Return the requests that hold KV-cache slots: running, in the batch, or in prefill."""
        scheduler = self._scheduler
        requests = [*self.batch.reqs, *scheduler.running_batch.reqs]
        if scheduler.chunked_req is not None:
            requests.append(scheduler.chunked_req)
        every = {request.rid: request for request in requests}
        held = [_holder_of(request) for request in every.values() if request.kv.holds_kv]
        return held + [
            self._ended[name] for name, request in every.items() if request.finished() and name in self._ended
        ]

    def blocks(self, holders: Sequence[Holder], rows: torch.Tensor) -> list[list[Any]]:
        """Return each request's block table, from its row of the request-to-token pool."""
        return [
            [number_of(each.name), blocks_of(rows[each.row, : each.num_slots].tolist(), self.page_size)]
            for each in holders
        ]

    def input_tensors(self, forward_batch: Any, metadata: Any, **tensors: torch.Tensor) -> Mapping[str, torch.Tensor]:
        """Return the input tensors of a model call, by the names of an engine record."""
        indices = {"indptr": metadata.kv_indptr, "indices": metadata.kv_indices, "rows": self.rows}
        return {**tensors, "slots": forward_batch.out_cache_loc, **indices}

    def inputs(self, views: Mapping[str, Parts], counts: Sequence[int], *, adds_own_slots: bool) -> dict[str, Any]:
        """Return the inputs of each batch row, with the block table of its attended slots.

        Row `i` has `counts[i]` tokens. A kernel receives the attended slots. For rows of several tokens these are only
        the slots before them; with `adds_own_slots` the rows' own slots are added.
        """
        starts = [0, *accumulate(counts)]
        flat = {name: views[name][0].tolist() for name in ("input_ids", "positions", "slots")}
        indptr, indices = views["indptr"][0].tolist(), views["indices"][0]
        tables, lengths = [], []
        for row, (start, stop) in enumerate(pairwise(starts)):
            slots = indices[indptr[row] : indptr[row + 1]].tolist() + (
                flat["slots"][start:stop] if adds_own_slots else []
            )
            lengths.append(len(slots))
            missing = [-1] * (flat["positions"][stop - 1] + 1 - len(slots))
            tables.append(blocks_of([*slots, *missing], self.page_size))
        return {**flat, "starts": starts, "tables": tables, "seq_lens": lengths}

    def controlled(self, what: str) -> None:
        """Record a control call, such as `pause_keep`."""
        self.observations.note("controlled", [], what=what, version=0, tokens=[])

    def drained(self, further: Sequence[Any] = ()) -> None:
        """Record the slots and requests that the schedulers of all ranks hold after the last request."""
        leaks = leaks_of(self._scheduler)
        for rank, scheduler in enumerate(further, 1):
            leaks |= {f"{name} (rank {rank})": count for name, count in leaks_of(scheduler).items()}
        self.observations.note("drained", [], leaks=leaks)

    def take(self) -> list[Message]:
        """Return the engine records of finished steps since the last call."""
        return self.observations.take()

    def _observed_plan(self, *arguments: Any, **options: Any) -> Any:
        before = {request.rid for request in self._scheduler.waiting_queue}
        plan = self._plan(*arguments, **options)
        if self._scheduler.waiting_queue and self._scheduler.chunked_req is None:
            self._note_waiting(plan.batch_to_run, plan.running_batch, before)
        return plan

    def _note_waiting(self, batch: Any, running_batch: Any, before: Collection[str]) -> None:
        """Record the requests that wait after a plan, and the rows, tokens and blocks that it left.

        `before` are the ids of the requests that waited before the plan.
        """
        scheduler, pool = self._scheduler, self._scheduler.token_to_kv_pool_allocator
        planned = [] if batch is None else batch.reqs
        running = {request.rid: request for request in (*running_batch.reqs, *planned)}
        is_prefill = batch is not None and batch.forward_mode.is_extend()
        rows = scheduler.max_running_requests - len(running), scheduler.req_to_token_pool.available_size()
        drafts, width = scheduler.server_args.speculative_num_draft_tokens, scheduler.server_args.speculative_eagle_topk
        # Two decode steps of draft tokens, with pages of its own for each branch, and two more pages.
        reserved = 2 * (width or 1) * (2 + -(-drafts // self.page_size)) + 2 if drafts else 2
        self.observations.note(
            "waiting",
            [request.rid for request in scheduler.waiting_queue],
            admitted=[number_of(request.rid) for request in planned if request.rid in before],
            running=[
                [number_of(name), _holder_of(request).num_slots // self.page_size] for name, request in running.items()
            ],
            rows_left=min(rows),
            tokens_left=scheduler.chunked_prefill_size - (batch.extend_num_tokens if is_prefill else 0),
            blocks_left=(pool.available_size() + scheduler.tree_cache.evictable_size()) // self.page_size,
            blocks_reserved=reserved,
        )

    def _observed_run(self, batch: Any, *arguments: Any, **options: Any) -> Any:
        self.observations.step += 1
        if batch.reqs:
            observe_sampler(self.observations, batch, self._scheduler.model_config.vocab_size)
        self.batch = batch
        try:
            result = self._run(batch, *arguments, **options)
        finally:
            self.batch = None
        self._results[id(result)] = self.observations.step
        return result

    def _observed_forward(
        self, input_ids: Any, positions: Any, forward_batch: Any, *arguments: Any, **options: Any
    ) -> Any:
        if self.batch is None:
            return self._forward(input_ids, positions, forward_batch, *arguments, **options)
        self._note(forward_batch, input_ids, positions)
        made = self._forward(input_ids, positions, forward_batch, *arguments, **options)
        if self.receives_hidden_states and self.record_accepted is not None:
            self._of_nodes = made.hidden_states
        elif self.receives_hidden_states:
            self.note_hidden_states([request.rid for request in self.batch.reqs], made.hidden_states, draft_pass=None)
        return made

    def note_hidden_states(self, names: Sequence[str], states: torch.Tensor, draft_pass: int | None) -> None:
        """Record the hidden states that the target's model returned, or the drafter's in a pass."""

        def returned(views: Mapping[str, Parts]) -> Mapping[str, Any]:
            return {"hidden_states": digests(views["states"])}

        self.observations.read("hidden_states", names, {"states": states}, returned, draft_pass=draft_pass)

    def _note(self, forward_batch: Any, input_ids: torch.Tensor, positions: torch.Tensor) -> None:
        """Record the batch and the model inputs of a step."""
        from sglang.srt.model_executor.forward_context import get_forward_context  # noqa: PLC0415

        batch, holders, mode = self.batch, self.holders(), forward_batch.forward_mode
        names = [request.rid for request in batch.reqs]
        self.last_steps |= dict.fromkeys(names, self.observations.step)
        counts, drafts, num_verified = counts_of(batch, mode, len(input_ids))

        def before(lengths: Sequence[int]) -> list[int]:
            return [length + num_verified - count for length, count in zip(lengths, counts, strict=True)]

        def planned(views: Mapping[str, Parts]) -> Mapping[str, Any]:
            computed = before(views["computed"][0].tolist())
            return {"scheduled_computed": computed, "blocks": self.blocks(holders, views["rows"][0])}

        def inputs(views: Mapping[str, Parts]) -> Mapping[str, Any]:
            return self.inputs(views, counts, adds_own_slots=not mode.is_decode())

        self.observations.read(
            "scheduled",
            names,
            {"computed": batch.seq_lens, "rows": self.rows},
            planned,
            planned_drafts=drafts,
            begun=self._begin(batch.reqs),
            states=[],
            follows=True,
            shared=[[number_of(each.name), each.num_shared] for each in holders],
        )
        metadata = get_forward_context().attn_backend.forward_metadata
        tensors = self.input_tensors(forward_batch, metadata, input_ids=input_ids, positions=positions)
        if mode.is_target_verify() and self.has_trees:
            self.record_accepted = partial(self._record_accepted_inputs, names, tensors)
        else:
            self.observations.read("inputs", names, tensors, inputs, drafts=drafts)
        if batch.seq_lens_cpu is not None:
            self.observations.note("corrected", names, mirror_computed=before(batch.seq_lens_cpu.tolist()))

    def _record_accepted_inputs(
        self, names: Sequence[str], tensors: Mapping[str, torch.Tensor], nodes: torch.Tensor, counts: torch.Tensor
    ) -> None:
        """Record a step with draft trees: accepted nodes at their final KV-cache slots."""

        def inputs(views: Mapping[str, Parts]) -> Mapping[str, Any]:
            kept = views["counts"][0].tolist()
            width = len(views["input_ids"][0]) // len(kept)
            rows = [row[:count] for row, count in zip(views["nodes"][0].tolist(), kept, strict=True)]
            chosen = torch.tensor([node for row in rows for node in row])
            front = torch.tensor([row * width + place for row, count in enumerate(kept) for place in range(count)])
            of_accepted = {name: [views[name][0][chosen]] for name in ("input_ids", "positions")}
            of_accepted["slots"] = [views["slots"][0][front]]
            recorded = self.inputs({**views, **of_accepted}, kept, adds_own_slots=True)
            return {**recorded, "drafts": [count - 1 for count in kept]}

        def states(views: Mapping[str, Parts]) -> Mapping[str, Any]:
            pairs = zip(views["nodes"][0].tolist(), views["counts"][0].tolist(), strict=True)
            accepted = [node for row, count in pairs for node in row[:count]]
            return {"hidden_states": digests([views["states"][0][accepted]])}

        accepted = {"nodes": nodes, "counts": counts}
        self.observations.read("inputs", names, {**tensors, **accepted}, inputs)
        if self._of_nodes is not None:
            self.observations.read("hidden_states", names, {"states": self._of_nodes, **accepted}, states)
            self._of_nodes = None

    def _begin(self, requests: Sequence[Any]) -> list[list[Any]]:
        """Return (number, all token ids) of the requests that start or resume in a step."""
        begun = []
        for request in requests:
            if self._begun.get(request.rid) != request.retraction_count:
                self._begun[request.rid] = request.retraction_count
                begun.append([number_of(request.rid), [*request.origin_input_ids, *request.output_ids]])
        return begun

    def _observed_process(self, batch: Any, result: Any, *arguments: Any, **options: Any) -> Any:
        step = self._results.pop(id(result), None)
        without = rows_without_token(batch)
        before = {request.rid: _holder_of(request) for request in batch.reqs if request.kv.holds_kv}
        processed = self._process(batch, result, *arguments, **options)
        self._ended |= {request.rid: before[request.rid] for request in batch.reqs if _has_released(request, before)}
        if step is not None:
            sampled = map(self._with_last_output_token, batch.reqs, sampled_of(result, without))
            self.observations.note("processed", [request.rid for request in batch.reqs], step, sampled=list(sampled))
        return processed

    def _with_last_output_token(self, request: Any, sampled: list[int]) -> list[int]:
        """Return the sampled tokens; if a grammar cut them off, end with the last output token.

        If the grammar has ended, the request may already be in the next batch. The host then keeps only the output
        tokens that the grammar accepts, and the n-gram corpus continues from the last of them.
        """
        is_cut = request.grammar is not None and request.finished() and self._scheduler.spec_algorithm.is_ngram()
        return [*sampled[:-1], request.output_ids[-1]] if is_cut and sampled and request.output_ids else sampled
