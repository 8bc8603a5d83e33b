"""Observer of the drafter: inputs of each pass of its model, and draft tokens.

The first pass of a step writes the KV-cache entries of the step's tokens and proposes the first draft token of each
request. SGLang runs the later passes when a request runs next; they are recorded as passes of the step before, with the
blocks that the request has by then.

If draft tokens form a tree, only the accepted nodes of the target's inputs and hidden states are recorded, once they
are known, and only the drafter's first pass, which writes their KV-cache entries; of later passes the hidden states.
An n-gram corpus has no passes.
"""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch

from workers.targets.child.inside.observations import digests, margins
from workers.targets.child.inside.readback import Parts
from workers.targets.sglang.inside.recorder import Recorder

# Modules that verify draft trees: of an n-gram corpus, and of draft models.
_TREES_OF_CORPORA = "sglang.srt.speculative.ngram_worker"
_TREES_OF_MODELS = "sglang.srt.speculative.eagle_worker_common"
# Module that continues the likeliest draft tokens of a pass over trees.
_BRANCHES = "sglang.srt.speculative.eagle_worker_v2"


class DrafterObserver:
    """Records the drafter's inputs; its methods stay wrapped until `release`.

    `recorder` records the scheduler's steps.
    """

    def __init__(self, worker: Any, recorder: Recorder) -> None:
        self._worker, self._recorder = worker, recorder
        self._model = worker.draft_runner.model
        # For each step, the requests of its first pass, in order, until its later passes have run.
        self._rows: dict[int, list[str]] = {}
        # Number of accepted tokens of each request, while the first pass writes their KV-cache entries.
        self._accepted: torch.Tensor | None = None
        self._index = 0
        self._draft: Callable[..., Any] = worker.draft
        self._extend: Callable[..., Any] = worker._draft_extend_for_decode
        self._forward: Callable[..., Any] = self._model.forward
        worker.draft, worker._draft_extend_for_decode = self._observed_draft, self._observed_extend
        self._model.forward = self._observed_forward
        # Columns of the candidate draft tokens that the next pass over trees continues, by request; None at first.
        self._continued: torch.Tensor | None = None
        self._branches: Any = sys.modules[_BRANCHES]
        self._select: Callable[..., Any] = self._branches.select_top_k_tokens
        self._branches.select_top_k_tokens = self._observed_select  # type: ignore[attr-defined]

    def release(self) -> None:
        """Restore the drafter's methods."""
        self._branches.select_top_k_tokens = self._select
        del self._worker.draft, self._worker._draft_extend_for_decode, self._model.forward

    def _observed_draft(self, batch: Any, *arguments: Any, **options: Any) -> Any:
        self._index = 0
        proposed = self._draft(batch, *arguments, **options)
        if self._recorder.batch is None:
            return proposed
        width = proposed.draft_token_num
        for step, names, rows in self._groups():
            if self._recorder.has_trees:
                del self._rows[step]
                continue

            def drafts(views: Mapping[str, Parts], rows: Sequence[int] = rows) -> Mapping[str, Any]:
                tokens = views["proposed"][0].view(-1, width)[:, 1:]
                return {"proposed": tokens[rows].tolist()}

            self._recorder.observations.read("proposed", names, {"proposed": proposed.draft_token}, drafts, step)
            del self._rows[step]
        return proposed

    def _observed_extend(self, batch: Any, result: Any, *arguments: Any, **options: Any) -> Any:
        self._accepted = result.accept_lens
        try:
            return self._extend(batch, result, *arguments, **options)
        finally:
            self._accepted = None

    def _groups(self) -> Iterator[tuple[int, list[str], list[int]]]:
        """Yield (step, requests, batch rows) of steps whose draft passes are not complete.

        A request belongs to the last step that it ran in.
        """
        of_steps: dict[int, list[tuple[str, int]]] = {}
        for row, request in enumerate(self._recorder.batch.reqs):
            of_steps.setdefault(self._recorder.last_steps[request.rid], []).append((request.rid, row))
        for step in sorted(of_steps.keys() & self._rows.keys()):
            found = of_steps[step]
            yield step, [name for name, _ in found], [row for _, row in found]

    def _observed_forward(
        self, input_ids: Any, positions: Any, forward_batch: Any, *arguments: Any, **options: Any
    ) -> Any:
        is_later_pass = forward_batch.forward_mode.is_decode()
        if self._recorder.batch is None:
            return self._forward(input_ids, positions, forward_batch, *arguments, **options)
        if is_later_pass and self._recorder.has_trees:
            given = forward_batch.spec_info.hidden_states
            made = self._forward(input_ids, positions, forward_batch, *arguments, **options)
            if self._recorder.receives_hidden_states:
                self._index += 1
                self._note_branches(given, made.hidden_states)
            return made
        if is_later_pass:
            self._index += 1
            self._note_later_pass(input_ids, positions, forward_batch)
            made = self._forward(input_ids, positions, forward_batch, *arguments, **options)
            self._note_later_margins(made.next_token_logits)
            self._note_later_states(made.hidden_states)
        else:
            self._note_first_pass(input_ids, positions, forward_batch)
            made = self._forward(input_ids, positions, forward_batch, *arguments, **options)
            self._note_first_margins(made.next_token_logits)
            if self._recorder.receives_hidden_states:
                step = self._recorder.observations.step
                self._recorder.note_hidden_states(self._rows[step], made.hidden_states, draft_pass=0)
        return made

    def _tensors(self, input_ids: Any, positions: Any, forward_batch: Any) -> Mapping[str, torch.Tensor]:
        from sglang.srt.model_executor.forward_context import get_forward_context  # noqa: PLC0415

        metadata = get_forward_context().attn_backend.forward_metadata
        tensors = self._recorder.input_tensors(forward_batch, metadata, input_ids=input_ids, positions=positions)
        if not self._recorder.receives_hidden_states:
            return tensors
        return {**tensors, "hidden_states": forward_batch.spec_info.hidden_states}

    def _note_first_pass(self, input_ids: Any, positions: Any, forward_batch: Any) -> None:
        recorder, step = self._recorder, self._recorder.observations.step
        names = self._rows[step] = [request.rid for request in recorder.batch.reqs]
        is_decoding = forward_batch.forward_mode.is_draft_extend_v2()
        counts = [len(input_ids) // len(names)] * len(names) if is_decoding else list(recorder.batch.extend_lens)

        def inputs(views: Mapping[str, Parts]) -> Mapping[str, Any]:
            states = digests(views.get("hidden_states", ()))
            return {**recorder.inputs(views, counts, adds_own_slots=True), "hidden_states": states}

        tensors = self._tensors(input_ids, positions, forward_batch)
        recorder.observations.read("drafting", names, tensors, inputs, index=0, blocks=[], bounds=[])

    def _note_later_pass(self, input_ids: Any, positions: Any, forward_batch: Any) -> None:
        recorder = self._recorder
        tensors, holders = self._tensors(input_ids, positions, forward_batch), recorder.holders()
        count = len(recorder.batch.reqs)
        for step, names, rows in self._groups():

            def inputs(
                views: Mapping[str, Parts], rows: Sequence[int] = rows, names: Sequence[str] = names
            ) -> Mapping[str, Any]:
                every = recorder.inputs(views, [1] * count, adds_own_slots=False)
                if "hidden_states" in views:
                    every["hidden_states"] = digests(views["hidden_states"])
                of_rows = {name: [values[row] for row in rows] for name, values in every.items() if name != "starts"}
                held = recorder.blocks([each for each in holders if each.name in names], views["rows"][0])
                return {**of_rows, "starts": [*range(len(rows) + 1)], "blocks": held}

            # This pass runs while the next step is launched, before that step's own first pass.
            place = {"index": self._index, "behind": recorder.observations.step - 1}
            recorder.observations.read("drafting", names, tensors, inputs, step, bounds=[], **place)

    def _note_first_margins(self, logits: torch.Tensor) -> None:
        observations, accepted = self._recorder.observations, self._accepted
        names = self._rows[observations.step]

        def of_accepted(views: Mapping[str, Parts]) -> Mapping[str, Any]:
            every = views["logits"][0]
            if accepted is not None:
                width = len(every) // len(names)
                kept = views["accepted"][0].tolist()
                every = every[[row * width + count - 1 for row, count in enumerate(kept)]]
            return {"margins": margins(every)}

        tensors = {"logits": logits} if accepted is None else {"logits": logits, "accepted": accepted}
        observations.read("margins", names, tensors, of_accepted)

    def _note_later_margins(self, logits: torch.Tensor) -> None:
        for step, names, rows in self._groups():
            every_name, places = self._rows[step], dict(zip(names, rows, strict=True))

            def of_step(
                views: Mapping[str, Parts],
                every_name: Sequence[str] = every_name,
                places: Mapping[str, int] = places,
            ) -> Mapping[str, Any]:
                every = margins(views["logits"][0])
                # A request that does not run again gets no draft tokens.
                return {"margins": [every[places[name]] if name in places else 0.0 for name in every_name]}

            self._recorder.observations.read("margins", every_name, {"logits": logits}, of_step, step)

    def _observed_select(self, number: int, *arguments: Any, **options: Any) -> Any:
        made = self._select(number, *arguments, **options)
        self._continued = made[3][2] if number else None
        return made

    def _note_branches(self, given: torch.Tensor, made: torch.Tensor) -> None:
        """Record the hidden states that a pass over trees received and returned, by request and branch."""
        width, index = len(given) // len(self._recorder.batch.reqs), self._index
        # A column counts all candidate draft tokens of the passes before, then `width` candidates for each parent.
        before = width * width * (index - 2) + width
        for step, names, rows in self._groups():

            def branches(views: Mapping[str, Parts], rows: Sequence[int] = rows) -> Mapping[str, Any]:
                every = digests(views["states"])
                columns = views["continued"][0][rows].tolist() if "continued" in views else []
                parents = [[(column - before) // width for column in of_request] for of_request in columns]
                return {
                    "parents": parents,
                    "hidden_states": [every[row * width : (row + 1) * width] for row in rows],
                }

            def returned(views: Mapping[str, Parts], rows: Sequence[int] = rows) -> Mapping[str, Any]:
                every = digests(views["states"])
                return {"hidden_states": [each for row in rows for each in every[row * width : (row + 1) * width]]}

            tensors = {"states": given} if self._continued is None else {"states": given, "continued": self._continued}
            self._recorder.observations.read("branches", names, tensors, branches, step, index=index)
            self._recorder.observations.read("hidden_states", names, {"states": made}, returned, step, draft_pass=index)

    def _note_later_states(self, states: torch.Tensor) -> None:
        for step, names, rows in self._groups() if self._recorder.receives_hidden_states else ():

            def of_step(views: Mapping[str, Parts], rows: Sequence[int] = rows) -> Mapping[str, Any]:
                return {"hidden_states": digests([views["states"][0][rows]])}

            self._recorder.observations.read(
                "hidden_states", names, {"states": states}, of_step, step, draft_pass=self._index
            )


class TreeObserver:
    """Records which nodes of draft trees are accepted, until `release`."""

    def __init__(self, recorder: Recorder, *, of_models: bool) -> None:
        self._recorder = recorder
        self._module = sys.modules[_TREES_OF_MODELS if of_models else _TREES_OF_CORPORA]
        self._sample: Callable[..., Any] = self._module.eagle_sample
        self._module.eagle_sample = self._observed  # type: ignore[attr-defined]

    def release(self) -> None:
        """Restore the original verification function."""
        self._module.eagle_sample = self._sample  # type: ignore[attr-defined]

    def _observed(self, *arguments: Any, **options: Any) -> Any:
        predicted, counts, nodes = self._sample(*arguments, **options)
        if self._recorder.record_accepted is not None:
            self._recorder.record_accepted(nodes, counts)
            self._recorder.record_accepted = None
        return predicted, counts, nodes
