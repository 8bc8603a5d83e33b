"""Recorder of a scheduler: output, block tables and results of each step."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

from scenarios.spec import EngineName
from workers.targets.child.inside.observations import Observations
from workers.targets.child.inside.readback import ImmediateReadback
from workers.targets.child.messages import Message
from workers.targets.vllm.inside.drafting import NO_DRAFTER
from workers.targets.vllm.inside.transfer.groups import group_numbers, window_numbers


class PlanRecorder:
    """Records scheduler outputs and results; the scheduler stays wrapped until `release`.

    `number_of` maps an engine's request id to the request's number in the trace; `seen` receives the observations.
    """

    def __init__(self, scheduler: Any, number_of: Callable[[str], int], seen: Observations) -> None:
        self._scheduler, self._number_of, self._seen = scheduler, number_of, seen
        self._steps: dict[int, int] = {}
        # Whether the last plan was a step with tokens.
        self._follows = True
        self._attention, *self._with_states = group_numbers(scheduler.kv_cache_config)
        self._windows = window_numbers(scheduler.kv_cache_config)
        self._num_blocks: int = scheduler.kv_cache_manager.block_pool.get_num_free_blocks()
        self._update: Callable[..., Any] = scheduler.update_from_output
        scheduler.update_from_output = self._observed_update
        self._manager = scheduler.kv_cache_manager
        # Blocks allocated since the last plan, and their number at each request's prefix-cache lookup.
        self._taken: list[int] = []
        self._lookups: dict[str, int] = {}
        self._take: Callable[..., list[Any]] = self._manager.block_pool.get_new_blocks
        self._look_up: Callable[..., Any] = self._manager.get_computed_blocks
        self._manager.block_pool.get_new_blocks = self._observed_take
        self._manager.get_computed_blocks = self._observed_lookup

    def release(self) -> None:
        """Restore the scheduler's methods."""
        del self._scheduler.update_from_output
        del self._manager.block_pool.get_new_blocks, self._manager.get_computed_blocks

    def stop(self) -> None:
        """Discard the steps in flight, so that their results are not recorded."""
        self._steps.clear()

    def take(self) -> list[Message]:
        """Return the engine records since the last call that the device has computed."""
        return self._seen.take()

    def controlled(self, what: str, version: int, tokens: Sequence[int]) -> None:
        """Record a control call (such as a pause) with the latest scheduled step."""
        self._seen.note("controlled", [], what=what, version=version, tokens=list(tokens))

    def note(self, point: str, names: list[str], **values: Any) -> None:
        """Record host values at `point` of the latest scheduled step."""
        self._seen.note(point, names, **values)

    def finish(self) -> None:
        """Wait until the device has run all work."""
        self._seen.finish()

    def stepped(self) -> None:
        """Record what the host has corrected after a step; nothing without a model runner."""

    def opened(self, vllm_config: Any, traits: Mapping[str, Any]) -> None:
        """Record the sizes of an engine and its drafter's traits, before the first step."""
        groups = self._scheduler.kv_cache_config.kv_cache_groups
        sizes = {
            "vocab_size": vllm_config.model_config.get_vocab_size(),
            "block_size": groups[self._attention].kv_cache_spec.block_size,
            "state_sizes": [groups[number].kv_cache_spec.block_size for number in self._with_states],
            "windows": [
                [groups[number].kv_cache_spec.block_size, groups[number].kv_cache_spec.sliding_window]
                for number in self._windows
            ],
            # Before 0.33.0 a block's hash covers only that block, as it always does without a drafter.
            "hash_ahead": getattr(self._scheduler, "num_hash_lookahead_tokens", 0),
            "max_model_len": vllm_config.model_config.max_model_len,
        }
        self._seen.note("opened", [], **sizes, **traits)

    def scheduled(self, plan: Any, **more: Any) -> None:
        """Record a scheduler output with the block tables of running requests, and `more`."""
        # A plan without tokens may also copy blocks, before the next planned step.
        copies = getattr(plan, "kv_cache_block_copies", None)
        if copies:
            self._seen.note("copied", [], self._seen.step + 1, blocks=[list(pair) for pair in copies])
        if not plan.total_num_scheduled_tokens:
            self._follows = False
            return
        self._seen.step += 1
        self._steps[id(plan)] = self._seen.step
        cached = plan.scheduled_cached_reqs
        computed = {new.req_id: new.num_computed_tokens for new in plan.scheduled_new_reqs}
        begun = [*computed, *cached.resumed_req_ids]
        computed |= zip(cached.req_ids, cached.num_computed_tokens, strict=True)
        names, requests = list(plan.num_scheduled_tokens), self._scheduler.requests
        running = [request.request_id for request in self._scheduler.running]
        held = {name: self._scheduler.kv_cache_manager.get_block_ids(name) for name in running}
        blocks = [[self._number_of(name), list(held[name][self._attention])] for name in running]
        states, windows = (
            [[self._number_of(name), [list(held[name][group]) for group in groups]] for name in running]
            for groups in (self._with_states, self._windows)
        )
        self._seen.note(
            "scheduled",
            names,
            scheduled_computed=[computed[name] for name in names],
            planned_drafts=[len(plan.scheduled_spec_decode_tokens.get(name, ())) for name in names],
            begun=[[self._number_of(name), requests[name].all_token_ids[:]] for name in names if name in begun],
            blocks=blocks,
            states=states,
            windows=windows,
            taken=self._taken[:],
            lookups=[[self._number_of(name), count] for name, count in self._lookups.items() if name in begun],
            follows=self._follows,
            shared=[],
            **more,
        )
        self._follows = True
        self._taken.clear()
        self._lookups.clear()

    def waiting(self, plan: Any) -> None:
        """Record the ready requests that a scheduler output leaves waiting, and the free capacity."""
        scheduler, pool = self._scheduler, self._manager.block_pool
        waiting = [request.request_id for request in scheduler.waiting if _may_run(request)]
        if not waiting or scheduler._pause_state.name != "UNPAUSED":
            return
        rows = len(scheduler.running) + getattr(scheduler, "num_waiting_for_streaming_input", 0)
        begun = [new.req_id for new in plan.scheduled_new_reqs] + list(plan.scheduled_cached_reqs.resumed_req_ids)
        self._seen.note(
            "waiting",
            waiting,
            admitted=list(map(self._number_of, begun)),
            running=[[self._number_of(request.request_id), self._num_held(request)] for request in scheduler.running],
            rows_left=scheduler.max_num_running_reqs - rows,
            tokens_left=scheduler.max_num_scheduled_tokens - plan.total_num_scheduled_tokens,
            blocks_left=pool.get_num_free_blocks() - getattr(self._manager, "watermark_blocks", 0),
            blocks_reserved=1,
        )

    def _num_held(self, request: Any) -> int:
        """Return how many blocks a request holds in all KV-cache groups, without null blocks."""
        return sum(block > 0 for group in self._manager.get_block_ids(request.request_id) for block in group)

    def drained(self, more: Mapping[str, int]) -> None:
        """Record the blocks and requests still held, and `more`, when no request is left."""
        scheduler = self._scheduler
        held = {
            "blocks": self._num_blocks - scheduler.kv_cache_manager.block_pool.get_num_free_blocks(),
            "requests of the scheduler": len(scheduler.requests),
            **more,
        }
        self._seen.note("drained", [], leaks={name: count for name, count in held.items() if count})

    def _observed_take(self, count: int, *arguments: Any, **options: Any) -> list[Any]:
        blocks = self._take(count, *arguments, **options)
        self._taken += [block.block_id for block in blocks]
        return blocks

    def _observed_lookup(self, request: Any, *arguments: Any, **options: Any) -> Any:
        # A request with prompt logprobs skips the lookup, because its prompt must be computed.
        if request.sampling_params is not None and request.sampling_params.prompt_logprobs is None:
            self._lookups[request.request_id] = len(self._taken)
        return self._look_up(request, *arguments, **options)

    def _observed_update(self, plan: Any, result: Any, *arguments: Any, **options: Any) -> Any:
        step = self._steps.pop(id(plan), None)
        if step is not None:
            sampled = [list(map(int, tokens)) for tokens in result.sampled_token_ids]
            self._seen.note("processed", list(result.req_ids), step, sampled=sampled)
        outputs = self._update(plan, result, *arguments, **options)
        every = [each.scheduler_stats for each in outputs.values() if each.scheduler_stats is not None]
        counts = next((stats.spec_decoding_stats for stats in every), None)
        if step is not None and counts is not None:
            of_drafts = counts.num_drafts, counts.num_draft_tokens, counts.num_accepted_tokens
            self._seen.note("counted", [], step, counted=list(of_drafts))
        return outputs


class SchedulerRecorder(PlanRecorder):
    """Recorder of a scheduler without a model runner in this process, with the block tables that it sends to one."""

    def __init__(self, scheduler: Any, number_of: Callable[[str], int], seen: Observations) -> None:
        super().__init__(scheduler, number_of, seen)
        self._sent: dict[str, list[int]] = {}

    @classmethod
    def of_scheduler(cls, scheduler: Any, number_of: Callable[[str], int], seen: list[Message], of: EngineName) -> Self:
        """Return the recorder of a scheduler, which adds its records to the list `seen`."""
        observations = Observations(ImmediateReadback(), number_of, lambda point, name: (name,), seen, of)
        recorder = cls(scheduler, number_of, observations)
        recorder.opened(scheduler.vllm_config, NO_DRAFTER)
        return recorder

    def scheduled(self, plan: Any, **more: Any) -> None:
        for new in plan.scheduled_new_reqs:
            self._sent[new.req_id] = list(new.block_ids[self._attention])
        cached = plan.scheduled_cached_reqs
        for name, blocks in zip(cached.req_ids, cached.new_block_ids, strict=True):
            if name in cached.resumed_req_ids:
                self._sent[name] = []
            if blocks is not None:
                self._sent[name] = self._sent[name] + list(blocks[self._attention])
        counts = list(plan.num_scheduled_tokens.values())
        super().scheduled(
            plan, num_tokens=counts, told=[self._sent[name] for name in plan.num_scheduled_tokens], **more
        )


def _may_run(request: Any) -> bool:
    """Return whether a waiting request is ready: no load, grammar, input or result is pending."""
    is_late = getattr(request, "num_stale_output_tokens", 0) and not getattr(request, "drop_stale_output", False)
    return request.status.name in ("WAITING", "PREEMPTED") and not is_late
