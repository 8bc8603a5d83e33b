"""Observer of an engine's steps: what was planned, what the model was given, and what was made of it, from outside.

What lies on the device is copied by a task of the engine's own stream, which orders nothing and is no access to the
race detector. The runner is wrapped where it has its inputs ready, the scheduler where a step's results come back.
"""

from collections.abc import Callable
from typing import Any

import torch

from workers.targets.simulated_torch.device import activate
from workers.targets.vllm.messages import Message


class StepObserver:
    """Observations of one session; `number_of` tells which request of the trace an engine's id is."""

    def __init__(self, engine: Any, is_device: bool, number_of: Callable[[str], int]) -> None:
        self._scheduler = engine.scheduler
        self._runner = engine.model_executor.driver_worker.worker.model_runner
        self._is_device, self._number_of = is_device, number_of
        self._seen: list[Message] = []
        self._steps: dict[int, int] = {}
        self._step = -1
        self._drafts: dict[str, int] = {}
        self._num_blocks: int = self._scheduler.kv_cache_manager.block_pool.get_num_free_blocks()
        self._prepare: Callable[..., Any] = self._runner._prepare_inputs
        self._forward: Callable[..., Any] = self._runner._model_forward
        self._update: Callable[..., Any] = self._scheduler.update_from_output
        sizes = {
            "vocab_size": engine.vllm_config.model_config.get_vocab_size(),
            "block_size": engine.vllm_config.cache_config.block_size,
        }
        self._note("opened", [], **sizes)
        self._runner._prepare_inputs = self._observed_prepare
        self._runner._model_forward = self._observed_forward
        self._scheduler.update_from_output = self._observed_update

    def release(self) -> None:
        """Leave the engine as it was."""
        del self._runner._prepare_inputs, self._runner._model_forward, self._scheduler.update_from_output

    def take(self) -> list[Message]:
        """Return what was seen since the last call; of a step on the device, once it has run."""
        seen, self._seen = self._seen, []
        return seen

    def scheduled(self, plan: Any) -> None:
        """Note a plan, with the blocks of every request that runs."""
        if not plan.total_num_scheduled_tokens:
            return
        self._step += 1
        self._steps[id(plan)] = self._step
        cached = plan.scheduled_cached_reqs
        computed = {new.req_id: new.num_computed_tokens for new in plan.scheduled_new_reqs}
        begun = [*computed, *cached.resumed_req_ids]
        computed |= zip(cached.req_ids, cached.num_computed_tokens, strict=True)
        names, requests = list(plan.num_scheduled_tokens), self._scheduler.requests
        running = [request.request_id for request in self._scheduler.running]
        blocks = [list(self._scheduler.kv_cache_manager.get_block_ids(name)[0]) for name in running]
        self._note(
            "scheduled",
            names,
            scheduled_computed=[computed[name] for name in names],
            planned_drafts=[len(plan.scheduled_spec_decode_tokens.get(name, ())) for name in names],
            begun=[[self._number_of(name), requests[name].all_token_ids[:]] for name in names if name in begun],
            blocks=[[self._number_of(name), held] for name, held in zip(running, blocks, strict=True)],
        )

    def stepped(self) -> None:
        """Note the host's counts, which are corrected by the time that a step has been launched."""
        batch = self._runner.input_batch
        if self._step >= 0 and batch.num_reqs:
            counts = batch.num_computed_tokens_cpu[: batch.num_reqs].tolist()
            self._note("corrected", list(batch.req_ids), mirror_computed=counts)

    def drained(self) -> None:
        """Note what is still held once nothing is left to do."""
        scheduler, runner = self._scheduler, self._runner
        held = {
            "blocks": self._num_blocks - scheduler.kv_cache_manager.block_pool.get_num_free_blocks(),
            "requests of the scheduler": len(scheduler.requests),
            "requests of the runner": len(runner.requests),
            "rows of the batch": runner.input_batch.num_reqs,
        }
        self._note("drained", [], leaks={name: count for name, count in held.items() if count})

    def _observed_prepare(self, plan: Any, *arguments: Any) -> Any:
        # Of drafts that were looked up on the device some are taken out of the plan before it is carried out.
        self._drafts = {name: len(drafts) for name, drafts in plan.scheduled_spec_decode_tokens.items()}
        return self._prepare(plan, *arguments)

    def _observed_forward(self, *arguments: Any, **options: Any) -> Any:
        self._observe(options["input_ids"], options["positions"])
        return self._forward(*arguments, **options)

    def _observe(self, input_ids: torch.Tensor, positions: torch.Tensor) -> None:
        from vllm.forward_context import get_forward_context  # noqa: PLC0415  what they replace must be replaced by then

        metadata = next(iter(get_forward_context().attn_metadata.values()))
        names, step = list(self._runner.input_batch.req_ids), self._step
        num_reqs = len(names)
        drafts = [self._drafts.get(name, 0) for name in names]
        tensors = {
            "input_ids": input_ids,
            "positions": positions,
            "slots": metadata.slot_mapping,
            "starts": metadata.query_start_loc[: num_reqs + 1],
            "seq_lens": metadata.seq_lens[:num_reqs],
            "tables": metadata.block_table[:num_reqs],
        }

        def keep(*values: torch.Tensor) -> None:
            read = {name: value.tolist() for name, value in zip(tensors, values, strict=True)}
            self._note("inputs", names, step, drafts=drafts, **read)

        if self._is_device:
            views = [activate().host_view(tensor) for tensor in tensors.values()]
            activate().enqueue("observe", lambda: keep(*views))
        else:
            keep(*tensors.values())

    def _observed_update(self, plan: Any, result: Any) -> Any:
        step = self._steps.pop(id(plan), None)
        if step is not None:
            sampled = [list(map(int, tokens)) for tokens in result.sampled_token_ids]
            self._note("processed", list(result.req_ids), step, sampled=sampled)
        return self._update(plan, result)

    def _note(self, point: str, names: list[str], step: int | None = None, **values: Any) -> None:
        requests = [self._number_of(name) for name in names]
        step = self._step if step is None else step
        self._seen.append({"point": point, "step": step, "requests": requests, "values": values})
