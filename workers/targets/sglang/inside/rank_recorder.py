"""Recorder of a further rank's steps: its model inputs and its sampled tokens, to compare with those of rank 0."""

from collections.abc import Callable, Mapping
from typing import Any

import torch

from workers.targets.child.inside.readback import Parts
from workers.targets.child.messages import Message
from workers.targets.sglang.inside.batches import counts_of, rows_without_token, sampled_of
from workers.targets.sglang.inside.recorder import Recorder


class RankRecorder:
    """Records the steps of one rank's scheduler among those of rank 0, until `release`.

    Each rank counts its own batches: a batch that one rank leaves out makes all later steps differ.
    """

    def __init__(self, scheduler: Any, rank: int, recorder: Recorder) -> None:
        self._scheduler, self._rank, self._recorder = scheduler, rank, recorder
        self._step = -1
        self._batch: Any = None
        self._results: dict[int, int] = {}
        model = self._model = scheduler.tp_worker.model_runner.model
        self._run: Callable[..., Any] = scheduler.run_batch
        self._process: Callable[..., Any] = scheduler.process_batch_result
        self._forward: Callable[..., Any] = model.forward
        scheduler.run_batch, scheduler.process_batch_result = self._observed_run, self._observed_process
        model.forward = self._observed_forward

    def release(self) -> None:
        """Restore the scheduler's methods."""
        del self._scheduler.run_batch, self._scheduler.process_batch_result, self._model.forward

    def take(self) -> list[Message]:
        """Return nothing: the recorder of rank 0 returns the records of all ranks."""
        return []

    def _observed_run(self, batch: Any, *arguments: Any, **options: Any) -> Any:
        self._step += 1
        self._batch = batch
        try:
            result = self._run(batch, *arguments, **options)
        finally:
            self._batch = None
        self._results[id(result)] = self._step
        return result

    def _observed_forward(
        self, input_ids: Any, positions: Any, forward_batch: Any, *arguments: Any, **options: Any
    ) -> Any:
        if self._batch is not None:
            self._note(forward_batch, input_ids, positions)
        return self._forward(input_ids, positions, forward_batch, *arguments, **options)

    def _note(self, forward_batch: Any, input_ids: torch.Tensor, positions: torch.Tensor) -> None:
        """Record the model inputs of a step."""
        from sglang.srt.model_executor.forward_context import get_forward_context  # noqa: PLC0415

        batch, mode, recorder = self._batch, forward_batch.forward_mode, self._recorder
        counts, drafts, _ = counts_of(batch, mode, len(input_ids))

        def inputs(views: Mapping[str, Parts]) -> Mapping[str, Any]:
            return recorder.inputs(views, counts, adds_own_slots=not mode.is_decode())

        metadata = get_forward_context().attn_backend.forward_metadata
        tensors = {
            "input_ids": input_ids,
            "positions": positions,
            "slots": forward_batch.out_cache_loc,
            "indptr": metadata.kv_indptr,
            "indices": metadata.kv_indices,
        }
        names = [request.rid for request in batch.reqs]
        recorder.observations.read("rank_inputs", names, tensors, inputs, self._step, drafts=drafts, rank=self._rank)

    def _observed_process(self, batch: Any, result: Any, *arguments: Any, **options: Any) -> Any:
        step, without = self._results.pop(id(result), None), rows_without_token(batch)
        processed = self._process(batch, result, *arguments, **options)
        if step is not None:
            names = [request.rid for request in batch.reqs]
            sampled = sampled_of(result, without)
            self._recorder.observations.note("rank_processed", names, step, sampled=sampled, rank=self._rank)
        return processed
